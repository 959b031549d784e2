//! Describes moves as text, for counterexamples.

use super::model::{Model, Move};
use super::sidecars::SidecarMove;
use super::state::*;

/// Describes a move from a state.
pub fn describe(model: &Model, state: &State, next_move: &Move) -> String {
    match next_move {
        Move::Kubelet(uid, change, seen) => format!("pod {uid}: {change:?}{}", cache_note(*seen)),
        Move::Hook(index, phase, seen) => {
            let id = &state.runs.now[*index].id;
            format!("hook {id:?} ends {phase:?}{}", cache_note(*seen))
        }
        Move::HookAhead(index) => {
            let id = &state.runs.now[*index].id;
            format!("hook {id:?} succeeds, according to a clock that is ahead")
        }
        Move::User(change, seen) => format!("user: {change:?}{}", cache_note(*seen)),
        Move::Collect(uid, seen) => {
            format!("the garbage collector deletes pod {uid}{}", cache_note(*seen))
        }
        Move::Orphan(seen) => {
            format!("the garbage collector orphans the dependents{}", cache_note(*seen))
        }
        Move::Tick => "time passes".to_owned(),
        Move::Plan(seen) => {
            let mut next = state.clone();
            let begun = model.begin_reconcile(&mut next, *seen);
            let stale = stale_note(state, *seen);
            match &next.operator.reconcile {
                _ if begun.is_err() => format!("operator plans{stale}"),
                Some(reconcile) => format!(
                    "operator plans{stale}: {:?}, status {:?}, then {:?}",
                    reconcile.before,
                    reconcile.status.map(|it| model.translator.facts(it)),
                    reconcile.after
                ),
                None => format!("operator plans{stale}, but the workload is newer"),
            }
        }
        Move::Write(index) => match &state.operator.reconcile {
            Some(reconcile) if reconcile.before.is_empty() => {
                format!("operator: {:?}", reconcile.after[*index])
            }
            Some(reconcile) => format!("operator: {:?}", reconcile.before[*index]),
            None => "operator writes nothing".to_owned(),
        },
        Move::WriteStatus => "operator writes the status".to_owned(),
        Move::Sidecars(next_move) => describe_sidecars(model, state, *next_move),
        Move::Abandon => "operator abandons the plan: the workload is newer".to_owned(),
        Move::Crash => "operator crashes".to_owned(),
    }
}

fn describe_sidecars(model: &Model, state: &State, next_move: SidecarMove) -> String {
    match next_move {
        SidecarMove::SeeSet => "the cache of the SidecarSet catches up".to_owned(),
        SidecarMove::SeePods => "the SidecarSet's planner catches up with the pods".to_owned(),
        SidecarMove::Plan => {
            let stale = match state.allotter.pods {
                Seen::Before(_) => " with stale pods",
                Seen::Now | Seen::TooOld => "",
            };
            let writes = &model.allot(state).writes;
            format!("the SidecarSet plans{stale}: {writes:?}")
        }
        SidecarMove::Write(index, seen) => {
            let write = &state.allotter.writes[index];
            format!("the SidecarSet: {write:?}{}", cache_note(seen))
        }
    }
}

fn cache_note(caught_up: bool) -> &'static str {
    if caught_up { " (the cache had caught up)" } else { "" }
}

fn stale_note(state: &State, caught_up: [bool; 4]) -> String {
    fn is_stale<T>(kind: &Kind<T>, caught_up: bool) -> bool {
        !caught_up && matches!(kind.seen, Seen::Before(_))
    }
    let stale = [
        ("workload", is_stale(&state.workload, caught_up[0])),
        ("pods", is_stale(&state.pods, caught_up[1])),
        ("runs", is_stale(&state.runs, caught_up[2])),
        ("revisions", is_stale(&state.revisions, caught_up[3])),
    ];
    let kinds: Vec<&str> = stale.iter().filter(|it| it.1).map(|it| it.0).collect();
    if kinds.is_empty() { String::new() } else { format!(" with stale {}", kinds.join(", ")) }
}

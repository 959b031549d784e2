//! Tells a move in words: what the checker finds has to be understood by somebody.

use super::model::{Model, Move};
use super::state::*;

/// A move, from a state.
pub fn tell(model: &Model, state: &State, what: &Move) -> String {
    match what {
        Move::Kubelet(uid, what, seen) => format!("pod {uid}: {what:?}{}", caught_up(*seen)),
        Move::Hook(place, phase, seen) => {
            let id = &state.runs.now[*place].id;
            format!("hook {id:?} ends {phase:?}{}", caught_up(*seen))
        }
        Move::HookAhead(place) => {
            let id = &state.runs.now[*place].id;
            format!("hook {id:?} ends well, by a clock that is ahead")
        }
        Move::User(what, seen) => format!("user: {what:?}{}", caught_up(*seen)),
        Move::Tick => "time passes".to_owned(),
        Move::Plan(seen) => {
            let mut next = state.clone();
            let begun = model.begin_sync(&mut next, *seen);
            let stale = stale(state, *seen);
            match &next.operator.sync {
                _ if begun.is_err() => format!("operator plans{stale}"),
                Some(sync) => format!(
                    "operator plans{stale}: {:?}, status {:?}, then {:?}",
                    sync.before,
                    sync.status.map(|it| model.translator.facts(it)),
                    sync.after
                ),
                None => format!("operator plans{stale}, but the workload is newer"),
            }
        }
        Move::Write(place) => match &state.operator.sync {
            Some(sync) if sync.before.is_empty() => format!("operator: {:?}", sync.after[*place]),
            Some(sync) => format!("operator: {:?}", sync.before[*place]),
            None => "operator writes nothing".to_owned(),
        },
        Move::WriteStatus => "operator writes the status".to_owned(),
        Move::GiveUp => "operator gives up: the workload is newer".to_owned(),
        Move::Crash => "operator crashes".to_owned(),
    }
}

fn caught_up(seen: bool) -> &'static str {
    if seen {
        " (the cache had caught up)"
    } else {
        ""
    }
}

fn stale(state: &State, caught_up: [bool; 4]) -> String {
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
    if kinds.is_empty() {
        String::new()
    } else {
        format!(" on old {}", kinds.join(", "))
    }
}

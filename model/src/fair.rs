//! When the world stands still: the user does nothing more, caches catch up, kubelets, hooks and
//! the operator go on. Then all must come to rest, with the spec met unless something that a user
//! has to see stands in its way; and a plan at rest writes nothing (invariant 8).

use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::api::{ConditionType, GameDeploymentStatus, HookPhase};
use gamekeeper_core::plan;

use super::explore::Settled;
use super::fingerprint::fingerprint;
use super::kubelet;
use super::model::{Broken, Model, Move};
use super::state::*;
use super::telling;

/// Moves after which it will not settle any more.
const PATIENCE: usize = 400;

/// A world that does not settle.
#[derive(Debug)]
pub struct Unrest {
    pub broken: Broken,
    pub moves: Vec<String>,
    pub last: String,
}

/// What happens when the world stands still: a move, or a jump of the clock.
enum Still {
    Move(Move),
    Wait(Time),
}

/// Lets the world come to rest, and gives it back. `is_kind`: the operator goes first, and hooks
/// succeed; otherwise kubelets and hooks go first, and hooks fail.
pub fn settle(
    model: &Model,
    state: &State,
    is_kind: bool,
    settled: &mut Settled,
) -> Result<State, Box<Unrest>> {
    let mut first = state.clone();
    first.left = Left {
        user: 0,
        crashes: 0,
        breaks: 0,
        failures: if is_kind { 0 } else { u8::MAX },
        ticks: 0,
    };
    let mut state = first.clone();
    let mut marks = Vec::new();
    let mut story = Vec::new();
    let unrest = |broken, story: &[Still]| Box::new(tell(model, &first, story, broken));
    for _ in 0..PATIENCE {
        let mark = fingerprint(&state);
        if settled.contains(&mark) {
            settled.extend(marks);
            return Ok(state);
        }
        marks.push(mark);
        let Some(what) = next(model, &state, is_kind) else {
            at_rest(model, &state).map_err(|broken| unrest(broken, &story))?;
            settled.extend(marks);
            return Ok(state);
        };
        let after = happen(model, &state, &what, first.left.failures);
        story.push(what);
        state = after.map_err(|broken| unrest(broken, &story))?;
    }
    let broken = Broken {
        rule: "settles",
        why: format!("no rest after {PATIENCE} moves"),
    };
    Err(unrest(broken, &story))
}

fn happen(model: &Model, state: &State, what: &Still, failures: u8) -> Result<State, Broken> {
    let mut next = match what {
        Still::Move(what) => model.step(state, what)?,
        Still::Wait(until) => State {
            clock: *until,
            ..state.clone()
        },
    };
    next.left.failures = failures;
    Ok(next)
}

fn tell(model: &Model, first: &State, story: &[Still], broken: Broken) -> Unrest {
    let mut state = first.clone();
    let mut moves = Vec::new();
    for what in story {
        moves.push(match what {
            Still::Move(what) => telling::tell(model, &state, what),
            Still::Wait(until) => format!("time passes until {until}"),
        });
        match happen(model, &state, what, first.left.failures) {
            Ok(next) => state = next,
            Err(_) => break,
        }
    }
    Unrest {
        broken,
        moves,
        last: format!("{state:?}"),
    }
}

fn next(model: &Model, state: &State, is_kind: bool) -> Option<Still> {
    let operator = || operators(model, state);
    let others = || kubelets(model, state).or_else(|| hooks(state, is_kind));
    let is_busy = state.operator.sync.is_some();
    let what = if is_kind || is_busy {
        operator().or_else(others)
    } else {
        others().or_else(operator)
    };
    what.map(Still::Move).or_else(|| wait(model, state))
}

fn operators(model: &Model, state: &State) -> Option<Move> {
    let mut moves = Vec::new();
    model.moves_of_operator(state, &mut moves);
    let is_fair = |what: &Move| match what {
        Move::Plan(caught_up) => *caught_up == [true; 4],
        what => *what != Move::GiveUp,
    };
    moves.into_iter().find(is_fair)
}

fn kubelets(model: &Model, state: &State) -> Option<Move> {
    let mut pods = state.pods.now.iter();
    pods.find_map(|pod| {
        let moves = kubelet::moves(&model.scope, state, pod);
        Some(Move::Kubelet(pod.uid, *moves.first()?, false))
    })
}

fn hooks(state: &State, is_kind: bool) -> Option<Move> {
    let mut runs = state.runs.now.iter();
    let place = runs.position(|run| !run.phase.is_completed())?;
    let phase = if is_kind {
        HookPhase::Successful
    } else {
        HookPhase::Failed
    };
    Some(Move::Hook(place, phase, false))
}

/// Time passes until the operator wants to look again.
fn wait(model: &Model, state: &State) -> Option<Still> {
    if state.operator.refused.is_some() {
        return None; // It asks again and again, and changes nothing.
    }
    let mut calm = state.clone();
    model.catch_up(&mut calm, [true; 4]);
    let wake = model.plan(&model.view(&calm)?).wake;
    wake.filter(|at| *at > state.clock).map(Still::Wait)
}

fn unsettled(why: String) -> Result<(), Broken> {
    Err(Broken {
        rule: "settles",
        why,
    })
}

/// Judges a world at rest.
fn at_rest(model: &Model, state: &State) -> Result<(), Broken> {
    let status = shown(model, state)?;
    if let Some(why) = litter(model, state) {
        return unsettled(why);
    }
    let unmet = unmet(model, state);
    let is_ready = status.holds(ConditionType::Ready).is_some();
    match (unmet, blockade(model, state)) {
        (None, _) if !is_ready => unsettled(format!("all is done, and not Ready: {status:?}")),
        (None, _) => Ok(()),
        (Some(why), _) if is_ready => unsettled(format!("Ready is True, but {why}")),
        (Some(_), Some(_)) => Ok(()),
        (Some(why), None) => unsettled(why),
    }
}

/// The status that shows at rest; then a plan writes nothing.
fn shown(model: &Model, state: &State) -> Result<GameDeploymentStatus, Broken> {
    let mut calm = state.clone();
    model.catch_up(&mut calm, [true; 4]);
    let Some(view) = model.view(&calm) else {
        return Ok(GameDeploymentStatus::default());
    };
    let mut gd = model.translator.workload(&view.workload);
    let world = model.translator.world(&view);
    for _ in 0..2 {
        let plan = model.decide(&gd, world.clone());
        if plan.actions.is_empty() && plan.status.is_none() {
            return Ok(gd.status.unwrap_or_default());
        }
        gd.status = plan.status.or(gd.status);
    }
    let plan = model.decide(&gd, world);
    let is_asking = |action: &plan::Action| matches!(action, plan::Action::DryRun { .. });
    if plan.status.is_none() && plan.actions.iter().all(is_asking) {
        return Ok(gd.status.unwrap_or_default());
    }
    Err(Broken {
        rule: "8: calm",
        why: format!("at rest, and yet {:?} {:?}", plan.actions, plan.status),
    })
}

/// What is left behind, whatever stands in the way.
fn litter(model: &Model, state: &State) -> Option<String> {
    let is_of_step = |run: &&Run| run.id.point == HookPoint::Step;
    if !model
        .translator
        .facts(state.workload.now.status)
        .is_rolling()
        && let Some(run) = state.runs.now.iter().find(is_of_step)
    {
        return Some(format!("{run:?} is left"));
    }
    let has_run = |pod: &Pod| {
        let mut runs = state.runs.now.iter();
        runs.any(|run| (run.id.point, run.id.pod) == (HookPoint::PreDelete, Some(pod.uid)))
    };
    let is_closed = |pod: &Pod| matches!(pod.gate, Gate::Closed(_)) && !pod.is_patched();
    let mut pods = state.pods.now.iter();
    let pod = pods.find(|pod| is_closed(pod) || (pod.marked && !has_run(pod)))?;
    Some(format!(
        "{pod:?} has a gate or annotation that nobody needs"
    ))
}

/// What the spec wants and the world does not have.
fn unmet(model: &Model, state: &State) -> Option<String> {
    let workload = &state.workload.now;
    let facts = model.translator.facts(workload.status);
    let pods = &state.pods.now;
    if let Some(pod) = pods.iter().find(|pod| pod.ready.is_none() || pod.marked) {
        return Some(format!("{pod:?} is not as it should be"));
    }
    let replicas = i64::from(workload.replicas);
    if pods.len() as i64 != replicas {
        return Some(format!("{} pods instead of {replicas}", pods.len()));
    }
    let is_too_high = |pod: &&Pod| i64::from(pod.name) >= replicas;
    if model.scope.set.is_some()
        && let Some(pod) = pods.iter().find(is_too_high)
    {
        return Some(format!("{pod:?} has no ordinal that is wanted"));
    }
    let kept = if facts.stable == Some(workload.template) {
        0
    } else {
        i64::from(workload.partition)
    };
    let updated = pods
        .iter()
        .filter(|pod| pod.rev == workload.template)
        .count() as i64;
    if updated < replicas - kept {
        return Some(format!("{updated} of {replicas} - {kept} pods are updated"));
    }
    let of_pods = |run: &&Run| run.id.pod.is_some();
    if let Some(run) = state.runs.now.iter().find(of_pods) {
        return Some(format!("{run:?} is left"));
    }
    let steps = &model.scope.steps[usize::from(workload.steps)];
    if !steps.is_empty() && facts.index != Some(steps.len() as u8) {
        return Some(format!("the rollout is at step {:?}", facts.index));
    }
    if workload.paused && facts.stable != Some(workload.template) {
        return Some("the rollout is paused".to_owned());
    }
    let is_left = workload.pause_note != 0
        || workload.retry_note != 0
        || (workload.promote_note != 0 && !facts.is_rolling())
        || workload.retry != 0
        || !workload.named.is_empty();
    is_left.then(|| format!("something is left of {workload:?}"))
}

/// What a user has to see and mend.
fn blockade(model: &Model, state: &State) -> Option<&'static str> {
    let workload = &state.workload.now;
    let has_failed = |run: &Run| run.phase == HookPhase::Failed;
    if workload.paused {
        Some("paused")
    } else if workload.by_apply && workload.pause_note != 0 {
        Some("paused by a manifest")
    } else if state.runs.now.iter().any(has_failed) {
        Some("a hook failed")
    } else if model.scope.broken == Some(workload.template)
        || model.scope.refused == Some(workload.template)
    {
        Some("the template is no good")
    } else {
        None
    }
}

//! Settling: users do nothing more, caches catch up, and kubelets, hooks and the operator continue. Then the
//! cluster must settle and match its spec, unless an obstacle is reported to the user. A plan for a settled
//! cluster writes nothing (invariant 8).

use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::api::{
    Actor, ConditionType, GameDeploymentStatus, HookPhase, UpdateStrategyType,
};
use gamekeeper_core::write;
use gamekeeper_core::write::DeletionReason;

use super::describe;
use super::explore::Settled;
use super::fingerprint::fingerprint;
use super::kubelet;
use super::model::{Model, Move, Violation, may_collect};
use super::scope::QuotaKind;
use super::sidecars;
use super::state::*;
use super::translate::View;

/// The number of moves after which a cluster counts as not settling.
const MAX_MOVES: usize = 400;

/// A cluster that does not settle.
#[derive(Debug)]
pub struct Unsettled {
    pub violation: Violation,
    pub moves: Vec<String>,
    pub last: String,
}

/// A step while settling: a move, or a jump of the clock.
enum FairMove {
    Move(Move),
    Wait(Time),
}

/// Runs until the cluster settles, or reaches a state in `settled`, and returns that state. If `is_favorable`, the
/// operator moves first, and hooks succeed; otherwise kubelets and hooks move first, and hooks fail.
pub fn settle(
    model: &Model,
    state: &State,
    is_favorable: bool,
    settled: &mut Settled,
) -> Result<State, Box<Unsettled>> {
    let mut start = state.clone();
    start.remaining = Remaining {
        user: 0,
        crashes: 0,
        breaks: 0,
        failures: if is_favorable { 0 } else { u8::MAX },
        ticks: 0,
    };
    let mut state = start.clone();
    let mut passed = Vec::new();
    let mut trace = Vec::new();
    let unsettled =
        |violation, trace: &[FairMove]| Box::new(unsettled_after(model, &start, trace, violation));
    for _ in 0..MAX_MOVES {
        let key = fingerprint(&state);
        if settled.contains(&key) {
            settled.extend(passed);
            return Ok(state);
        }
        passed.push(key);
        let Some(fair_move) = next(model, &state, is_favorable) else {
            check_settled(model, &state).map_err(|violation| unsettled(violation, &trace))?;
            settled.extend(passed);
            return Ok(state);
        };
        let after = apply(model, &state, &fair_move, start.remaining.failures);
        trace.push(fair_move);
        state = after.map_err(|violation| unsettled(violation, &trace))?;
    }
    let violation =
        Violation { rule: "settles", why: format!("not settled after {MAX_MOVES} moves") };
    Err(unsettled(violation, &trace))
}

fn apply(
    model: &Model,
    state: &State,
    fair_move: &FairMove,
    failures: u8,
) -> Result<State, Violation> {
    let mut next = match fair_move {
        FairMove::Move(next_move) => model.step(state, next_move)?,
        FairMove::Wait(until) => State { clock: *until, ..state.clone() },
    };
    next.remaining.failures = failures;
    Ok(next)
}

fn unsettled_after(
    model: &Model,
    start: &State,
    trace: &[FairMove],
    violation: Violation,
) -> Unsettled {
    let mut state = start.clone();
    let mut moves = Vec::new();
    for fair_move in trace {
        moves.push(match fair_move {
            FairMove::Move(next_move) => describe::describe(model, &state, next_move),
            FairMove::Wait(until) => format!("time passes until {until}"),
        });
        match apply(model, &state, fair_move, start.remaining.failures) {
            Ok(next) => state = next,
            Err(_) => break,
        }
    }
    Unsettled { violation, moves, last: format!("{state:?}") }
}

fn next(model: &Model, state: &State, is_favorable: bool) -> Option<FairMove> {
    let operator = || operator_move(model, state).or_else(|| sidecars::fair_move(model, state));
    let others = || {
        kubelet_move(model, state)
            .or_else(|| hook_move(model, state, is_favorable))
            .or_else(|| collector_move(state))
    };
    let is_busy = state.operator.reconcile.is_some() || !state.allotter.writes.is_empty();
    let next_move = if is_favorable || is_busy {
        operator().or_else(others)
    } else {
        others().or_else(operator)
    };
    next_move.map(FairMove::Move).or_else(|| wait(model, state))
}

fn operator_move(model: &Model, state: &State) -> Option<Move> {
    let mut moves = Vec::new();
    model.moves_of_operator(state, &mut moves);
    let is_fair = |next_move: &Move| match next_move {
        Move::Plan(caught_up) => *caught_up == [true; 4] && !is_denied_again(model, state),
        _ => *next_move != Move::Abandon,
    };
    moves.into_iter().find(is_fair)
}

/// What the operator's caches show once they have caught up.
fn current_view(model: &Model, state: &State) -> Option<View> {
    let mut current = state.clone();
    model.catch_up(&mut current, [true; 4]);
    model.view(&current)
}

/// Whether the next plan consists of deletions that were refused before, and are refused again.
fn is_denied_again(model: &Model, state: &State) -> bool {
    // This is asked of every state, and views are expensive.
    if !state.denied {
        return false;
    }
    let Some(view) = current_view(model, state) else {
        return false;
    };
    let planned = model.plan(&view);
    let Denied { updates, removals } = state.operator.denied;
    let was_denied = |write: &Write| match write {
        Write::DeletePod(_, DeletionReason::Update, _) => updates,
        Write::DeletePod(..) => removals,
        _ => false,
    };
    planned.status.is_none() && planned.before.iter().chain(&planned.after).all(was_denied)
}

fn collector_move(state: &State) -> Option<Move> {
    let guard = state.workload.now.guard;
    if guard.deletion == Some(Cascade::Orphan) {
        return Some(Move::Orphan(false));
    }
    let mut pods = state.pods.now.iter();
    let pod = pods.find(|pod| may_collect(state, pod))?;
    Some(Move::Collect(pod.uid, false))
}

fn kubelet_move(model: &Model, state: &State) -> Option<Move> {
    let mut pods = state.pods.now.iter();
    pods.find_map(|pod| {
        let moves = kubelet::moves(&model.scope, state, pod);
        Some(Move::Kubelet(pod.uid, *moves.first()?, false))
    })
}

/// The end of the next hook. If the hook of a guarded pod fails, it is run again until the deadline. Updates in place
/// have no deadline, so their hooks always succeed: otherwise the cluster would never settle.
fn hook_move(model: &Model, state: &State, is_favorable: bool) -> Option<Move> {
    let mut runs = state.runs.now.iter();
    let index = runs.position(|run| !run.phase.is_completed())?;
    let in_place = state.workload.now.strategy == UpdateStrategyType::InplaceUpdate;
    let has_target = state.runs.now[index].id.target.is_some();
    let is_repeated_forever = model.scope.protected && in_place && has_target;
    let phase =
        if is_favorable || is_repeated_forever { HookPhase::Successful } else { HookPhase::Failed };
    Some(Move::Hook(index, phase, false))
}

/// Lets time pass until the operator's next reconcile is due.
fn wait(model: &Model, state: &State) -> Option<FairMove> {
    if state.operator.refused.is_some() {
        return None; // The operator repeats the dry run, which changes nothing.
    }
    let wake = model.plan(&current_view(model, state)?).wake;
    let wakes = wake.into_iter().chain(sidecars::wake(model, state));
    let wake = wakes.min();
    wake.filter(|at| *at > state.clock).map(FairMove::Wait)
}

fn not_settled(why: String) -> Result<(), Violation> {
    Err(Violation { rule: "settles", why })
}

/// Checks a settled cluster.
fn check_settled(model: &Model, state: &State) -> Result<(), Violation> {
    let guard = state.workload.now.guard;
    if guard.deleted {
        return match state.pods.now.iter().find(|pod| pod.guarded) {
            Some(pod) => not_settled(format!("{pod:?} is guarded, but its workload is deleted")),
            None => Ok(()),
        };
    }
    if guard.deletion.is_some() {
        return not_settled(format!("the workload is never deleted: {guard:?}"));
    }
    let status = settled_status(model, state)?;
    if let Some(why) = leftovers(model, state).or_else(|| unmet_request(model, state)) {
        return not_settled(why);
    }
    let unmet = unmet(model, state);
    let is_ready = status.true_condition(ConditionType::Ready).is_some();
    sidecars::check_settled(model, state)?;
    // That is reported even if no other pod is to be patched.
    let mut pods = state.pods.now.iter();
    let was_restarted = pods.any(Pod::was_restarted_by_hot_patch);
    match (unmet, obstacle(model, state)) {
        (None, _) if !is_ready && !was_restarted => {
            not_settled(format!("complete, but not Ready: {status:?}"))
        }
        (None, _) => Ok(()),
        (Some(why), _) if is_ready => not_settled(format!("Ready is True, but {why}")),
        (Some(why), Some(_)) if !tells_why(model, state) => {
            not_settled(format!("{why}, and the status names nobody who acts"))
        }
        (Some(_), Some(_)) => Ok(()),
        (Some(why), None) => not_settled(why),
    }
}

/// The status of a settled cluster. Fails if a plan for it still writes anything.
fn settled_status(model: &Model, state: &State) -> Result<GameDeploymentStatus, Violation> {
    let Some(view) = current_view(model, state) else {
        return Ok(GameDeploymentStatus::default());
    };
    let mut gd = model.translator.workload(&view.workload, &view.pods);
    let world = model.translator.world(&view);
    for _ in 0..2 {
        let plan = model.decide(&gd, &view.workload, world.clone());
        if plan.writes.is_empty() && plan.status.is_none() {
            return Ok(gd.status.unwrap_or_default());
        }
        gd.status = plan.status.or(gd.status);
    }
    let plan = model.decide(&gd, &view.workload, world);
    let is_vain = |it: &write::Write| match it.change() {
        write::Change::DryRun { .. } => true,
        write::Change::DeletePod(_) => state.denied,
        _ => false,
    };
    if plan.status.is_none() && plan.writes.iter().all(is_vain) {
        return Ok(gd.status.unwrap_or_default());
    }
    Err(Violation {
        rule: "8: settled",
        why: format!("settled, but plans {:?} {:?}", plan.writes, plan.status),
    })
}

/// Whether the status of a settled cluster tells what it waits for: it does not go on by itself.
fn tells_why(model: &Model, state: &State) -> bool {
    let Some(view) = current_view(model, state) else {
        return true;
    };
    let gd = model.translator.workload(&view.workload, &view.pods);
    let plan = model.explain(&gd, &view.workload, model.translator.world(&view));
    let causes = plan.status.into_iter().flat_map(|status| status.causes);
    causes.into_iter().any(|cause| cause.actor != Actor::Nobody)
}

/// Leftovers, which must not exist even if there is an obstacle.
fn leftovers(model: &Model, state: &State) -> Option<String> {
    let is_step_hook = |run: &&Run| run.id.point == HookPoint::Step;
    if !model.translator.facts(state.workload.now.status).is_rolling()
        && let Some(run) = state.runs.now.iter().find(is_step_hook)
    {
        return Some(format!("{run:?} is left"));
    }
    let has_run = |pod: &Pod| {
        let mut runs = state.runs.now.iter();
        runs.any(|run| run.id.point.marks_pods() && run.id.pod == Some(pod.uid))
    };
    let is_closed = |pod: &Pod| matches!(pod.gate, Gate::Closed(_)) && !pod.is_patched();
    let workload = &state.workload.now;
    let is_recorded = |pod: &Pod| {
        pod.waiting_since.is_some_and(|since| workload.waits.contains(&(pod.uid, since)))
    };
    let has_lost_time = |pod: &Pod| pod.waiting_since.is_some() && !is_recorded(pod);
    let is_excess = state.pods.now.len() > usize::from(workload.replicas);
    let must_go =
        |pod: &Pod| is_excess || pod.move_requested.is_some() || pod.rev != workload.template;
    // A guarded pod whose hook was removed waits for its deadline, even while too few others are available.
    let waits_for_release =
        |pod: &Pod| hook_was_removed(state) && pod.guarded && is_recorded(pod) && must_go(pod);
    let has_no_reason = |pod: &Pod| pod.marked && !has_run(pod) && !waits_for_release(pod);
    let is_left = |pod: &&Pod| is_closed(pod) || has_lost_time(pod) || has_no_reason(pod);
    let mut pods = state.pods.now.iter().filter(|pod| !pod.terminating);
    let pod = pods.find(is_left)?;
    Some(format!("{pod:?} has a closed gate or an annotation without a reason"))
}

/// A requested replacement that has not happened although nothing but a pause is in its way. A pause holds back
/// updates, but not replacements.
fn unmet_request(model: &Model, state: &State) -> Option<String> {
    let workload = &state.workload.now;
    let mut pods = state.pods.now.iter();
    let is_requested =
        |pod: &&Pod| pod.move_requested.is_some() || workload.pods_to_delete.contains(&pod.name);
    let pod = pods.find(is_requested)?;
    let is_only_paused = obstacle(model, state) == Some("paused");
    is_only_paused.then(|| format!("{pod:?} is not replaced during a pause"))
}

/// How the cluster differs from the spec.
fn unmet(model: &Model, state: &State) -> Option<String> {
    let workload = &state.workload.now;
    let facts = model.translator.facts(workload.status);
    let pods = &state.pods.now;
    let is_marked = |pod: &Pod| pod.marked && !sidecars::has_update_run(state, pod);
    if let Some(pod) = pods.iter().find(|it| it.ready.is_none() || is_marked(it)) {
        return Some(format!("{pod:?} is not ready, or marked for deletion"));
    }
    let guarded = workload.is_guarded(&model.scope);
    let is_guard_left = !guarded && (state.budget.is_some() || workload.guard.finalizer);
    let should_be_guarded = |pod: &Pod| guarded && !pod.released;
    let has_wrong_label = |pod: &Pod| pod.guarded != should_be_guarded(pod);
    let is_wrong = is_guard_left || pods.iter().any(has_wrong_label);
    if is_wrong && !hook_was_removed(state) {
        return Some(format!("guarded should be {guarded}: {:?}", workload.guard));
    }
    if let Some(pod) = pods.iter().find(|pod| pod.move_requested.is_some()) {
        return Some(format!("{pod:?} is not replaced"));
    }
    let must_leave = model.scope.moves_off_nodes && guarded && state.node.is_going();
    if let Some(pod) = pods.iter().find(|pod| must_leave && pod.on_node) {
        return Some(format!("{pod:?} does not leave its node"));
    }
    let replicas = i64::from(workload.replicas);
    if pods.len() as i64 != replicas {
        return Some(format!("{} pods instead of {replicas}", pods.len()));
    }
    let ordinals = workload.ordinals(replicas);
    let is_surplus = |pod: &&Pod| !ordinals.contains(&pod.name);
    if model.scope.stateful_set.is_some()
        && let Some(pod) = pods.iter().find(is_surplus)
    {
        return Some(format!("{pod:?} has none of the ordinals {ordinals:?}"));
    }
    let has_steps = !model.scope.steps[usize::from(workload.steps)].is_empty();
    let kept = if has_steps || facts.stable == Some(workload.template) {
        0
    } else {
        i64::from(workload.partition)
    };
    let updated = pods.iter().filter(|pod| pod.rev == workload.template).count() as i64;
    let is_automatic = workload.strategy != UpdateStrategyType::OnDelete;
    if is_automatic && updated < replicas - kept {
        return Some(format!("{updated} of {replicas} - {kept} pods are updated"));
    }
    // A hook that must succeed before sidecars are updated does not keep a workload from being complete.
    let is_sidecar_hook = |run: &Run| run.id.sidecars.is_some() && run.id.point.marks_pods();
    let is_pod_hook = |run: &&Run| run.id.pod.is_some() && !is_sidecar_hook(run);
    if let Some(run) = state.runs.now.iter().find(is_pod_hook) {
        return Some(format!("{run:?} is left"));
    }
    let steps = &model.scope.steps[usize::from(workload.steps)];
    if !steps.is_empty() && facts.index != Some(steps.len() as u8) {
        return Some(format!("the rollout is at step {:?}", facts.index));
    }
    if workload.paused && facts.stable != Some(workload.template) {
        return Some("the rollout is paused".to_owned());
    }
    let has_request = workload.pause_annotation != 0
        || workload.retry_annotation != 0
        || (workload.promote_annotation != 0 && !facts.is_rolling())
        || workload.retry != 0
        || !workload.pods_to_delete.is_empty();
    has_request.then(|| format!("requests by a user are left behind: {workload:?}"))
}

/// Whether the PreDelete hook was removed while pods were guarded: they keep their guard until a user releases them.
fn hook_was_removed(state: &State) -> bool {
    let workload = &state.workload.now;
    let mut pods = state.pods.now.iter();
    workload.guard.wanted && !workload.hooked && pods.any(|pod| pod.guarded)
}

/// The obstacle that a user has to remove.
fn obstacle(model: &Model, state: &State) -> Option<&'static str> {
    let workload = &state.workload.now;
    let has_failed = |run: &Run| run.phase == HookPhase::Failed;
    if workload.by_apply && workload.pause_annotation != 0 {
        Some("paused by a manifest")
    } else if state.denied {
        Some("deletions are refused")
    } else if state.node == Node::Silent {
        Some("a node is not reachable")
    } else if state.runs.now.iter().any(has_failed) {
        Some("a hook failed")
    } else if hook_was_removed(state) {
        Some("a hook was removed")
    } else if model.scope.broken == Some(workload.template)
        || model.scope.refused == Some(workload.template)
        || model
            .scope
            .quota
            .is_some_and(|it| it.kind != QuotaKind::Pods && it.rev == workload.template)
    {
        Some("the template is broken or refused")
    } else if state.pods.now.iter().any(Pod::was_restarted_by_hot_patch) {
        Some("a hot patch restarted a pod")
    } else if workload.paused {
        Some("paused")
    } else {
        sidecars::obstacle(model, state)
    }
}

//! Changes by users.

use super::model::Model;
use super::pauses;
use super::scope::User;
use super::state::*;

/// Whether a change would have an effect.
pub fn is_change(what: User, state: &State) -> bool {
    let workload = &state.workload.now;
    if workload.guard.gone {
        return false;
    }
    match what {
        User::Scale(replicas) => workload.replicas != replicas,
        User::Template(rev) => workload.template != rev,
        User::Pause => !workload.paused,
        User::Resume | User::Apply => workload.paused,
        User::Promote => workload.promote_annotation == 0,
        User::Retry(point) => workload.retry & retry_bit(point) == 0,
        User::Hook(version) => workload.hook != version,
        User::Unhook => workload.hooked,
        User::Partition(kept) => workload.partition != kept,
        User::Steps(list) => workload.steps != list,
        User::Name(name) => !workload.named.contains(&name) && exists(state, name),
        User::Reserve(name) => !workload.is_reserved(name),
        User::Unreserve(name) => workload.is_reserved(name),
        User::Guard(wanted) => workload.guard.wanted != wanted,
        User::DeleteWorkload(_) => workload.guard.deletion.is_none(),
        User::Move(name) => exists(state, name) && !is_moving(state, name),
        User::Delete(name) => exists(state, name) && !is_refused(state, name),
        User::Recreate => workload.status != 0,
    }
}

/// Whether the policy refuses to let another client delete a pod.
fn is_refused(state: &State, name: Name) -> bool {
    let mut pods = state.pods.now.iter();
    pods.any(|pod| pod.name == name && pod.guarded && pod.up && !pod.orphan)
}

fn is_moving(state: &State, name: Name) -> bool {
    let mut pods = state.pods.now.iter();
    pods.any(|pod| pod.name == name && pod.move_requested)
}

fn exists(state: &State, name: Name) -> bool {
    let mut pods = state.pods.now.iter();
    pods.any(|pod| pod.name == name && !pod.terminating)
}

/// Makes a change.
pub fn act(model: &Model, state: &mut State, what: User, seen_before: bool) {
    let scope = &model.scope;
    let is_over = pauses::is_marked_over(model, state.workload.now.pause_annotation);
    if let User::Delete(name) = what {
        let pods = state.pods.change(scope.lags.pods, seen_before);
        for pod in pods.iter_mut().filter(|pod| pod.name == name) {
            pod.terminating = true;
            pod.ready = None;
        }
        return;
    }
    if let User::Move(name) = what {
        let pods = state.pods.change(scope.lags.pods, seen_before);
        for pod in pods.iter_mut().filter(|pod| pod.name == name) {
            pod.move_requested = true;
        }
        return;
    }
    if let (User::Template(_) | User::Steps(_) | User::Recreate, Some(pause)) =
        (what, &mut state.memory.pause)
    {
        pause.outdated = true;
    }
    let workload = state.workload.change(scope.lags.workload, seen_before);
    // An annotation alone does not change the generation.
    workload.generation += u8::from(what != User::Promote || workload.paused);
    if what == User::Promote {
        let annotation = model
            .translator
            .promotion(workload.template, workload.steps);
        workload.promote_annotation = annotation;
    }
    match what {
        User::Scale(replicas) => {
            workload.replicas = replicas;
            state.memory.surge = 0;
        }
        User::Template(rev) => workload.template = rev,
        User::Pause => {
            workload.paused = true;
            workload.by_apply = false;
            // If the user pauses again before the operator has observed the resume, the operator's own pause continues.
            let is_own = workload.pause_annotation != 0 && !is_over;
            state.memory.user_paused = !is_own;
            if let Some(pause) = state.memory.pause.as_mut().filter(|_| is_own) {
                pause.resumed = false;
            }
        }
        User::Resume | User::Apply | User::Promote => {
            let by_apply = what == User::Apply;
            workload.paused = false;
            workload.by_apply = by_apply;
            state.memory.user_paused = false;
            if let Some(pause) = state.memory.pause.as_mut().filter(|_| !by_apply) {
                pause.resumed = true;
            }
        }
        User::Retry(point) => workload.retry |= retry_bit(point),
        User::Hook(version) => workload.hook = version,
        User::Unhook => workload.hooked = false,
        User::Partition(kept) => workload.partition = kept,
        User::Steps(list) => workload.steps = list,
        User::Name(name) => workload.named.push(name),
        User::Reserve(name) | User::Unreserve(name) => {
            workload.reserved ^= 1 << name;
            state.memory.surge = 0;
        }
        User::Recreate => {
            state.memory.lost = workload.status;
            state.memory.user_paused = false;
            workload.status = 0;
            workload.paused = false;
            workload.pause_annotation = 0;
            workload.retry_annotation = 0;
            workload.promote_annotation = 0;
        }
        User::Guard(wanted) => workload.guard.wanted = wanted,
        User::DeleteWorkload(cascade) => {
            workload.guard.deletion = Some(cascade);
            workload.guard.gone = workload.guard.is_over();
        }
        User::Delete(_) | User::Move(_) => {}
    }
}

//! What users do.

use super::model::Model;
use super::pauses;
use super::scope::User;
use super::state::*;

/// Whether it would change anything.
pub fn is_change(what: User, state: &State) -> bool {
    let workload = &state.workload.now;
    match what {
        User::Scale(replicas) => workload.replicas != replicas,
        User::Template(rev) => workload.template != rev,
        User::Pause => !workload.paused,
        User::Resume | User::Apply => workload.paused,
        User::Promote => workload.promote_note == 0,
        User::Retry(point) => workload.retry & retry_bit(point) == 0,
        User::Hook(version) => workload.hook != version,
        User::Unhook => workload.hooked,
        User::Partition(kept) => workload.partition != kept,
        User::Steps(list) => workload.steps != list,
        User::Name(name) => !workload.named.contains(&name) && is_there(state, name),
        User::Delete(name) => is_there(state, name),
        User::Renew => workload.status != 0,
    }
}

fn is_there(state: &State, name: Name) -> bool {
    let mut pods = state.pods.now.iter();
    pods.any(|pod| pod.name == name && !pod.terminating)
}

/// Does it.
pub fn act(model: &Model, state: &mut State, what: User, seen_before: bool) {
    let scope = &model.scope;
    let is_over = pauses::is_noted_over(model, state.workload.now.pause_note);
    if let User::Delete(name) = what {
        let pods = state.pods.change(scope.lags.pods, seen_before);
        for pod in pods.iter_mut().filter(|pod| pod.name == name) {
            pod.terminating = true;
            pod.ready = None;
        }
        return;
    }
    if let (User::Template(_) | User::Steps(_) | User::Renew, Some(pause)) =
        (what, &mut state.memory.pause)
    {
        pause.outdated = true;
    }
    let workload = state.workload.change(scope.lags.workload, seen_before);
    // A note alone is no change of the spec.
    workload.generation += u8::from(what != User::Promote || workload.paused);
    if what == User::Promote {
        let note = model
            .translator
            .promotion(workload.template, workload.steps);
        workload.promote_note = note;
    }
    match what {
        User::Scale(replicas) => workload.replicas = replicas,
        User::Template(rev) => workload.template = rev,
        User::Pause => {
            workload.paused = true;
            workload.by_apply = false;
            // Set back before the operator has seen it lifted, its own pause just goes on.
            let is_own = workload.pause_note != 0 && !is_over;
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
        User::Renew => {
            state.memory.lost = workload.status;
            state.memory.user_paused = false;
            workload.status = 0;
            workload.paused = false;
            workload.pause_note = 0;
            workload.retry_note = 0;
            workload.promote_note = 0;
        }
        User::Delete(_) => {}
    }
}

//! Changes by users.

use gamekeeper_core::observed::PodPhase;

use super::model::Model;
use super::pauses;
use super::scope::User;
use super::sidecars;
use super::state::*;

/// Whether a change would have an effect.
pub fn has_effect(change: User, state: &State) -> bool {
    let workload = &state.workload.now;
    if workload.guard.deleted {
        return false;
    }
    match change {
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
        User::PodToDelete(name) => !workload.pods_to_delete.contains(&name) && exists(state, name),
        User::Reserve(name) => !workload.is_reserved(name),
        User::Unreserve(name) => workload.is_reserved(name),
        User::Strategy(strategy) => workload.strategy != strategy,
        User::Guard(wanted) => workload.guard.wanted != wanted,
        User::DeleteWorkload(_) => workload.guard.deletion.is_none(),
        User::Move(name) => exists(state, name) && !user_requested_move(state, name),
        User::Mark(name, marked) => is_active(state, name, |pod| pod.marked != marked),
        User::Since(name, since) => is_active(state, name, |pod| pod.waiting_since != since),
        User::Delete(name) => exists(state, name) && !is_deletion_refused(state, name),
        User::Evict(name) => exists(state, name) && may_be_evicted(state, name),
        User::Release(name) => {
            let mut pods = state.pods.now.iter();
            pods.any(|pod| pod.name == name && pod.guarded && !pod.terminating)
        }
        // A lost node does not become merely silent; it must come back first.
        User::Node(node) => state.node != node && (state.node, node) != (Node::Lost, Node::Silent),
        User::Deny(denied) => state.denied != denied,
        User::Recreate => workload.status != 0,
        User::Sidecars(change) => sidecars::has_effect(change, &state.sidecar_set.now),
    }
}

/// Whether the policy forbids other clients to delete the pod with this name.
fn is_deletion_refused(state: &State, name: Name) -> bool {
    let mut pods = state.pods.now.iter();
    pods.any(|pod| pod.name == name && is_kept_by_policy(pod))
}

/// Whether the policy forbids other clients to delete this pod.
pub fn is_kept_by_policy(pod: &Pod) -> bool {
    pod.guarded && pod.up && !pod.orphan
}

/// Whether the API server would evict the pod with this name. No budget protects a pod in phase Pending, and the model
/// does not evict such pods.
fn may_be_evicted(state: &State, name: Name) -> bool {
    let pods = &state.pods.now;
    let found = pods.iter().find(|pod| pod.name == name);
    let Some(pod) = found.filter(|pod| pod.phase != PodPhase::Pending) else {
        return false;
    };
    let Some(budget) = state.budget.filter(|_| pod.guarded) else {
        return true;
    };
    if pod.ready.is_none() && budget.unready_evictable {
        return true;
    }
    // The disruption controller expects as many pods as the workload has replicas.
    let healthy = pods.iter().filter(|it| it.guarded && it.ready.is_some());
    let expected = usize::from(state.workload.now.replicas);
    budget.max_unavailable.is_some_and(|max| healthy.count() + usize::from(max) > expected)
}

fn user_requested_move(state: &State, name: Name) -> bool {
    let mut pods = state.pods.now.iter();
    pods.any(|pod| pod.name == name && pod.move_requested == Some(Requester::User))
}

fn exists(state: &State, name: Name) -> bool {
    is_active(state, name, |_| true)
}

fn is_active(state: &State, name: Name, is_so: impl Fn(&Pod) -> bool) -> bool {
    let mut pods = state.pods.now.iter();
    pods.any(|pod| pod.name == name && !pod.terminating && is_so(pod))
}

/// What Kubernetes does with a pod whose node does not report: it marks the pod as not ready, and deletes it after
/// some time, unless the policy refuses the deletion.
fn fall_silent(pod: &mut Pod, node: Node) {
    if !node.is_silent() {
        return;
    }
    pod.unreported = true;
    pod.ready = None;
    if node == Node::Lost {
        pod.disrupted = true;
        pod.terminating |= !is_kept_by_policy(pod);
    }
}

/// Makes a change.
pub fn act(model: &Model, state: &mut State, change: User, caught_up: bool) {
    let scope = &model.scope;
    let is_pause_over = pauses::is_marked_over(model, state.workload.now.pause_annotation);
    if let User::Node(node) = change {
        let pods = state.pods.change(scope.lags.pods, caught_up);
        state.node = node;
        pods.iter_mut().filter(|pod| pod.on_node).for_each(|pod| fall_silent(pod, node));
        return;
    }
    if let User::Deny(denied) = change {
        state.denied = denied;
        return;
    }
    if let User::Release(name) = change {
        let pods = state.pods.change(scope.lags.pods, caught_up);
        for pod in pods.iter_mut().filter(|pod| pod.name == name) {
            (pod.guarded, pod.released) = (false, true);
            // The policy no longer refuses what Kubernetes does with pods on lost nodes.
            if pod.on_node {
                fall_silent(pod, state.node);
            }
        }
        return;
    }
    if let User::Delete(name) | User::Evict(name) = change {
        let pods = state.pods.change(scope.lags.pods, caught_up);
        for pod in pods.iter_mut().filter(|pod| pod.name == name) {
            pod.terminating = true;
            pod.ready = None;
        }
        return;
    }
    if let User::Move(name) = change {
        let pods = state.pods.change(scope.lags.pods, caught_up);
        for pod in pods.iter_mut().filter(|pod| pod.name == name) {
            pod.move_requested = Some(Requester::User);
        }
        return;
    }
    if let User::Mark(name, _) | User::Since(name, _) = change {
        let pods = state.pods.change(scope.lags.pods, caught_up);
        for pod in pods.iter_mut().filter(|pod| pod.name == name) {
            match change {
                User::Mark(_, marked) => pod.marked = marked,
                User::Since(_, since) => pod.waiting_since = since,
                _ => {}
            }
        }
        return;
    }
    if let User::Sidecars(change) = change {
        return sidecars::change(model, state, change);
    }
    if let (User::Template(_) | User::Steps(_) | User::Recreate, Some(pause)) =
        (change, &mut state.memory.pause)
    {
        pause.outdated = true;
    }
    let workload = state.workload.change(scope.lags.workload, caught_up);
    // An annotation alone does not change the generation.
    workload.generation += u8::from(change != User::Promote || workload.paused);
    if change == User::Promote {
        let annotation = model.translator.promotion(workload.template, workload.steps);
        workload.promote_annotation = annotation;
    }
    match change {
        User::Scale(replicas) => {
            workload.replicas = replicas;
            state.memory.surge = 0;
        }
        User::Template(rev) => workload.template = rev,
        User::Pause => {
            workload.paused = true;
            workload.by_apply = false;
            // If the user pauses again before the operator has observed the resume, the operator's own pause
            // continues.
            let is_own_pause = workload.pause_annotation != 0 && !is_pause_over;
            state.memory.user_paused = !is_own_pause;
            if let Some(pause) = state.memory.pause.as_mut().filter(|_| is_own_pause) {
                pause.resumed = false;
            }
        }
        User::Resume | User::Apply | User::Promote => {
            let by_apply = change == User::Apply;
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
        User::PodToDelete(name) => workload.pods_to_delete.push(name),
        User::Reserve(name) | User::Unreserve(name) => {
            workload.reserved ^= 1 << name;
            state.memory.surge = 0;
        }
        User::Recreate => {
            state.memory.lost = workload.status;
            state.memory.user_paused = false;
            workload.status = 0;
            workload.waits.clear();
            workload.paused = false;
            workload.pause_annotation = 0;
            workload.retry_annotation = 0;
            workload.promote_annotation = 0;
        }
        User::Strategy(strategy) => workload.strategy = strategy,
        User::Guard(wanted) => workload.guard.wanted = wanted,
        User::DeleteWorkload(cascade) => {
            workload.guard.deletion = Some(cascade);
            workload.guard.deleted = workload.guard.is_deletion_complete();
        }
        User::Delete(_)
        | User::Evict(_)
        | User::Move(_)
        | User::Mark(..)
        | User::Since(..)
        | User::Release(_)
        | User::Node(_)
        | User::Deny(_)
        | User::Sidecars(_) => {}
    }
}

//! Writes to the API server: their preconditions and effects.

use gamekeeper_core::observed::PodPhase;
use gamekeeper_core::write::DeletionReason;

use super::model::Model;
use super::pauses;
use super::scope::QuotaKind;
use super::state::*;

/// Whether the API server accepts a write. After a refusal, the operator plans again.
pub fn takes_effect(state: &State, reconcile: &Reconcile, write: &Write) -> bool {
    let exists = |uid: Uid| state.pod(uid).is_some();
    match write {
        // The workload's resourceVersion is a precondition.
        Write::Workload(_) => state.workload.now == reconcile.planned,
        Write::CreateRevision(rev) => !state.revisions.now.contains(rev),
        Write::RenumberRevision(rev) | Write::DeleteRevision(rev) => {
            state.revisions.now.contains(rev)
        }
        Write::DryRun(_) => true,
        Write::CreatePod { ordinal, .. } => {
            let mut pods = state.pods.now.iter();
            ordinal.is_none_or(|ordinal| !pods.any(|pod| pod.name == ordinal))
        }
        Write::DeletePod(uid, _, seen) => {
            let is_deletable = |pod: &Pod| !pod.terminating && seen.allows(pod);
            !state.denied && state.pod(*uid).is_some_and(is_deletable)
        }
        Write::Mark(uid, _) | Write::Unmark(uid) | Write::OpenGate(uid) => exists(*uid),
        Write::CloseGate(uid, .., seen) | Write::Finish(uid, _, seen) => {
            state.pod(*uid).is_some_and(|pod| seen.allows(pod))
        }
        Write::Label(uid, _) | Write::RequestMove(uid, _) => exists(*uid),
        Write::Budget(_) => true,
        // A quorum GET of the workload precedes the adoption.
        Write::Adopt(uid) => exists(*uid) && state.workload.now.guard.deletion.is_none(),
        Write::CreateRun(id) => !state.runs.now.iter().any(|run| run.id.has_same_name(id)),
        Write::DeleteRun(id) => state.runs.now.iter().any(|run| run.id == *id),
        Write::Patch(patch) => state.pod(patch.pod).is_some_and(|pod| {
            let has_old_image = |(container, change): (&Option<Container>, &Option<(Rev, Rev)>)| {
                let from = change.map(|(from, _)| from);
                from.is_none() || from == container.map(|it| it.image)
            };
            pod.rev == patch.from_rev
                && patch.token.is_none_or(|token| pod.mark == Some(token))
                && pod.containers.iter().zip(&patch.images).all(has_old_image)
                && patch.unchanged.allows(pod)
        }),
    }
}

/// Applies a write.
pub fn apply(model: &Model, state: &mut State, reconcile: &Reconcile, write: &Write) {
    let lags = model.scope.lags;
    match write {
        Write::Workload(change) => change_workload(model, state, reconcile, change),
        Write::CreateRevision(rev) => state.revisions.write(lags.revisions).push(*rev),
        Write::RenumberRevision(rev) => {
            let revisions = state.revisions.write(lags.revisions);
            revisions.retain(|it| it != rev);
            revisions.push(*rev);
        }
        Write::DeleteRevision(rev) => state.revisions.write(lags.revisions).retain(|it| it != rev),
        Write::DryRun(rev) => record_dry_run(model, state, *rev),
        Write::CreatePod { .. } => create_pod(model, state, reconcile, write),
        Write::CreateRun(id) => state.runs.write(lags.runs).push(Run {
            id: id.clone(),
            phase: gamekeeper_core::api::HookPhase::Pending,
            finished: 0,
        }),
        Write::DeleteRun(id) => state.runs.write(lags.runs).retain(|run| run.id != *id),
        Write::DeletePod(uid, reason, _) => {
            if let Some(refused) = &mut state.operator.refused
                && refused.trial == Trial::Untried
                && *reason == DeletionReason::Update
            {
                refused.trial = Trial::Awaited;
            }
            change_pod(model, state, *uid, write);
        }
        Write::Mark(uid, _)
        | Write::Unmark(uid)
        | Write::OpenGate(uid)
        | Write::CloseGate(uid, ..)
        | Write::Finish(uid, ..)
        | Write::Adopt(uid)
        | Write::RequestMove(uid, _)
        | Write::Label(uid, _) => change_pod(model, state, *uid, write),
        Write::Budget(budget) => {
            state.budget = *budget;
            state.operator.budget = Some(budget.is_some());
        }
        Write::Patch(patch) => change_pod(model, state, patch.pod, write),
    }
}

fn change_workload(
    model: &Model,
    state: &mut State,
    reconcile: &Reconcile,
    change: &WorkloadChange,
) {
    pauses::record_pause(model, state, reconcile, change);
    let workload = state.workload.write(model.scope.lags.workload);
    let before = workload.clone();
    if let Some(paused) = change.paused {
        workload.paused = paused;
        workload.by_apply = false;
    }
    workload.pause_annotation = change.pause_annotation.unwrap_or(workload.pause_annotation);
    workload.retry_annotation = change.retry_annotation.unwrap_or(workload.retry_annotation);
    workload.promote_annotation = change.promote_annotation.unwrap_or(workload.promote_annotation);
    workload.retry &= !change.retry_off;
    if let Some(pods_to_delete) = &change.pods_to_delete {
        workload.pods_to_delete.clone_from(pods_to_delete);
    }
    if let Some(finalizer) = change.finalizer {
        workload.guard.finalizer = finalizer;
        workload.guard.deleted = workload.guard.is_deletion_complete();
    }
    let is_spec_changed = workload.paused != before.paused
        || workload.retry != before.retry
        || workload.pods_to_delete != before.pods_to_delete;
    workload.generation += u8::from(is_spec_changed);
}

fn record_dry_run(model: &Model, state: &mut State, rev: Rev) {
    match refusal(model, state, rev) {
        Some(full) => record_refusal(state, rev, full, |trial| trial),
        None => record_acceptance(state, rev),
    }
}

/// Whether the API server refuses a pod of this revision, and if so, whether because a quota is full.
fn refusal(model: &Model, state: &State, rev: Rev) -> Option<bool> {
    if model.scope.refused == Some(rev) {
        return Some(false);
    }
    let quota = model.scope.quota.filter(|quota| quota.rev == rev)?;
    let pods = state.pods.now.iter().filter(|pod| !pod.terminating);
    let used: u8 = pods.map(|pod| quota.amount(pod.rev)).sum();
    let is_full = used + quota.amount(rev) > state.workload.now.replicas;
    match quota.kind {
        QuotaKind::Scoped => Some(true),
        _ if is_full => Some(true),
        QuotaKind::Second => Some(false),
        QuotaKind::Pods | QuotaKind::Twice => None,
    }
}

fn record_refusal(state: &mut State, rev: Rev, full: bool, next: impl Fn(Trial) -> Trial) {
    let before = state.operator.refused.filter(|it| it.rev == rev);
    let trial = next(before.map(|it| it.trial).unwrap_or_default());
    state.operator.accepted &= !(1 << rev);
    state.operator.refused = Some(Refused { rev, at: state.clock, full, trial });
}

fn record_acceptance(state: &mut State, rev: Rev) {
    state.operator.accepted |= 1 << rev;
    state.operator.refused = state.operator.refused.filter(|it| it.rev != rev);
}

fn create_pod(model: &Model, state: &mut State, reconcile: &Reconcile, write: &Write) {
    let &Write::CreatePod { rev, gate, ordinal, index, sidecar } = write else {
        return;
    };
    if let Some(full) = refusal(model, state, rev) {
        // The quota no longer counts the pod that was given up.
        let failed = |trial| match trial {
            Trial::Awaited => Trial::Failed,
            other => other,
        };
        return record_refusal(state, rev, full, failed);
    }
    record_acceptance(state, rev);
    let guarded = reconcile.planned.is_guarded(&model.scope);
    let uid = next_uid(state, reconcile);
    let name = ordinal.unwrap_or_else(|| next_name(state));
    remember_surge(state, &reconcile.planned, ordinal);
    state.pods.write(model.scope.lags.pods).push(Pod {
        uid,
        name,
        rev,
        containers: std::array::from_fn(|index| {
            let image = match index {
                SIDECAR => sidecar,
                _ => (index < model.scope.containers).then(|| model.scope.image(rev, index)),
            };
            image.map(|image| Container { image, runs: image, restarts: 0 })
        }),
        observed: true,
        phase: PodPhase::Pending,
        up: false,
        healthy: false,
        ready: None,
        terminating: false,
        orphan: false,
        guarded,
        released: false,
        move_requested: None,
        on_node: false,
        unreported: false,
        disrupted: false,
        waiting_since: None,
        marked: false,
        hot: false,
        gate: if gate { Gate::Unset } else { Gate::Absent },
        index,
        record: None,
        mark: sidecar.map(Mark::new),
    });
}

/// Remembers whether the pod with this ordinal was created as a surge pod.
fn remember_surge(state: &mut State, planned: &Workload, ordinal: Option<Name>) {
    let Some(ordinal) = ordinal else {
        return;
    };
    let regular = planned.ordinals(i64::from(planned.replicas));
    let bit = 1 << ordinal;
    match regular.contains(&ordinal) {
        true => state.memory.surge &= !bit,
        false => state.memory.surge |= bit,
    }
}

/// The uid of a new pod: above those of all pods that the state still mentions.
fn next_uid(state: &State, reconcile: &Reconcile) -> Uid {
    let seen = match &state.pods.seen {
        Seen::Before(pods) => pods.iter(),
        _ => [].iter(),
    };
    let allotter_pods = state.pods_of_allotter().iter();
    let pods = state.pods.now.iter().chain(seen).chain(allotter_pods);
    let written_uids = state.allotter.writes.iter().map(|write| write.pod);
    let pods = pods.map(|pod| pod.uid).chain(written_uids);
    let seen = match &state.runs.seen {
        Seen::Before(runs) => runs.iter(),
        _ => [].iter(),
    };
    let runs = state.runs.now.iter().chain(seen);
    let highest = pods.chain(runs.filter_map(|run| run.id.pod)).max();
    let above_ready = (u32::BITS - reconcile.seen_ready.leading_zeros()) as Uid;
    highest.map_or(0, |uid| uid + 1).max(above_ready)
}

/// The name of a new pod: above those of all pods that the state still mentions.
fn next_name(state: &State) -> Name {
    let seen = match &state.pods.seen {
        Seen::Before(pods) => pods.iter(),
        _ => [].iter(),
    };
    let allotter_pods = state.pods_of_allotter().iter();
    let pods = state.pods.now.iter().chain(seen).chain(allotter_pods);
    let pods = pods.map(|pod| pod.name);
    let runs = state.runs.now.iter().filter(|run| run.id.pod.is_some());
    let runs = runs.map(|run| run.id.name);
    let pods_to_delete = state.workload.now.pods_to_delete.iter().copied();
    pods.chain(runs).chain(pods_to_delete).max().map_or(0, |name| name + 1)
}

fn change_pod(model: &Model, state: &mut State, uid: Uid, write: &Write) {
    let now = state.clock;
    let pods = state.pods.write(model.scope.lags.pods);
    let Some(pod) = pods.iter_mut().find(|pod| pod.uid == uid) else {
        return;
    };
    match write {
        Write::DeletePod(..) => {
            pod.terminating = true;
            pod.ready = None;
        }
        Write::Mark(_, since) => (pod.marked, pod.waiting_since) = (true, *since),
        Write::Unmark(_) => (pod.marked, pod.waiting_since) = (false, None),
        Write::Label(_, guarded) => pod.guarded = *guarded,
        Write::RequestMove(_, requested) => {
            pod.move_requested = requested.then_some(Requester::Operator);
        }
        Write::Adopt(_) => {
            pod.orphan = false;
            (pod.marked, pod.waiting_since) = (false, None);
        }
        Write::OpenGate(_) => pod.gate = Gate::Open,
        Write::CloseGate(..) => {
            let last = pod.record.as_ref().and_then(|record| record.closed_at);
            let nth = last.filter(|last| last.at == now).map_or(0, |last| last.nth + 1);
            pod.gate = Gate::Closed(Closing { at: now, nth });
        }
        Write::Finish(_, record, _) => pod.record = Some(record.clone()),
        Write::Patch(patch) => {
            pod.rev = patch.rev;
            for (container, change) in pod.containers.iter_mut().zip(&patch.images) {
                if let (Some(container), Some((_, image))) = (container, change) {
                    container.image = *image;
                    pod.observed = false;
                }
            }
            if patch.unmark {
                (pod.marked, pod.waiting_since) = (false, None);
            }
            pod.hot = patch.hot.unwrap_or(pod.hot);
            pod.mark = patch.mark.or(pod.mark);
            pod.record = Some(patch.record.clone());
        }
        _ => {}
    }
}

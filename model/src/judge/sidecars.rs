//! Invariant 13: sidecars change in a running pod only with a token of their set, within the limits of the set and of
//! the workload, and without changing the game. Creating or deleting a set affects no running pod, and every new pod
//! gets the set's containers.

use super::{Case, violation};
use crate::model::{Model, Violation};
use crate::operator::Planned;
use crate::state::*;
use crate::translate::View;
use gamekeeper_core::api::ContainerOrder;
use gamekeeper_core::write::DeletionReason;

const TOKEN: &str = "13: token";
const LIMIT: &str = "13: limit of the set";
const SET: &str = "13: the set's spec";
const GAME: &str = "13: game";
const ONE_CHANGE: &str = "13: one change";
const STEP: &str = "13: canary steps";
const INJECTED: &str = "13: injected";

/// Checks a plan of the workload against what the caches show: new pods have the sidecars; a pod that is at its target
/// and has no token is not touched; and no update of sidecars starts at a canary step.
pub(super) fn plan(model: &Model, view: &View, planned: &Planned) -> Result<(), Violation> {
    let set = &view.sidecar_set;
    let is_at_step = is_at_step(model, view, planned);
    for write in planned.before.iter().chain(&planned.after) {
        let (uid, target) = match write {
            Write::CreatePod { sidecar, .. } if sidecar.is_some() != set.exists => {
                return violation(INJECTED, format!("{write:?} with {set:?}"));
            }
            Write::CloseGate(uid, rev, ..) => (*uid, *rev),
            Write::Patch(patch) => (patch.pod, patch.rev),
            Write::DeletePod(uid, DeletionReason::Update, _) => (*uid, view.workload.template),
            _ => continue,
        };
        let mut pods = view.pods.iter();
        let may_be_touched = |pod: &Pod| {
            let token = pod.mark.and_then(|mark| mark.token);
            let has_token = token.is_some() && token == set.revision();
            pod.rev != target || has_token || pod.is_patched()
        };
        match pods.find(|pod| pod.uid == uid) {
            Some(pod) if !may_be_touched(pod) => {
                return violation(TOKEN, format!("{write:?} of {pod:?}"));
            }
            Some(pod) if is_at_step && pod.rev == target && pod.ready.is_some() => {
                return violation(STEP, format!("{write:?} of {pod:?}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether the rollout has canary steps left, according to the status that the plan writes before its actions or, if it
/// writes none, according to the current status.
fn is_at_step(model: &Model, view: &View, planned: &Planned) -> bool {
    let steps = &model.scope.steps[usize::from(view.workload.steps)];
    let status = planned.status.unwrap_or(view.workload.status);
    let index = model.translator.facts(status).index;
    index.is_some_and(|index| usize::from(index) < steps.len())
}

/// Whether a HookRun was for an update of sidecars that no token allows anymore.
pub(super) fn is_outdated(view: &View, run: &Run) -> bool {
    let mut pods = view.pods.iter();
    let pod = pods.find(|pod| Some(pod.uid) == run.id.pod);
    let token = pod.and_then(|pod| pod.mark?.token);
    run.id.sidecars.is_some() && run.id.sidecars != token
}

/// Checks a state: if containers are updated in no particular order (DisOrdered), a pod's mark names the image of its sidecar.
pub(super) fn state(model: &Model, state: &State) -> Result<(), Violation> {
    let is_wrong = |pod: &&Pod| {
        let image = pod.containers[SIDECAR].map(|it| it.image);
        image != pod.mark.map(|mark| mark.at)
    };
    match state.pods.now.iter().find(is_wrong) {
        Some(pod) if model.scope.order == ContainerOrder::DisOrdered => violation(
            TOKEN,
            format!("the sidecar of {pod:?} does not have the image that the mark names"),
        ),
        _ => Ok(()),
    }
}

/// Checks a write of the set's planner right before it takes effect, against the set that the quorum GET returned.
pub fn mark(model: &Model, state: &State, write: &MarkWrite) -> Result<(), Violation> {
    let (Some(pod), Some(judged)) = (state.pod(write.pod), &state.allotter.judged) else {
        return Ok(());
    };
    let set = &judged.set;
    if write.updates || write.to.at != write.from.at {
        return violation(TOKEN, format!("{write:?} changes {pod:?}"));
    }
    if write.to.token.is_none() {
        return Ok(());
    }
    if set.paused || write.to.token != set.revision() || write.to.at == set.image {
        return violation(SET, format!("{write:?} with {set:?}"));
    }
    let others = |uids: u32| {
        let pods = state.pods.now.iter().filter(move |it| it.uid != pod.uid);
        pods.filter(move |it| it.is_active() && uids & (1 << it.uid) != 0)
    };
    let has_newest = |pod: &&Pod| {
        let mark = pod.mark.iter();
        let mut mark = mark.filter(|it| it.at == set.image || it.token == Some(set.image));
        mark.next().is_some()
    };
    let total = judged.matched.count_ones() as usize;
    let updated = others(judged.matched).filter(has_newest).count() + 1;
    if updated + usize::from(set.partition) > total {
        return violation(SET, format!("{write:?}: {updated} of {total} pods, with {set:?}"));
    }
    let max_unavailable = model.scope.sidecars.map_or(0, |it| usize::from(it.max_unavailable));
    let updating = others(judged.counted).filter(|it| it.may_be_updating_sidecar());
    let updating = updating.count();
    let is_charged = judged.charged & (1 << pod.uid) != 0;
    if is_charged && updating >= max_unavailable {
        return violation(LIMIT, format!("{write:?} while {updating} other pods may be updating"));
    }
    Ok(())
}

impl Case<'_> {
    /// Checks the change of a pod, as far as sidecars are concerned.
    pub(super) fn sidecar_patched(&self, pod: &Pod, patch: &Patch) -> Result<(), Violation> {
        let is_in_order = self.model.scope.order != ContainerOrder::DisOrdered;
        let [template_images @ .., sidecar] = &patch.images;
        let target = patch.mark.map(|mark| mark.at).or(sidecar.map(|it| it.1));
        let Some(target) = target else {
            return Ok(());
        };
        let is_next = is_in_order && pod.mark.is_some_and(|mark| mark.at == target);
        let has_token = pod.mark.is_some_and(|mark| mark.token == Some(target));
        if !has_token && !is_next {
            return violation(TOKEN, format!("{patch:?} of {pod:?}"));
        }
        if patch.rev == pod.rev && template_images.iter().any(Option::is_some) && !is_in_order {
            return violation(GAME, format!("{patch:?} of {pod:?}"));
        }
        let is_lost =
            |(old, new): (&Option<Origin>, &Option<Origin>)| old.is_some() && new.is_none();
        let before = pod.record.as_ref().filter(|_| pod.is_patched());
        let forgets = before.is_some_and(|it| it.from.iter().zip(&patch.record.from).any(is_lost));
        if forgets || patch.images.iter().all(Option::is_none) {
            return violation(ONE_CHANGE, format!("{patch:?} of {pod:?}"));
        }
        Ok(())
    }

    /// Whether the permit of the change in progress is valid for this patch, too. It is if both the change and the patch
    /// concern only containers of the template, or if all containers in the patch are already being changed. In both
    /// cases the gate must be closed: otherwise the pod may have players again.
    pub(super) fn is_covered(&self, pod: &Pod, patch: &Patch) -> bool {
        if !matches!(pod.gate, Gate::Closed(_)) {
            return false;
        }
        let Some(record) = pod.record.as_ref().filter(|_| pod.is_patched()) else {
            return false;
        };
        let changed = patch.changed_containers();
        let mut known = record.from.iter().enumerate();
        known.all(|(index, from)| changed & (1 << index) == 0 || from.is_some())
    }
}

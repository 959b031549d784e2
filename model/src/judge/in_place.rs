//! The invariants of updates in place.

use gamekeeper_core::api::ContainerOrder;
use gamekeeper_core::api::HookPhase;
use gamekeeper_core::api::names::HookPoint;

use super::{Case, violation};
use crate::model::Violation;
use crate::state::*;

impl Case<'_> {
    pub(super) fn gate_closed(&self, uid: Uid, rev: Rev) -> Result<(), Violation> {
        let Some(pod) = self.state.pod(uid).filter(|pod| pod.is_active()) else {
            return Ok(());
        };
        let is_update = rev != pod.rev || self.model.scope.sidecars.is_none();
        self.update_starts(pod)?;
        if is_update {
            self.updated_to(rev, pod.name)?;
        }
        self.budget(pod)?;
        // Only the patch that follows shows which containers are changed, and whether the sidecars are updated as well.
        let is_for_change =
            |run: &RunId| (is_update || run.sidecars.is_some()) && run.changes.is_some();
        let (point, at) = (self.point_of_change(), self.reconcile.at);
        self.hook_first(pod, point, Some(rev), at, is_for_change)
    }

    pub(super) fn patched(&self, patch: &Patch) -> Result<(), Violation> {
        let Some(pod) = self.state.pod(patch.pod).filter(|pod| pod.is_active()) else {
            return Ok(());
        };
        self.in_order(pod, patch)?;
        self.sidecar_patched(pod, patch)?;
        let sidecars = patch.mark.map(|mark| mark.at);
        if pod.is_patched() && patch.rev == pod.rev && sidecars.is_none() {
            return Ok(()); // The next container of an update in progress.
        }
        self.update_starts(pod)?;
        if patch.rev != pod.rev || sidecars.is_none() {
            self.updated_to(patch.rev, pod.name)?;
        }
        self.budget(pod)?;
        if patch.record.hot || self.is_covered(pod, patch) {
            return Ok(());
        }
        let at = match pod.gate {
            Gate::Closed(since) => since.at,
            _ => self.reconcile.at,
        };
        let point = self.point_of_change();
        let changed = patch.changed_containers();
        let is_for_change = |run: &RunId| {
            let covers = |changes: u8| changes & changed == changed;
            run.sidecars == sidecars && run.changes.is_some_and(covers)
        };
        self.hook_first(pod, point, Some(patch.rev), at, is_for_change)?;
        let is_open = matches!(pod.gate, Gate::Unset | Gate::Open);
        if is_open && pod.up {
            return violation("gate closed", format!("{pod:?} is changed"));
        }
        Ok(())
    }

    /// A running container is changed only when the containers before it run the images of their specs, and are
    /// ready if the policy requires that.
    fn in_order(&self, pod: &Pod, patch: &Patch) -> Result<(), Violation> {
        let changed = patch.images.iter().flatten().count();
        let first = patch.images.iter().position(Option::is_some);
        let mut previous = pod.containers.iter().flatten().take(first.unwrap_or(0));
        let order = self.model.scope.order;
        let is_unready = order == ContainerOrder::OrderedReady && first > Some(0) && !pod.healthy;
        let is_early = changed > 1 || is_unready || previous.any(|it| it.runs != it.image);
        if is_early && pod.up && order != ContainerOrder::DisOrdered {
            return violation("containers in order", format!("{patch:?} of {pod:?}"));
        }
        Ok(())
    }

    /// The gate opens only when the new image runs and the PostInplace hook was successful.
    pub(super) fn gate_opened(&self, uid: Uid) -> Result<(), Violation> {
        let Some(pod) = self.state.pod(uid).filter(|pod| pod.is_patched()) else {
            return Ok(());
        };
        if !pod.runs_its_revisions(&self.model.scope) {
            return violation("completion", format!("{pod:?} does not run its images yet"));
        }
        let (point, target) = (HookPoint::PostInplace, Some(pod.rev));
        let sidecars = pod.record.as_ref().and_then(|record| record.sidecar);
        let workload = &self.reconcile.planned;
        let has_hook = workload.hooked && self.model.scope.post_inplace;
        let allows = |run: &Run| {
            (run.id.point, run.id.pod, run.id.target) == (point, Some(uid), target)
                && run.id.sidecars == sidecars
                && run.phase == HookPhase::Successful
                && run.id.hook == workload.hook
        };
        if has_hook && !self.state.runs.now.iter().any(allows) {
            return violation("1: hook first", format!("{pod:?} gets traffic without {point:?}"));
        }
        Ok(())
    }
}

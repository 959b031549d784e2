//! What holds for the SidecarSet once the cluster has settled.

use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::api::{HookPhase, UpdateStrategyType};

use crate::model::{Model, Violation};
use crate::state::*;

/// Whether the workload updates no sidecars until a user does something.
pub(super) fn waits_for_user(state: &State) -> bool {
    let updates_sidecars = matches!(
        state.workload.now.strategy,
        UpdateStrategyType::RollingUpdate | UpdateStrategyType::InplaceUpdate
    );
    // If the hook of a sidecar update fails, the token is passed on to a pod that waits, so the updates continue. If
    // all hooks fail, the token is passed on forever.
    let all_fail = state.remaining.failures == u8::MAX;
    let passes_token_on = |run: &Run| run.id.sidecars.is_some() && !all_fail;
    let has_failed = |run: &Run| run.phase == HookPhase::Failed && !passes_token_on(run);
    state.workload.now.paused || !updates_sidecars || state.runs.now.iter().any(has_failed)
}

/// The obstacle that a user has to remove: pods have the broken image, and the set does not give them another one.
pub fn obstacle(model: &Model, state: &State) -> Option<&'static str> {
    let broken = model.scope.sidecars?.broken?;
    let set = &state.sidecar_set.now;
    let reaches_pods = set.exists && !set.paused && set.image != broken;
    if reaches_pods && !waits_for_user(state) {
        return None;
    }
    let mut pods = state.pods.now.iter();
    let has_broken_image = |pod: &Pod| pod.mark.is_some_and(|mark| mark.at == broken);
    pods.any(has_broken_image).then_some("the sidecar's image is broken")
}

/// Checks the set in a settled cluster.
pub fn check_settled(model: &Model, state: &State) -> Result<(), Violation> {
    if model.scope.sidecars.is_none() {
        return Ok(());
    }
    let allotted = model.allot(state);
    if !allotted.writes.is_empty() {
        return Err(Violation {
            rule: "8: settled",
            why: format!("settled, but the set plans {:?}", allotted.writes),
        });
    }
    let set = &state.sidecar_set.now;
    match unmet(state, set) {
        Some(why) if !is_held(model, state, set) => Err(Violation { rule: "settles", why }),
        _ => check_leftovers(state, set),
    }
}

/// Whether updates are held back for a reason that is reported to users.
fn is_held(model: &Model, state: &State, set: &SidecarSet) -> bool {
    let has_failed = |run: &Run| run.phase == HookPhase::Failed;
    !set.exists
        || set.paused
        || waits_for_user(state)
        || state.runs.now.iter().any(has_failed)
        || obstacle(model, state).is_some()
}

/// How the pods differ from the set; None if enough of them are updated.
fn unmet(state: &State, set: &SidecarSet) -> Option<String> {
    let marked = || {
        let active = state.pods.now.iter().filter(|pod| pod.is_active());
        active.filter(|pod| pod.mark.is_some())
    };
    let runs = |pod: &Pod, rev: Rev| {
        pod.containers[SIDECAR].is_some_and(|it| it.image == rev && it.runs == rev)
    };
    let is_updated =
        |pod: &&Pod| pod.mark.is_some_and(|it| it.at == set.image) && runs(pod, set.image);
    let (updated, all) = (marked().filter(is_updated).count(), marked().count());
    let kept = usize::from(set.partition);
    (updated + kept < all).then(|| format!("{updated} of {all} sidecars are updated: {set:?}"))
}

/// Checks that no pod keeps a token that the set would not allot, and that each remaining HookRun belongs to a token or
/// to an update. Tokens of a set that no longer exists are allowed, because nothing removes them.
fn check_leftovers(state: &State, set: &SidecarSet) -> Result<(), Violation> {
    let violation = |why: String| Err(Violation { rule: "settles", why });
    let token = |pod: &Pod| pod.mark.and_then(|mark| mark.token);
    let is_paused = set.paused || state.workload.now.paused;
    let is_void = |token: Rev| set.exists && (token != set.image || is_paused);
    let mut active = state.pods.now.iter().filter(|pod| pod.is_active());
    if let Some(pod) = active.find(|pod| token(pod).is_some_and(is_void)) {
        return violation(format!("{pod:?} has a token without a reason: {set:?}"));
    }
    let is_leftover = |run: &&Run| {
        let pod = run.id.pod.and_then(|uid| state.pod(uid));
        let reason = pod.and_then(|pod| match run.id.point {
            HookPoint::PostInplace => pod.record.as_ref()?.sidecar,
            _ => token(pod).filter(|_| set.exists),
        });
        run.id.sidecars.is_some() && run.id.sidecars != reason
    };
    match state.runs.now.iter().find(is_leftover) {
        Some(run) => violation(format!("{run:?} is left over: {set:?}")),
        None => Ok(()),
    }
}

/// Whether a pod has a HookRun for an update of its sidecars.
pub fn has_update_run(state: &State, pod: &Pod) -> bool {
    let mut runs = state.runs.now.iter();
    runs.any(|run| run.id.pod == Some(pod.uid) && run.id.sidecars.is_some())
}

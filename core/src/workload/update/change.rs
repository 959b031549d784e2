//! What an in-place update changes, and its steps: the hook, the gate, the grace period, the patch.

use std::borrow::Cow;
use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::Scene;
use super::sidecars::{SidecarChange, target};
use crate::api::ContainerOrder;
use crate::guard::{ClosedGate, InPlaceState, in_place_state, may_have_players};
use crate::observed::time::MAX_CLOCK_SKEW;
use crate::observed::{Gate, InPlaceRecord, Pod, PodPhase, RevisionName, joined_revisions};
use crate::workload::decision::Decision;
use crate::workload::hooks::{Asked, Hooks, Intent, Target};
use crate::workload::in_place;
use crate::workload::in_place::{InPlaceChange, Patching};
use crate::workload::spec::Workload;
use crate::write::{Rehearsal, Write};

/// What an in-place update is to achieve.
pub(super) struct Goal<'g> {
    /// The revision of the template.
    revision: RevisionName<'g>,
    change: Cow<'g, InPlaceChange>,
    /// Containers whose image changes.
    modified: Vec<String>,
    /// Containers whose image or resources change: what its hook allows.
    changes: String,
    /// The names of the revisions of the template and of the updated SidecarSets; None if no sidecar is updated.
    revisions: Option<String>,
}

impl<'g> Goal<'g> {
    /// A change of the template and of sidecars.
    pub(super) fn new(
        revision: RevisionName<'g>,
        mut change: Cow<'g, InPlaceChange>,
        sidecars: Option<&SidecarChange>,
    ) -> Self {
        if let Some(sidecars) = sidecars {
            sidecars.add_to(change.to_mut());
        }
        let images = change.images.iter().map(|(name, _)| name.clone());
        let resized = change.resources.iter().map(|(name, _)| name.clone());
        let changes: BTreeSet<String> = images.clone().chain(resized).collect();
        Self {
            revision,
            modified: images.collect(),
            changes: changes.into_iter().collect::<Vec<_>>().join(","),
            revisions: sidecars.and_then(|it| joined_revisions(revision, &it.revisions())),
            change,
        }
    }

    pub(super) fn intent(&self, pod: &Pod, now: Timestamp, hooks: &Hooks) -> Intent<'_> {
        let at = match in_place_state(pod) {
            InPlaceState::Closed(since) => since,
            _ => now,
        };
        Intent {
            point: hooks.point_of_change(),
            target: self.target(),
            modified: &self.modified,
            changes: Some(self.changes.as_str()),
            possible: true,
            rehearsal: None,
            deletes: false,
            at,
        }
    }

    /// What is tried before a pod leaves service for this.
    fn rehearsal(&self, pod: &Pod, now: Timestamp) -> Rehearsal {
        let at_once = Patching::InPlace(ContainerOrder::DisOrdered);
        let patch = in_place::patch_of(pod, self.revision, &self.change, now, at_once);
        Rehearsal::of_change(self.target().annotation(), &patch, &self.change.resources)
    }

    fn target(&self) -> Target<'_> {
        target(self.revision, self.revisions.as_deref())
    }

    /// Whether the permit of a change in progress also covers this one, because this one changes only containers that
    /// are already being changed. A container that is merely resized is not restarted, so its image is not covered.
    /// Without a closed gate, the pod may have players again.
    fn is_covered_by(&self, pod: &Pod, record: &InPlaceRecord) -> bool {
        if !matches!(pod.gate, Gate::Closed(_)) {
            return false;
        }
        let mut resized = self.change.resources.iter().map(|(name, _)| name);
        let is_restarted = |name: &String| {
            let mut containers = pod.containers.iter();
            let container = containers.find(|it| it.name == *name);
            let change = container.zip(record.containers.get(name));
            change.is_some_and(|(container, change)| in_place::is_restarted(container, change))
        };
        self.modified.iter().all(is_restarted)
            && resized.all(|name| record.containers.contains_key(name))
    }
}

/// Changes a pod in place: closes its gate once its hook allows the change, waits, and patches it.
pub(super) fn change_in_place<'a>(
    scene: &Scene<'a>,
    pod: &'a Pod,
    goal: &Goal,
    possible: bool,
    hooks: &Hooks<'a>,
) -> Asked<'a, Decision> {
    let Scene { workload, world, .. } = scene;
    let state = in_place_state(pod);
    let has_started = matches!(state, InPlaceState::Patched(_));
    // In a new pod, nothing runs yet, so no container has to wait for another: all are changed together.
    let order = match is_new(pod) && !has_started {
        true => ContainerOrder::DisOrdered,
        false => workload.order,
    };
    let patching = Patching::InPlace(order);
    let patch = || in_place::patch_of(pod, goal.revision, &goal.change, world.now, patching);
    let intent = Intent { possible, ..goal.intent(pod, world.now, hooks) };
    if let Some(refused) = world.refused_change_to(pod, intent.target.annotation()) {
        // If its gate is closed, `follow` opens it.
        return Decision::Blocked(refused.blocked(pod)).into();
    }
    let hook_runs = hooks.has_run(intent.point, pod) && !hooks.has_passed(pod, &intent);
    let leaves_service = possible && state == InPlaceState::Idle && !hook_runs;
    let rehearsal = leaves_service.then(|| goal.rehearsal(pod, world.now));
    let intent = Intent { rehearsal: rehearsal.as_ref(), ..intent };
    match state {
        // The permit of the change in progress is valid until the update is complete, so the pod is patched to the
        // newest target immediately.
        InPlaceState::Patched(begun) if goal.is_covered_by(pod, begun.record()) => match possible {
            true => Decision::Do(Write::continue_in_place(begun, patch())).into(),
            false => Decision::Wait.into(),
        },
        InPlaceState::Patched(_) => hooks.may_touch(pod, &intent).map(|permit| match permit {
            Some(permit) => Decision::Do(Write::change_in_place(permit, patch(), None)),
            None => Decision::Wait,
        }),
        InPlaceState::Closed(since) => {
            let latest = world.now.checked_add(MAX_CLOCK_SKEW);
            let ends_at = end_of_grace(workload, since);
            hooks.closed_gate(pod, &intent).map(|gate| match gate {
                ClosedGate::Opens => Decision::Wait, // See `follow`.
                // The clock of the operator that closed the gate was ahead. The gate is closed again now, because
                // otherwise the grace period would begin only at that future time.
                _ if latest.is_ok_and(|latest| since > latest) => {
                    let close = Write::close_gate_again(pod, goal.revision.to_string());
                    close.map_or(Decision::Wait, Decision::Do)
                }
                ClosedGate::Change(permit) if ends_at <= world.now => {
                    Decision::Do(Write::change_in_place(permit, patch(), None))
                }
                ClosedGate::Change(_) | ClosedGate::Stays => Decision::Until(ends_at),
            })
        }
        InPlaceState::Idle => {
            hooks.may_touch(pod, &intent).map(|permit| match (permit, pod.gate) {
                // `follow` opens the gate first, so a closed gate always means that an update is in progress.
                (None, _) | (_, Gate::Unset) => Decision::Wait,
                // Resources are set once the record of the change belongs to a closed gate.
                (Some(permit), Gate::Open) if !is_new(pod) || !goal.change.resources.is_empty() => {
                    let then = workload.grace.is_zero().then(&patch);
                    let revision = goal.revision.to_string();
                    Decision::Do(Write::close_gate(permit, revision, then, rehearsal))
                }
                (Some(permit), _) => {
                    // A patch alone is refused before anything has changed.
                    let rehearsal = rehearsal.filter(|_| !goal.change.resources.is_empty());
                    Decision::Do(Write::change_in_place(permit, patch(), rehearsal))
                }
            })
        }
    }
}

/// When the grace period of a gate that was closed at `since` ends. The time in the gate's condition is rounded down
/// to whole seconds, so one second is added. The grace period begins with the request that closes the gate, just as a
/// deletion's begins with the request to delete.
fn end_of_grace(workload: &Workload, since: Timestamp) -> Timestamp {
    let grace = workload.grace;
    let rounding = SignedDuration::from_secs(i64::from(!grace.is_zero()));
    since.checked_add(grace + rounding).unwrap_or(since)
}

/// Whether nothing has run in a pod yet, so it may be changed as if it had been created that way.
fn is_new(pod: &Pod) -> bool {
    pod.phase == PodPhase::Pending && !may_have_players(pod)
}

//! A write and its class. Nothing else classifies writes: neither the loop nor a planner asks which change it is to know
//! when it is carried out or what must be proven first.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    Budget, Change, ClaimOwnership, Deletion, DeletionReason, InPlacePatch, NewClaim, NewPod,
    NewRevision, NodePatch, Owned, Rehearsal, SidecarPatch, Trial, WorkloadPatch,
};
use crate::api::{HookRun, names};
use crate::guard::{Begun, Ground, Permit};
use crate::observed::{Gate, InPlaceRecord, Pod, PodRef};

/// One write (or dry run), and its class.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    change: Change,
    phase: Phase,
    proof: Proof,
    attempt: Option<Attempt>,
    trial: Option<Trial>,
    rehearsal: Option<Box<Rehearsal>>,
}

/// When a write is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Before the status is written: it undoes something, or only prepares.
    Before,
    /// After the status is written, and only if the plan is recent.
    After,
}

/// What must be proven before a write is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// Nothing: the write can be undone.
    None,
    /// That the object that the plan is for is unchanged. A quorum GET proves it for half a second.
    Owner,
    /// The same. The write stays valid while that object is unchanged, whatever happens to other pods, so that the proof
    /// is renewed for it, and the plan need not be recent.
    OwnerAlone,
}

/// A kind of write whose refusal a condition shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attempt {
    /// Creating a pod.
    CreatePod,
    /// Adopting an orphan, which is not replaced in the meantime.
    AdoptPod,
    /// Creating a volume claim, or changing its owners.
    PrepareClaim,
    /// Deleting a pod for a reason other than an update.
    RemovePod,
    /// Starting the hook for a deletion other than an update's.
    StartRemovalHook,
    /// Changing a pod in place.
    ChangePod,
    /// Deleting a pod for an update.
    RecreatePod,
    /// Starting the hook of an update, or of a canary step.
    StartUpdateHook,
    /// Deleting the budget of pods that are no longer guarded.
    DeleteBudget,
    /// Creating, adopting or renumbering the revision of the template.
    RecordRevision,
    /// Changing what the workload says about its rollout: its pause, or what a user lets it skip.
    SteerRollout,
    /// Another change of the workload itself.
    MarkWorkload,
    /// Changing labels, annotations or owners of a pod.
    MarkPod,
    /// Deleting HookRuns and revisions that are no longer needed.
    CleanUp,
}

impl Write {
    /// What is changed.
    pub fn change(&self) -> &Change {
        &self.change
    }

    /// When it is carried out.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What must be proven before it is sent.
    pub fn proof(&self) -> Proof {
        self.proof
    }

    /// What is tried first.
    pub fn trial(&self) -> Option<&Trial> {
        self.trial.as_ref()
    }

    /// The dry runs that must succeed first, unless they have succeeded a moment ago.
    pub fn rehearsal(&self) -> Option<&Rehearsal> {
        self.rehearsal.as_deref()
    }

    /// What a refusal blocks; None if no condition shows it.
    pub fn attempt(&self) -> Option<Attempt> {
        self.attempt
    }

    /// Whether this is an attempt of that kind, or begins one.
    pub fn serves(&self, attempt: Attempt) -> bool {
        let begun = self.rehearsal.as_ref().map(|it| it.attempt);
        [self.attempt, begun].contains(&Some(attempt))
    }

    /// The pod that is changed.
    pub fn pod(&self) -> Option<&PodRef> {
        self.change.pod()
    }
}

/// Writes of [`Phase::Before`].
impl Write {
    /// Changes the workload itself.
    pub fn patch_workload(patch: WorkloadPatch) -> Self {
        let attempt = match patch.steers_rollout() {
            true => Attempt::SteerRollout,
            false => Attempt::MarkWorkload,
        };
        Self::before(Change::PatchWorkload(patch)).attempts(attempt)
    }

    /// Creates a revision. A revision of a deleted object would be created again each time the garbage collector
    /// deletes it.
    pub fn create_revision(new: NewRevision) -> Self {
        Self::before(Change::CreateRevision(new)).proven().attempts(Attempt::RecordRevision)
    }

    /// Gives the highest number to a revision that is used again.
    pub fn renumber_revision(name: String, uid: String, number: i64) -> Self {
        let renumber = Self::before(Change::RenumberRevision { name, uid, number });
        renumber.attempts(Attempt::RecordRevision)
    }

    /// Adopts an orphaned revision. An object that is being deleted must not adopt others.
    pub fn adopt_revision(name: String, uid: String, number: Option<i64>) -> Self {
        let adopt = Self::before(Change::AdoptRevision { name, uid, number });
        adopt.proven().attempts(Attempt::RecordRevision)
    }

    /// Adopts an orphaned revision on which nothing depends, so that it counts for the history limit.
    pub fn adopt_old_revision(name: String, uid: String) -> Self {
        let adopt = Self::before(Change::AdoptRevision { name, uid, number: None });
        adopt.proven().attempts(Attempt::CleanUp)
    }

    /// Adopts an orphaned pod.
    pub fn adopt_pod(pod: &Pod) -> Self {
        Self::before(Change::AdoptPod(PodRef::of(pod))).proven().attempts(Attempt::AdoptPod)
    }

    /// Releases a pod that the selector no longer matches.
    pub fn release_pod(pod: &Pod) -> Self {
        Self::before(Change::ReleasePod(PodRef::of(pod))).attempts(Attempt::MarkPod)
    }

    /// Sets labels of a pod.
    pub fn label_pod(pod: &Pod, labels: Vec<(String, String)>) -> Self {
        let labels = labels.into_iter().map(|(key, value)| (key, Some(value)));
        Self::set_metadata(PodRef::of(pod), labels.collect(), Vec::new())
    }

    /// Guards a pod, or (with None) ends its guard: sets or removes its label and the annotations for autoscalers.
    /// A guard that was switched on again must not be removed.
    pub fn guard_pod(
        pod: PodRef,
        label: Option<String>,
        annotations: Vec<(&'static str, Option<String>)>,
    ) -> Self {
        let ends = label.is_none();
        let labels = vec![(names::GUARDED_LABEL.to_owned(), label)];
        let guard = Self::set_metadata(pod, labels, annotations);
        if ends { guard.proven() } else { guard }
    }

    /// Requests the replacement of a pod, in the name of `requester`, or (with None) withdraws that request.
    pub fn request_move(pod: PodRef, requester: Option<String>) -> Self {
        Self::set_metadata(pod, Vec::new(), vec![(names::MOVE_ANNOTATION, requester)])
    }

    /// Removes the annotation game-pod-deleting, and the time since which the pod has waited.
    pub fn unmark_deleting(pod: &Pod) -> Self {
        Self::set_metadata(PodRef::of(pod), Vec::new(), deleting_marks(None, None))
    }

    /// Records on a pod that its change in place is complete.
    pub fn finish_in_place(pod: PodRef, record: &InPlaceRecord) -> Self {
        let record = InPlaceRecord { done: true, ..record.clone() };
        let annotation = (names::IN_PLACE_RECORD, Some(record.text()));
        Self::set_metadata(pod, Vec::new(), vec![annotation])
    }

    /// Opens the readiness gate.
    pub fn open_gate(pod: PodRef) -> Self {
        let open = Self::before(Change::SetGate { pod, closed_for: None, then: None });
        open.attempts(Attempt::ChangePod)
    }

    /// Deletes a HookRun that no rule needs.
    pub fn delete_run(run: &HookRun) -> Self {
        Self::before(Change::Delete {
            kind: Owned::HookRun,
            name: run.metadata.name.clone().unwrap_or_default(),
            uid: run.metadata.uid.clone().unwrap_or_default(),
        })
        .attempts(Attempt::CleanUp)
    }

    /// Creates, or restores, the budget that guards the workload's pods.
    pub fn apply_budget(budget: Budget) -> Self {
        Self::before(Change::ApplyBudget(budget))
    }

    /// Checks whether the guard is in force.
    pub fn probe_guard(budget: String) -> Self {
        Self::before(Change::ProbeGuard { budget })
    }

    /// Deletes the budget, which no longer guards any pod. A guard that was switched on again must not be removed.
    pub fn delete_budget(name: String) -> Self {
        Self::before(Change::Delete { kind: Owned::Budget, name, uid: String::new() })
            .proven()
            .attempts(Attempt::DeleteBudget)
    }

    fn set_metadata(
        pod: PodRef,
        labels: Vec<(String, Option<String>)>,
        annotations: Vec<(&'static str, Option<String>)>,
    ) -> Self {
        Self::before(Change::SetMetadata { pod, labels, annotations }).attempts(Attempt::MarkPod)
    }
}

/// Writes of [`Phase::After`] that any rule may make.
impl Write {
    /// Deletes a revision beyond the history limit.
    pub fn delete_revision(name: String, uid: String) -> Self {
        let delete = Self::after(Change::Delete { kind: Owned::Revision, name, uid });
        delete.attempts(Attempt::CleanUp)
    }

    /// Checks whether the API server would create a pod of this revision.
    pub fn dry_run(revision: String, pod: Value) -> Self {
        Self::after(Change::DryRun { revision, pod })
    }

    /// Creates a pod.
    pub fn create_pod(new: NewPod) -> Self {
        let create = Self::after(Change::CreatePod(new)).attempts(Attempt::CreatePod);
        Self { proof: Proof::OwnerAlone, ..create }
    }

    /// Creates a volume claim.
    pub fn create_claim(new: NewClaim) -> Self {
        Self::after(Change::CreateClaim(new)).proven().attempts(Attempt::PrepareClaim)
    }

    /// Changes the owners of a claim. To remove one only undoes something.
    pub fn own_claim(change: ClaimOwnership) -> Self {
        let adds = change.add.is_some();
        let change = Change::OwnClaim(change);
        let write = match adds {
            true => Self::after(change).proven(),
            false => Self::before(change),
        };
        write.attempts(Attempt::PrepareClaim)
    }

    /// Creates a HookRun. That of a pod may ask its players to leave.
    pub fn create_run(run: HookRun, rehearsal: Option<Rehearsal>) -> Self {
        let attempt = match run.is_for_removal() {
            true => Attempt::StartRemovalHook,
            false => Attempt::StartUpdateHook,
        };
        let create = Self::after(Change::CreateHookRun(Box::new(run))).proven();
        create.attempts(attempt).rehearsed(rehearsal)
    }

    /// Sets the annotation game-pod-deleting, and since when a guarded pod has waited for its PreDelete hook.
    pub fn mark_deleting(pod: PodRef, since: Option<Timestamp>) -> Self {
        let annotations = deleting_marks(Some("true"), since);
        let mark = Self::after(Change::SetMetadata { pod, labels: Vec::new(), annotations });
        mark.attempts(Attempt::MarkPod)
    }

    /// Changes the sidecars of a pod, by their SidecarSet.
    pub fn patch_sidecars(patch: SidecarPatch) -> Self {
        Self::after(Change::PatchSidecars(patch)).proven()
    }

    /// Requests the replacement of a pod in the name of a Cluster, which is about to upgrade its node.
    pub fn move_for_upgrade(pod: PodRef, requester: String) -> Self {
        Self { phase: Phase::After, ..Self::request_move(pod, Some(requester)) }.proven()
    }

    /// Starts a script of a Cluster.
    pub fn start_script(run: HookRun, trial: Trial) -> Self {
        let start = Self::after(Change::CreateHookRun(Box::new(run))).proven();
        Self { trial: Some(trial), ..start }
    }

    /// Ends a script of a Cluster.
    pub fn cancel_script(run: &HookRun) -> Self {
        Self::after(Change::Delete {
            kind: Owned::Script,
            name: run.metadata.name.clone().unwrap_or_default(),
            uid: run.metadata.uid.clone().unwrap_or_default(),
        })
        .proven()
    }

    /// Changes a node.
    pub fn patch_node(patch: NodePatch) -> Self {
        Self::after(Change::PatchNode(patch)).proven()
    }

    /// Removes the taint of a node whose install is complete.
    pub fn admit_node(name: String, uid: String, taint: usize) -> Self {
        Self::after(Change::AdmitNode { name, uid, taint }).proven()
    }

    /// Forces the deletion of a pod that is already Terminating.
    pub fn force_deletion(pod: &Pod) -> Option<Self> {
        let force = Self::after(Change::ForceDeletePod(PodRef::of(pod)));
        pod.terminating.then(|| force.proven().attempts(Attempt::RemovePod))
    }
}

/// Writes that end a match, or begin to: they require the guard's permit.
impl Write {
    /// Deletes a pod.
    pub fn delete_pod(permit: Permit, reason: DeletionReason) -> Self {
        Self::deletion(permit.for_action(), reason, permit.ground())
    }

    /// Deletes a pod, if it has not changed since it was observed.
    pub fn delete_unchanged_pod(permit: Permit, reason: DeletionReason) -> Self {
        Self::deletion(permit.for_unchanged(), reason, permit.ground())
    }

    fn deletion(pod: PodRef, reason: DeletionReason, ground: Ground) -> Self {
        let attempt = match reason {
            DeletionReason::Update => Attempt::RecreatePod,
            _ => Attempt::RemovePod,
        };
        // Every other deletion rests on conditions that hold only for a moment.
        let proof = match (reason, ground) {
            (DeletionReason::ScaleIn, Ground::NoHook) => Proof::OwnerAlone,
            _ => Proof::Owner,
        };
        let delete = Self::after(Change::DeletePod(Deletion { pod, reason, ground }));
        Self { proof, ..delete.attempts(attempt) }
    }

    /// The first write of a pod's in-place update, after which the pod gets no new traffic. If there is no grace
    /// period, `then` is the change that follows immediately.
    pub fn close_gate(
        permit: Permit,
        revision: String,
        then: Option<InPlacePatch>,
        rehearsal: Option<Rehearsal>,
    ) -> Self {
        let pod = permit.for_action();
        let then = then.map(|patch| Box::new(InPlacePatch { pod: pod.clone(), ..patch }));
        let close = Change::SetGate { pod, closed_for: Some(revision), then };
        Self::changes(close).rehearsed(rehearsal)
    }

    /// The in-place change of a pod whose traffic does not have to be stopped first.
    pub fn change_in_place(
        permit: Permit,
        patch: InPlacePatch,
        rehearsal: Option<Rehearsal>,
    ) -> Self {
        let patch = InPlacePatch { pod: permit.for_change(), ..patch };
        Self::changes(Change::PatchInPlace(patch)).rehearsed(rehearsal)
    }

    fn changes(change: Change) -> Self {
        Self::after(change).proven().attempts(Attempt::ChangePod)
    }
}

/// Writes that change a running pod without another permit.
impl Write {
    /// Continues an update that has begun: with its next container, or with a newer target for the same containers.
    pub fn continue_in_place(begun: Begun, patch: InPlacePatch) -> Self {
        debug_assert_eq!(begun.pod().uid, patch.pod.uid);
        Self::changes(Change::PatchInPlace(patch))
    }

    /// Sets the resources of an update that has begun.
    pub fn resize(begun: Begun, resources: Vec<(String, Value)>) -> Self {
        let goal = begun.record().goal();
        Self::changes(Change::ResizePod { pod: PodRef::of(begun.pod()), goal, resources })
    }

    /// Closes a gate again that is already closed: its grace period starts now. None if the gate is not closed.
    pub fn close_gate_again(pod: &Pod, revision: String) -> Option<Self> {
        let change =
            Change::SetGate { pod: PodRef::of(pod), closed_for: Some(revision), then: None };
        matches!(pod.gate, Gate::Closed(_)).then(|| Self::changes(change))
    }

    /// Gives running containers a new image without a restart. The kubelet is asked for that with an annotation.
    pub fn hot_patch(mut patch: InPlacePatch) -> Self {
        let annotation = (names::HOT_PATCH_ANNOTATION.to_owned(), Some("true".to_owned()));
        patch.annotations.push(annotation);
        patch.record.hot = true;
        Self::changes(Change::PatchInPlace(patch))
    }

    /// The change that follows the closing of its gate.
    pub(super) fn change_after_gate(patch: InPlacePatch) -> Self {
        Self::changes(Change::PatchInPlace(patch))
    }
}

impl Write {
    fn before(change: Change) -> Self {
        Self {
            change,
            phase: Phase::Before,
            proof: Proof::None,
            attempt: None,
            trial: None,
            rehearsal: None,
        }
    }

    fn after(change: Change) -> Self {
        Self { phase: Phase::After, ..Self::before(change) }
    }

    fn proven(self) -> Self {
        Self { proof: Proof::Owner, ..self }
    }

    fn attempts(self, attempt: Attempt) -> Self {
        Self { attempt: Some(attempt), ..self }
    }

    fn rehearsed(self, rehearsal: Option<Rehearsal>) -> Self {
        Self { rehearsal: rehearsal.map(Box::new), ..self }
    }
}

/// The two annotations of a pod that waits for its deletion.
fn deleting_marks(
    marked: Option<&str>,
    since: Option<Timestamp>,
) -> Vec<(&'static str, Option<String>)> {
    vec![
        (names::DELETING_ANNOTATION, marked.map(str::to_owned)),
        (names::WAITING_SINCE_ANNOTATION, since.map(|it| it.to_string())),
    ]
}

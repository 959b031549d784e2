//! The parts of a pod that the planner reads: about a tenth of the whole object.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Labels, PodUid, Qos, RevisionName, SidecarMarks, Trouble, TroubleKind};
use crate::api::{JsonText, names};

/// The slim form of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid, which distinguishes a pod from its successor of the same name.
    pub uid: String,
    /// resourceVersion, which orders all writes.
    pub resource_version: u64,
    /// metadata.generation: grows with each change of the spec.
    pub generation: i64,
    /// When it was created.
    pub created: Timestamp,
    /// Whether it is Terminating.
    pub terminating: bool,
    /// Labels.
    pub labels: Labels,
    /// Uid of the object that controls it.
    pub controller: Option<String>,
    /// Cost of deleting it, in millionths.
    pub deletion_cost: i64,
    /// Whether it has any annotations: a JSON patch cannot add to a map that does not exist.
    pub annotated: bool,
    /// Whether its annotation game-pod-deleting is "true".
    pub marked_deleting: bool,
    /// Since when it has waited for its deletion, according to its annotation, which other clients may have changed;
    /// the beginning of time if its annotation contains no time. The workload's status is the record (see
    /// `workload::Waits`).
    pub waiting_since: Option<Timestamp>,
    /// Who requested its replacement.
    pub move_requested: Option<MoveRequest>,
    /// Whether a user released it from its guard.
    pub released: bool,
    /// Whether it has the annotation of hot patches.
    pub hot_patched: bool,
    /// Its index, if its workload gives pods an index.
    pub index: Option<u32>,
    /// The SidecarSets that were considered when it was created.
    pub sidecars: SidecarMarks,
    /// What the last in-place update or hot patch changed.
    pub record: Option<Arc<InPlaceRecord>>,
    /// The new images, by container, of a change that an operator of bk-bcs has postponed to the end of a grace
    /// period. Only the revision label has been set.
    pub postponed: Option<Arc<BTreeMap<String, String>>>,
    /// The node it is bound to.
    pub node: Option<String>,
    /// status.phase.
    pub phase: PodPhase,
    /// What is ending it, or has ended it (condition DisruptionTarget).
    pub disruption: Option<Disruption>,
    /// Why it has ended, if that was before any container had run for ten seconds.
    pub ended_at_once: Option<Arc<str>>,
    /// Since when condition Ready has been True.
    pub ready_since: Option<Timestamp>,
    /// Why it is not ready, or is still Terminating. Boxed, because few pods have any.
    pub trouble: Option<Box<Trouble>>,
    /// The readiness gate of in-place updates.
    pub gate: Gate,
    /// status.podIP.
    pub pod_ip: Option<String>,
    /// status.hostIP.
    pub host_ip: Option<String>,
    /// status.observedGeneration; 0 when the kubelet reports none (before Kubernetes 1.34).
    pub observed_generation: i64,
    /// Containers, and init containers that keep running (restartPolicy Always).
    pub containers: Vec<Container>,
    /// The state of its resize.
    pub resize: Resize,
    /// The resources that its RuntimeClass adds, as JSON.
    pub overhead: Option<Arc<str>>,
    /// Its QoS class; None if it is not known, or does not depend on the resources of containers, because the pod has
    /// resources of its own.
    pub qos: Option<Qos>,
    /// containerIDs (in the order of `containers`) in the first status with this
    /// observedGeneration; None when the cache cannot know them (restart, relist).
    pub first_status: Option<FirstStatus>,
}

/// status.phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodPhase {
    /// Not all containers have started.
    Pending,
    /// Running: players may be on it.
    Running,
    /// Ended successfully.
    Succeeded,
    /// Ended with a failure.
    Failed,
    /// The node cannot be reached.
    Unknown,
}

/// Who requested the replacement of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveRequest {
    /// A user.
    User,
    /// The operator, because the pod's node is going to be removed.
    NodeGoing,
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; empty for none.
    pub value: String,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: String,
}

impl Taint {
    /// Whether a toleration from a pod template matches this taint.
    pub fn is_matched_by(&self, toleration: &Value) -> bool {
        let field = |name: &str| toleration[name].as_str().unwrap_or_default();
        let has_key = match field("key") {
            "" => field("operator") == "Exists",
            key => key == self.key,
        };
        let has_effect = ["", self.effect.as_str()].contains(&field("effect"));
        let has_value = field("operator") == "Exists" || field("value") == self.value;
        has_key && has_effect && has_value
    }
}

/// A node that no longer responds, or that an administrator has declared to be shut down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostNode {
    /// Whether it is unreachable.
    pub unreachable: bool,
    /// Since when, according to its taint.
    pub since: Option<Timestamp>,
    /// Whether an administrator has declared it to be shut down.
    pub out_of_service: bool,
}

/// What ends a pod, other than its controller, as the reason of condition DisruptionTarget shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Disruption {
    /// The eviction API: a drain, an autoscaler.
    Eviction,
    /// A pod of a higher priority.
    Preemption,
    /// A NoExecute taint of its node.
    Taint,
    /// The pod garbage collector, because its node no longer exists.
    LostNode,
    /// The kubelet: pressure on the node, or its shutdown.
    Kubelet,
    /// Any other reason.
    Other,
}

/// State of the readiness gate `InPlaceUpdateReady`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// The pod's spec does not have it.
    None,
    /// In the spec, but its condition has not been set yet.
    Unset,
    /// True: the gate lets traffic through.
    Open,
    /// False, since this time.
    Closed(Timestamp),
}

/// The state of a pod's resize (conditions PodResizePending and PodResizeInProgress).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resize {
    /// No resize was requested, or the last one is complete.
    Settled,
    /// The kubelet is applying it.
    InProgress,
    /// The node does not have the resources at the moment.
    Deferred(String),
    /// The node will never have the resources.
    Infeasible(String),
}

/// A container: its spec and its status.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// Name.
    pub name: String,
    /// Its index in spec.containers, or in spec.initContainers.
    pub index: usize,
    /// Whether it is a native sidecar (an init container that keeps running).
    pub init: bool,
    /// Image in the spec.
    pub image: String,
    /// Resources in the spec, as canonical JSON.
    pub resources: Arc<str>,
    /// What the kubelet reports.
    pub status: Option<ContainerStatus>,
}

/// What the kubelet reports about a container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerStatus {
    /// One of the node's names for the image's content.
    pub image: String,
    /// Identity of the image's content.
    pub image_id: String,
    /// Identity of the container; new at each start.
    pub container_id: String,
    /// How often it has been restarted.
    pub restart_count: i32,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it is running, rather than waiting or terminated.
    pub running: bool,
    /// When it started, by the node's clock; None when it does not run.
    pub started_at: Option<Timestamp>,
    /// Whether the resources that it runs with are those of the spec.
    pub resources_applied: bool,
}

/// The first status that a kubelet wrote for a generation.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstStatus {
    /// The generation.
    pub generation: i64,
    /// containerIDs in the order of [`Pod::containers`]; empty where there was none.
    pub container_ids: Vec<String>,
}

/// What an in-place update or hot patch changed, kept on the pod in [`names::IN_PLACE_RECORD`], so that
/// the next leader knows what to wait for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceRecord {
    /// Revision that the pod was updated to.
    pub revision: String,
    /// Revision that it was at before; empty in records of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// When the gate was closed for this change; None for a pod without the gate. If, and only if, the gate's
    /// condition shows the same time, the gate is still closed for this change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_closed_at: Option<Timestamp>,
    /// When the pod was patched.
    pub patched_at: Timestamp,
    /// Whether this was a hot patch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hot: bool,
    /// For pods without the gate: whether the change was observed to be complete, so its permission is used up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
    /// Changed containers by name. Boxed, because each node of the map reserves space for eleven values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub containers: BTreeMap<String, Box<ContainerChange>>,
    /// The revisions of the SidecarSets whose containers changed, by the name of the set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sidecars: BTreeMap<String, String>,
}

impl InPlaceRecord {
    /// What the pod was updated to: the revision, and those of the updated SidecarSets.
    pub fn goal(&self) -> String {
        let revision = RevisionName::of(&self.revision);
        joined_revisions(revision, &self.sidecars).unwrap_or_else(|| self.revision.clone())
    }

    /// The value of the annotation that holds the record.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The names of the revisions that a pod has after an update, joined into one string: first the template's revision,
/// then the revisions of the updated SidecarSets, each after [`SIDECARS`]. None if no set is updated.
pub fn joined_revisions(
    revision: RevisionName,
    sidecars: &BTreeMap<String, String>,
) -> Option<String> {
    let sets: String = sidecars.values().map(|it| format!("{SIDECARS}{it}")).collect();
    (!sets.is_empty()).then(|| format!("{revision}{sets}"))
}

/// Precedes the revision of each SidecarSet among [`joined_revisions`].
pub const SIDECARS: char = '+';

/// What changed in one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerChange {
    /// The previous image.
    pub from_image: String,
    /// The ID of the container that ran before the change; empty if none did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from_container_id: String,
    /// The restart count of that container.
    #[serde(default)]
    pub from_restart_count: i32,
    /// Whether the pod's status did not show that the container was ready with `from_image`, as while an earlier change
    /// is in progress.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_unfinished: bool,
    /// Whether the node already reported the new image's name or digest for that container, usually because both
    /// images have the same content. If so, the name does not show when the new container runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_named: bool,
    /// Resources to set through the resize subresource; None when they do not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<JsonText>,
    /// Its progress, if containers get their images one after the other.
    #[serde(default, skip_serializing_if = "Turn::is_set")]
    pub turn: Turn,
}

/// The progress of a container whose image changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Turn {
    /// Its spec has the new image.
    #[default]
    Set,
    /// It gets this image once the containers before it have theirs.
    Next(String),
    /// It was observed to run its new image, and the next container may get its own.
    Passed,
}

impl Turn {
    fn is_set(&self) -> bool {
        *self == Self::Set
    }
}

impl Pod {
    /// Its uid.
    pub fn uid(&self) -> PodUid<'_> {
        PodUid::of(&self.uid)
    }

    /// The revision it was created at or updated to; empty when it has no such label.
    pub fn revision(&self) -> RevisionName<'_> {
        RevisionName::of(self.labels.revision())
    }

    /// The instance id: the label, or (for an adopted pod) the last part of the name.
    pub fn instance(&self) -> &str {
        match self.labels.get(names::INSTANCE_LABEL) {
            Some(id) => id,
            None => self.name.rsplit('-').next().unwrap_or(&self.name),
        }
    }

    /// The uid of the workload that guards it, according to its label.
    pub fn guarded_by(&self) -> Option<&str> {
        self.labels.get(names::GUARDED_LABEL).map(String::as_str)
    }

    /// Whether it has ended on its own, so there is nothing left to lose.
    pub fn ended(&self) -> bool {
        matches!(self.phase, PodPhase::Failed | PodPhase::Succeeded)
    }

    /// When a container that has ended shortly after its start counts as running again; None if none has.
    /// [`Timestamp::MAX`] while it does not run.
    pub fn crashing_until(&self) -> Option<Timestamp> {
        let trouble = self.trouble.as_deref()?;
        let is_crashing = matches!(trouble.kind, TroubleKind::Crashing { .. });
        is_crashing.then(|| trouble.over_at.unwrap_or(Timestamp::MAX))
    }

    /// Whether condition Ready is True, and the pod is not Terminating.
    pub fn is_ready(&self) -> bool {
        self.ready_since.is_some() && !self.terminating
    }
}

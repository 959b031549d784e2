//! The requests of writes: pure functions from a change to a path and a body.
//!
//! A patch contains preconditions, so that a decision on old data fails instead of doing harm. A patch of a pod names
//! the pod's uid, and a patch of the workload names the workload's resourceVersion. A pod's resourceVersion changes
//! with each status that the kubelet writes, so it is a precondition only if such a change makes the decision invalid.

mod bodies;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use serde_json::{Value, json};

use self::bodies::{
    adopt_pod, adopt_revision, claim_owners, gate, in_place, metadata, node, release, resize,
    sidecars, without_taint, workload,
};
use super::{Change, InPlacePatch, Owned};
use crate::api::{API_VERSION, names};
use crate::go_json;
use crate::observed::{Kind, PodRef};

pub(super) use self::bodies::revision;

/// The object that a plan is made for, as far as requests name it.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty if it is cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion, which changes with each write to it.
    pub resource_version: String,
    /// The namespace of its ControllerRevisions.
    pub revision_namespace: String,
    /// The labels of its ControllerRevisions.
    pub revision_labels: BTreeMap<String, String>,
    /// The keys of the labels by which it selects pods.
    pub selector_keys: Vec<String>,
}

impl Owner {
    /// Its path.
    pub fn path(&self) -> String {
        self.kind.path(&self.namespace, &self.name)
    }

    /// Whether it selects pods by the label with this key.
    pub(super) fn selects_by(&self, key: &str) -> bool {
        self.selector_keys.iter().any(|it| it == key)
    }

    /// The owner reference to it. One to a set does not block the set's deletion: to write such a reference, the operator
    /// would need permission to update the set's finalizers.
    fn owner_reference(&self) -> Value {
        let mut reference = json!({
            "apiVersion": API_VERSION, "kind": self.kind.name(), "name": self.name,
            "uid": self.uid, "controller": true,
        });
        if self.kind != Kind::SidecarSet {
            reference["blockOwnerDeletion"] = json!(true);
        }
        reference
    }

    /// A request about an object in this namespace, or one of a kind without namespaces.
    fn about_in<'a>(namespace: &'a str, kind: Kind, name: &'a str, uid: &'a str) -> Requested<'a> {
        Requested { namespace, kind, name, uid }
    }

    fn about_revision<'a>(&'a self, name: &'a str, uid: &'a str) -> Requested<'a> {
        let kind = match self.kind {
            Kind::SidecarSet => Kind::SetRevision,
            _ => Kind::Revision,
        };
        Self::about_in(&self.revision_namespace, kind, name, uid)
    }

    fn about<'a>(&'a self, kind: Kind, name: &'a str, uid: &'a str) -> Requested<'a> {
        Self::about_in(&self.namespace, kind, name, uid)
    }

    fn about_budget(&self, name: &str, verb: Verb) -> Request {
        let collection = PodDisruptionBudget::url_path(&(), Some(&self.namespace));
        let object = Object {
            kind: None,
            namespace: self.namespace.clone(),
            name: name.to_owned(),
            uid: String::new(),
        };
        Request { object, path: format!("{collection}/{name}"), verb }
    }
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The object that it is about.
    pub object: Object,
    /// The path: that of the collection, if an object is created.
    pub path: String,
    /// What is asked.
    pub verb: Verb,
}

/// The object that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its kind; None if objects of that kind are not watched.
    pub kind: Option<Kind>,
    /// Its namespace; empty if it is cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; empty if it is created, or not known.
    pub uid: String,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    /// Create an object with this body.
    Create(Vec<u8>),
    /// Check whether this object could be created.
    DryRunCreate(Vec<u8>),
    /// Patch the object.
    Patch(Content, Vec<u8>),
    /// Check whether the object could be patched.
    DryRunPatch(Content, Vec<u8>),
    /// Apply the object on the server's side.
    Apply(Vec<u8>),
    /// Delete the object with the request's uid and, if it is given, this resourceVersion.
    Delete(Option<u64>),
    /// Delete the object with the request's uid after its dependents. Until they are deleted, it is Terminating.
    DeleteAfterDependents,
    /// Delete a Terminating pod without waiting for its node.
    ForceDelete,
    /// Delete the object, whatever its uid.
    DeleteAny,
    /// Check whether the object could be deleted.
    DryRunDelete,
}

/// The content type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A JSON merge patch.
    MergePatch,
    /// A strategic merge patch.
    StrategicPatch,
    /// A JSON patch.
    JsonPatch,
}

impl Change {
    /// The request that makes the change for its owner, if it is sent now.
    pub fn request(&self, owner: &Owner, now: Timestamp) -> Request {
        match self {
            Change::PatchWorkload(patch) => {
                let body = workload(patch, &owner.resource_version);
                owner.about(owner.kind, &owner.name, &owner.uid).merge(&body)
            }
            Change::CreateRevision(new) => {
                let body = go_json::to_bytes(&revision(new, owner));
                owner.about_revision(&new.name, "").create(body)
            }
            Change::RenumberRevision { name, uid, number } => {
                let body = json!({"metadata": {"uid": uid}, "revision": number});
                owner.about_revision(name, uid).merge(&body)
            }
            Change::AdoptRevision { name, uid, number } => {
                owner.about_revision(name, uid).patch("", &adopt_revision(uid, *number, owner))
            }
            Change::AdoptPod(pod) => about_pod(pod).patch("", &adopt_pod(&pod.uid, owner)),
            Change::ReleasePod(pod) => about_pod(pod).patch("", &release(&pod.uid, owner)),
            Change::DryRun { pod, .. } => {
                let verb = Verb::DryRunCreate(pod.to_string().into_bytes());
                owner.about(Kind::Pod, "", "").to_collection(verb)
            }
            Change::CreatePod(new) => {
                owner.about(Kind::Pod, &new.name, "").create(new.pod.text().as_bytes().to_vec())
            }
            Change::DeletePod(it) => about_pod(&it.pod).to_object("", Verb::Delete(it.pod.version)),
            Change::ForceDeletePod(pod) => about_pod(pod).to_object("", Verb::ForceDelete),
            Change::SetMetadata { pod, labels, annotations } => {
                about_pod(pod).patch("", &metadata(pod, labels, annotations))
            }
            Change::CreateClaim(new) => {
                owner.about(Kind::Claim, &new.name, "").create(new.claim.to_string().into_bytes())
            }
            Change::OwnClaim(change) => {
                owner.about(Kind::Claim, &change.name, &change.uid).patch("", &claim_owners(change))
            }
            Change::CreateHookRun(run) => {
                let name = run.metadata.name.as_deref().unwrap_or_default();
                let namespace = run.metadata.namespace.as_ref().unwrap_or(&owner.namespace);
                let run = json!(run).to_string().into_bytes();
                Owner::about_in(namespace, Kind::HookRun, name, "").create(run)
            }
            Change::Delete { kind: Owned::Revision, name, uid } => {
                owner.about_revision(name, uid).to_object("", Verb::Delete(None))
            }
            Change::Delete { kind: Owned::HookRun, name, uid } => {
                owner.about(Kind::HookRun, name, uid).to_object("", Verb::Delete(None))
            }
            Change::Delete { kind: Owned::Script, name, uid } => {
                let run = Owner::about_in(names::HOOKS_NAMESPACE, Kind::HookRun, name, uid);
                run.to_object("", Verb::DeleteAfterDependents)
            }
            Change::PatchNode(patch) => {
                owner.about(Kind::Node, &patch.name, &patch.uid).merge(&node(patch))
            }
            Change::AdmitNode { name, uid, taint } => {
                let body = without_taint(uid, *taint).to_string().into_bytes();
                let verb = Verb::Patch(Content::JsonPatch, body);
                owner.about(Kind::Node, name, uid).to_object("", verb)
            }
            Change::Delete { kind: Owned::Budget, name, .. } => {
                owner.about_budget(name, Verb::DeleteAny)
            }
            Change::SetGate { pod, closed_for, .. } => {
                about_pod(pod).patch("/status", &gate(pod, closed_for.as_deref(), now))
            }
            Change::PatchInPlace(patch) => {
                let body = in_place(patch).to_string().into_bytes();
                about_pod(&patch.pod).to_object("", Verb::Patch(Content::JsonPatch, body))
            }
            Change::PatchSidecars(it) => {
                let (content, body) = sidecars(it);
                let verb = Verb::Patch(content, body.to_string().into_bytes());
                about_pod(&it.pod).to_object("", verb)
            }
            Change::ResizePod { pod, resources, .. } => {
                about_pod(pod).patch("/resize", &resize(&pod.uid, resources))
            }
            Change::ApplyBudget(it) => {
                let body = it.budget.to_string().into_bytes();
                owner.about_budget(&it.name, Verb::Apply(body))
            }
            Change::ProbeGuard { budget } => owner.about_budget(budget, Verb::DryRunDelete),
        }
    }
}

/// Dry runs of what a pod leaves service for.
impl Request {
    /// Checks whether a pod may be deleted.
    pub(super) fn try_to_delete(pod: &PodRef) -> Self {
        about_pod(pod).to_object("", Verb::DryRunDelete)
    }

    /// Checks whether a running pod may be changed.
    pub(super) fn try_to_change(patch: &InPlacePatch) -> Self {
        let body = in_place(patch).to_string().into_bytes();
        about_pod(&patch.pod).to_object("", Verb::DryRunPatch(Content::JsonPatch, body))
    }

    /// Checks whether the containers of a pod may get these resources.
    pub(super) fn try_to_resize(pod: &PodRef, resources: &[(String, Value)]) -> Self {
        let body = resize(&pod.uid, resources).to_string().into_bytes();
        about_pod(pod).to_object("/resize", Verb::DryRunPatch(Content::StrategicPatch, body))
    }
}

fn about_pod(pod: &PodRef) -> Requested<'_> {
    Owner::about_in(&pod.namespace, Kind::Pod, &pod.name, &pod.uid)
}

/// A request about an object of a kind that is watched.
struct Requested<'a> {
    namespace: &'a str,
    kind: Kind,
    name: &'a str,
    uid: &'a str,
}

impl Requested<'_> {
    fn create(self, body: Vec<u8>) -> Request {
        self.to_collection(Verb::Create(body))
    }

    fn merge(self, body: &Value) -> Request {
        self.to_object("", Verb::Patch(Content::MergePatch, body.to_string().into_bytes()))
    }

    fn patch(self, subresource: &str, body: &Value) -> Request {
        let verb = Verb::Patch(Content::StrategicPatch, body.to_string().into_bytes());
        self.to_object(subresource, verb)
    }

    fn to_collection(&self, verb: Verb) -> Request {
        let path = self.kind.collection(Some(self.namespace));
        Request { object: self.object(), path, verb }
    }

    fn to_object(&self, subresource: &str, verb: Verb) -> Request {
        let path = self.kind.path(self.namespace, self.name) + subresource;
        Request { object: self.object(), path, verb }
    }

    fn object(&self) -> Object {
        Object {
            kind: Some(self.kind),
            namespace: self.namespace.to_owned(),
            name: self.name.to_owned(),
            uid: self.uid.to_owned(),
        }
    }
}

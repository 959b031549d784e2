//! The requests of writes: pure functions from a change to a path and a body.
//!
//! A patch contains preconditions, so that a decision on old data fails instead of doing harm. A patch of a pod names
//! the pod's uid, and a patch of the workload names the workload's resourceVersion. A pod's resourceVersion changes
//! with each status that the kubelet writes, so it is a precondition only if such a change makes the decision invalid.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use serde_json::{Map, Value, json};

use super::{
    Change, ClaimOwnership, ImageChange, InPlacePatch, NewRevision, NodePatch, Owned, RevisionData,
    SidecarPatch, WorkloadPatch,
};
use crate::api::{API_VERSION, names};
use crate::go_json;
use crate::observed::time::rounded_down;
use crate::observed::{Kind, PodRef, mark_key};

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

/// A strategic merge patch of a pod's labels and annotations.
fn metadata(
    pod: &PodRef,
    labels: &[(String, Option<String>)],
    annotations: &[(&str, Option<String>)],
) -> Value {
    let mut metadata = json!({"uid": pod.uid});
    require_version(&mut metadata, pod);
    if !labels.is_empty() {
        let labels = labels.iter().map(|(key, value)| (key.clone(), json!(value)));
        metadata["labels"] = labels.collect::<Map<_, _>>().into();
    }
    if !annotations.is_empty() {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value)));
        metadata["annotations"] = annotations.collect::<Map<_, _>>().into();
    }
    json!({"metadata": metadata})
}

/// A strategic merge patch of a claim's owner references.
fn claim_owners(change: &ClaimOwnership) -> Value {
    let removed = change.remove.iter();
    let removed = removed.map(|uid| json!({"$patch": "delete", "uid": uid}));
    let references: Vec<Value> = change.add.iter().cloned().chain(removed).collect();
    json!({"metadata": {"uid": change.uid, "ownerReferences": references}})
}

/// A strategic merge patch that makes the workload the controller of an orphan.
fn adopt(uid: &str, owner: &Owner) -> Value {
    json!({"metadata": {"uid": uid, "ownerReferences": [owner.owner_reference()]}})
}

/// A strategic merge patch that makes the owner the controller of a revision. An earlier set of the same name may still
/// be its controller, so the reference to a set replaces all others.
fn adopt_revision(uid: &str, number: Option<i64>, owner: &Owner) -> Value {
    let mut body = adopt(uid, owner);
    if owner.kind == Kind::SidecarSet
        && let Some(references) = body["metadata"]["ownerReferences"].as_array_mut()
    {
        references.push(json!({"$patch": "replace"}));
    }
    if let Some(number) = number {
        body["revision"] = json!(number);
    }
    body
}

/// A strategic merge patch that adds the workload's owner reference to a pod. What the pod shows of an earlier wait for
/// its deletion, in this workload or another one, is removed.
fn adopt_pod(uid: &str, owner: &Owner) -> Value {
    let mut body = adopt(uid, owner);
    body["metadata"]["annotations"] = no_wait();
    body
}

fn no_wait() -> Value {
    json!({names::DELETING_ANNOTATION: null, names::WAITING_SINCE_ANNOTATION: null})
}

/// A strategic merge patch that removes the workload's owner reference, the label of the guard, and what a pod shows of
/// its wait for its deletion.
fn release(uid: &str, owner: &Owner) -> Value {
    let removed = json!({"$patch": "delete", "uid": owner.uid});
    let labels = json!({names::GUARDED_LABEL: null});
    json!({
        "metadata": {
            "uid": uid, "ownerReferences": [removed], "labels": labels, "annotations": no_wait(),
        },
    })
}

/// Makes a patch with this metadata fail if the pod must be unchanged and is not.
fn require_version(metadata: &mut Value, pod: &PodRef) {
    if let Some(version) = pod.version {
        metadata["resourceVersion"] = json!(version.to_string());
    }
}

/// A strategic merge patch of a pod's status that closes the gate for a revision, or opens it.
fn gate(pod: &PodRef, closed_for: Option<&str>, now: Timestamp) -> Value {
    let (status, reason, message) = match closed_for {
        Some(revision) => {
            let message = format!("updated in place to {revision}");
            ("False", "InPlaceUpdate", message)
        }
        None => ("True", "NotUpdating", String::new()),
    };
    let condition = json!({
        "type": names::IN_PLACE_GATE,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": rounded_down(now),
    });
    let mut metadata = json!({"uid": pod.uid});
    require_version(&mut metadata, pod);
    json!({"metadata": metadata, "status": {"conditions": [condition]}})
}

/// The JSON patch of an in-place update.
fn in_place(patch: &InPlacePatch) -> Value {
    let revision_path = path("labels", names::REVISION_LABEL);
    let mut ops = vec![
        test("/metadata/uid", json!(patch.pod.uid)),
        test(
            &revision_path,
            match patch.from_revision.as_str() {
                "" => Value::Null,
                revision => json!(revision),
            },
        ),
    ];
    if let Some(version) = patch.pod.version {
        ops.push(test("/metadata/resourceVersion", json!(version.to_string())));
    }
    let tokens = patch.tokens.iter();
    ops.extend(tokens.map(|(key, mark)| test(&path("annotations", key), json!(mark))));
    ops.extend(patch.images.iter().flat_map(image));
    if !patch.annotated {
        ops.push(test("/metadata/annotations", Value::Null));
        ops.push(add("/metadata/annotations", json!({})));
    }
    let record = (names::IN_PLACE_RECORD.to_owned(), Some(patch.record.text()));
    let labels = patch.labels.iter().map(|entry| ("labels", entry));
    let annotations = patch.annotations.iter().chain([&record]);
    for (map, (key, value)) in labels.chain(annotations.map(|entry| ("annotations", entry))) {
        let path = path(map, key);
        // Removing a missing key would fail, so a key to be removed is added first.
        ops.push(add(&path, json!(value.as_deref().unwrap_or_default())));
        if value.is_none() {
            ops.push(json!({"op": "remove", "path": path}));
        }
    }
    Value::Array(ops)
}

fn image(change: &ImageChange) -> [Value; 3] {
    let list = if change.init { "initContainers" } else { "containers" };
    let path = |field: &str| format!("/spec/{list}/{}/{field}", change.index);
    [
        test(&path("name"), json!(change.name)),
        test(&path("image"), json!(change.from)),
        json!({"op": "replace", "path": path("image"), "value": change.to}),
    ]
}

fn test(path: &str, value: Value) -> Value {
    json!({"op": "test", "path": path, "value": value})
}

fn add(path: &str, value: Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

/// The path of a label or annotation in a JSON patch.
fn path(map: &str, key: &str) -> String {
    let key = key.replace('~', "~0").replace('/', "~1");
    format!("/metadata/{map}/{key}")
}

/// The patch of a pod by a SidecarSet. A new mark alone is a JSON patch, which tests the old mark, so it fails if a
/// workload has begun to update the pod. New images come in a strategic merge patch, which fails if the pod has changed;
/// its record says what to wait for, even after this process restarts.
fn sidecars(patch: &SidecarPatch) -> (Content, Value) {
    let key = mark_key(&patch.set);
    let Some((images, record)) = &patch.images else {
        let path = path("annotations", &key);
        let body = json!([
            test("/metadata/uid", json!(patch.pod.uid)),
            test(&path, json!(patch.from)),
            {"op": "replace", "path": path, "value": patch.to},
        ]);
        return (Content::JsonPatch, body);
    };
    let mut metadata = json!({"uid": patch.pod.uid});
    require_version(&mut metadata, &patch.pod);
    metadata["annotations"] = json!({key: patch.to, names::IN_PLACE_RECORD: record.text()});
    let mut body = json!({"metadata": metadata, "spec": {}});
    for (list, native) in [("containers", false), ("initContainers", true)] {
        let images = images.iter().filter(|it| it.native == native);
        let images = images.map(|it| json!({"name": it.container, "image": it.image}));
        let images: Vec<Value> = images.collect();
        if !images.is_empty() {
            body["spec"][list] = Value::Array(images);
        }
    }
    (Content::StrategicPatch, body)
}

/// A merge patch of a node that has not changed.
fn node(patch: &NodePatch) -> Value {
    let mut body = json!({"metadata": {
        "uid": patch.uid, "resourceVersion": patch.resource_version,
        "annotations": {names::NODE_RECORD: patch.record},
    }});
    if let Some(cordon) = patch.cordon {
        body["spec"] = json!({"unschedulable": cordon});
    }
    body
}

/// The JSON patch that removes the taint. It fails if the node was replaced or the index of the taint has changed.
fn without_taint(uid: &str, taint: usize) -> Value {
    let taint = format!("/spec/taints/{taint}");
    json!([
        test("/metadata/uid", json!(uid)),
        test(&format!("{taint}/key"), json!(names::NOT_INSTALLED_TAINT)),
        {"op": "remove", "path": taint},
    ])
}

/// A strategic merge patch for the resize subresource.
fn resize(uid: &str, resources: &[(String, Value)]) -> Value {
    let containers: Vec<Value> = resources
        .iter()
        .map(|(name, resources)| json!({"name": name, "resources": resources}))
        .collect();
    json!({"metadata": {"uid": uid}, "spec": {"containers": containers}})
}

/// The new ControllerRevision.
pub(super) fn revision(new: &NewRevision, owner: &Owner) -> Value {
    let mut labels: Map<String, Value> =
        owner.revision_labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let spec = match &new.data {
        RevisionData::Sidecars(content) => content.clone(),
        RevisionData::Template(template) => {
            labels.insert(names::REVISION_LABEL.to_owned(), json!(new.name));
            let mut template = template.parse();
            if let Some(fields) = template.as_object_mut() {
                fields.insert("$patch".to_owned(), json!("replace"));
            }
            json!({"template": template})
        }
    };
    let causes = new.cause.iter();
    let annotations: Map<String, Value> =
        causes.map(|cause| (names::CHANGE_CAUSE.to_owned(), json!(cause))).collect();
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": new.name,
            "namespace": owner.revision_namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner.owner_reference()],
        },
        "data": {"spec": spec},
        "revision": new.number,
    })
}

/// A merge patch of the workload itself.
fn workload(patch: &WorkloadPatch, resource_version: &str) -> Value {
    let mut body = json!({"metadata": {"resourceVersion": resource_version}});
    if !patch.annotations.is_empty() {
        let annotations: Map<String, Value> =
            patch.annotations.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        body["metadata"]["annotations"] = Value::Object(annotations);
    }
    if let Some(paused) = patch.paused {
        body["spec"]["updateStrategy"]["paused"] = json!(paused);
    }
    for point in &patch.retry_off {
        if let Some(field) = point.strategy_field() {
            body["spec"][field]["retry"] = json!(false);
        }
    }
    if let Some(finalizers) = &patch.finalizers {
        body["metadata"]["finalizers"] = json!(finalizers);
    }
    if let Some(names) = &patch.pods_to_delete {
        body["spec"]["scaleStrategy"]["podsToDelete"] = json!(names);
    }
    if let Some(template) = &patch.template {
        body["spec"]["template"] = template.clone();
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::HookPoint;
    use crate::observed::InPlaceRecord;

    fn patch() -> InPlacePatch {
        InPlacePatch {
            pod: PodRef {
                namespace: "games".into(),
                name: "lobby-aaaaa".into(),
                uid: "pod-uid".into(),
                version: None,
                allowed_until: None,
            },
            from_revision: "lobby-1".into(),
            images: vec![ImageChange {
                init: false,
                index: 0,
                name: "game".into(),
                from: "game:v1".into(),
                to: "game:v2".into(),
            }],
            labels: vec![(names::REVISION_LABEL.into(), Some("lobby-2".into()))],
            annotated: true,
            annotations: vec![(names::DELETING_ANNOTATION.into(), None)],
            tokens: Vec::new(),
            record: InPlaceRecord::default(),
        }
    }

    /// The pod after the patch, or an error if the patch does not apply.
    fn patched(pod: &Value, patch: &Value) -> Result<Value, json_patch::PatchError> {
        let mut pod = pod.clone();
        let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
        json_patch::patch(&mut pod, &patch)?;
        Ok(pod)
    }

    fn pod(annotations: &Value) -> Value {
        json!({
            "metadata": {
                "uid": "pod-uid",
                "labels": {names::REVISION_LABEL: "lobby-1"},
                "annotations": annotations,
            },
            "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
        })
    }

    #[test]
    fn an_in_place_update_is_one_patch_that_tests_its_preconditions() {
        let before = pod(&json!({names::DELETING_ANNOTATION: "true"}));
        let after = patched(&before, &in_place(&patch())).unwrap();
        assert_eq!(after["spec"]["containers"][0]["image"], "game:v2");
        assert_eq!(after["metadata"]["labels"][names::REVISION_LABEL], "lobby-2");
        let annotations = after["metadata"]["annotations"].as_object().unwrap();
        assert!(annotations.contains_key(names::IN_PLACE_RECORD));
        assert!(!annotations.contains_key(names::DELETING_ANNOTATION));
        let mut with_version = patch();
        with_version.pod.version = Some(7);
        for (version, applies) in [("7", true), ("8", false)] {
            let mut pod = before.clone();
            pod["metadata"]["resourceVersion"] = json!(version);
            assert_eq!(patched(&pod, &in_place(&with_version)).is_ok(), applies);
        }
        for (path, value) in [
            ("/metadata/uid", "another"),
            ("/spec/containers/0/image", "game:v3"),
            ("/spec/containers/0/name", "sidecar"),
        ] {
            let mut changed = before.clone();
            *changed.pointer_mut(path).unwrap() = json!(value);
            assert!(patched(&changed, &in_place(&patch())).is_err(), "{path}");
        }
    }

    #[test]
    fn annotations_are_added_to_a_pod_that_has_none() {
        let bare = InPlacePatch { annotated: false, ..patch() };
        let after = patched(&pod(&Value::Null), &in_place(&bare)).unwrap();
        let annotations = after["metadata"]["annotations"].as_object().unwrap();
        assert!(annotations.contains_key(names::IN_PLACE_RECORD));
        let changed = pod(&json!({"another": "client"}));
        assert!(patched(&changed, &in_place(&bare)).is_err());
    }

    #[test]
    fn an_in_place_update_fails_once_a_sidecar_token_is_withdrawn() {
        let key = "sidecars.gamekeeper.tkex.tencent.com/log".to_owned();
        let with_token =
            InPlacePatch { tokens: vec![(key.clone(), "with token".into())], ..patch() };
        for (mark, applies) in [("with token", true), ("withdrawn", false)] {
            let pod = pod(&json!({key.as_str(): mark}));
            assert_eq!(patched(&pod, &in_place(&with_token)).is_ok(), applies);
        }
    }

    #[test]
    fn removing_a_missing_annotation_is_not_an_error() {
        let after = patched(&pod(&json!({"a": "b"})), &in_place(&patch())).unwrap();
        let annotations = after["metadata"]["annotations"].as_object().unwrap();
        assert!(!annotations.contains_key(names::DELETING_ANNOTATION));
    }

    #[test]
    fn times_are_written_in_whole_seconds() {
        let now: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let body = gate(&patch().pod, Some("lobby-2"), now);
        let condition = &body["status"]["conditions"][0];
        assert_eq!(condition["lastTransitionTime"], "2026-01-02T03:04:05Z");
    }

    #[test]
    fn only_the_operators_own_taint_is_removed() {
        let patch = without_taint("u", 2);
        assert_eq!(patch[1]["path"], "/spec/taints/2/key");
        assert_eq!(patch[1]["value"], names::NOT_INSTALLED_TAINT);
        assert_eq!(patch[2]["path"], "/spec/taints/2");
    }

    #[test]
    fn a_workload_patch_names_only_what_changes() {
        let patch = WorkloadPatch {
            paused: Some(true),
            annotations: vec![("a".into(), Some("b".into())), ("c".into(), None)],
            retry_off: vec![HookPoint::PreDelete],
            pods_to_delete: None,
            finalizers: Some(vec!["f".into()]),
            template: Some(json!({"metadata": {"labels": {"old": null}}})),
        };
        let expected = json!({
            "metadata": {"resourceVersion": "7", "annotations": {"a": "b", "c": null}, "finalizers": ["f"]},
            "spec": {
                "updateStrategy": {"paused": true},
                "preDeleteUpdateStrategy": {"retry": false},
                "template": {"metadata": {"labels": {"old": null}}},
            },
        });
        assert_eq!(workload(&patch, "7"), expected);
    }
}

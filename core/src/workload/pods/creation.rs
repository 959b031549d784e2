//! The pods that a workload creates: their names and their specs.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::api::{JsonText, names};
use crate::sidecar_set::inject;
use crate::workload::pods::index;
use crate::workload::spec::Workload;
use crate::workload::spec::guarded::guard_annotations;
use crate::workload::spec::identity;
use crate::workload::world::{Revision, World};
use crate::write::{NewPod, without_side_effects};

/// The maximum number of pods that one plan creates; the next plan continues. Without this limit, a few zeros too many
/// in the `replicas` of one workload would fill the operator's memory, and so affect all other workloads.
const MAX_CREATIONS: usize = 1_000;
/// The maximum length of the pods that one plan creates, in bytes of JSON, for the same reason: a template may be 1 MB.
const MAX_CREATED_BYTES: usize = 2 << 20;

/// The maximum number of pods that one plan for this workload creates.
pub(crate) fn max_creations(workload: &Workload) -> usize {
    MAX_CREATIONS.min(MAX_CREATED_BYTES / workload.template_bytes.max(1)).max(1)
}

/// Names for new pods, as a function of the observed pods (invariant 10). If two operators, or one before and after a
/// crash, ever plan from the same observations, they try to create pods of the same names, and the API server refuses
/// to create them twice.
pub(crate) struct PodNames<'a> {
    workload: &'a Workload<'a>,
    world: &'a World,
    /// Names of existing pods, and of other objects.
    taken: HashSet<&'a str>,
    /// Names that have been used for new pods.
    used: HashSet<String>,
    /// The newest resourceVersion of a pod.
    newest: u64,
    /// The number from which the next name is made.
    next: u64,
    /// The template of the last new pod, with its revision's name: most pods of a plan have the same one.
    template: Option<(String, Value)>,
}

impl<'a> PodNames<'a> {
    /// Names that neither existing pods nor other objects have.
    pub(crate) fn new(workload: &'a Workload<'a>, world: &'a World) -> Self {
        let pods = world.pods.iter().map(|pod| pod.name.as_str());
        let versions = world.pods.iter().map(|pod| pod.resource_version);
        Self {
            workload,
            world,
            taken: pods.chain(world.memory.taken.iter().map(String::as_str)).collect(),
            used: HashSet::new(),
            newest: versions.max().unwrap_or(0),
            next: 0,
            template: None,
        }
    }

    fn next_instance(&mut self) -> String {
        loop {
            let Workload { uid, generation, .. } = self.workload;
            let id = names::instance_id(
                format!("{uid}/{generation}/{}/{}", self.newest, self.next).as_bytes(),
            );
            self.next += 1;
            let name = format!("{}-{id}", self.workload.name);
            if !self.taken.contains(name.as_str()) && self.used.insert(name) {
                return id;
            }
        }
    }

    /// A new pod of a revision, with its index if it gets one.
    pub(crate) fn new_pod(&mut self, revision: &Revision, index: Option<u32>) -> NewPod {
        let id = self.next_instance();
        let name = format!("{}-{id}", self.workload.name);
        let (workload, world) = (self.workload, self.world);
        let template = self.template_of(revision);
        let mut pod = pod_of(workload, world, &revision.name, template, &name);
        pod["metadata"]["labels"][names::INSTANCE_LABEL] = Value::String(id);
        if let Some(index) = index {
            index::set(index, &mut pod);
        }
        inject(&mut pod, &self.world.sidecars);
        new_pod(name, revision, &pod)
    }

    fn template_of(&mut self, revision: &Revision) -> &Value {
        let known = self.template.take();
        let known = known.filter(|(name, _)| *name == revision.name);
        let known = known.unwrap_or_else(|| (revision.name.clone(), revision.template.parse()));
        &self.template.insert(known).1
    }
}

fn new_pod(name: String, revision: &Revision, pod: &Value) -> NewPod {
    let gates = pod["spec"]["readinessGates"].as_array();
    let mut gates = gates.into_iter().flatten();
    NewPod {
        name,
        revision: revision.name.clone(),
        pod: JsonText::from(pod),
        has_gate: gates.any(|gate| gate["conditionType"] == names::IN_PLACE_GATE),
    }
}

/// A new pod with this ordinal.
pub(crate) fn pod_with_ordinal(
    workload: &Workload,
    world: &World,
    ordinal: i64,
    revision: &Revision,
) -> NewPod {
    let name = workload.pod_name(ordinal);
    let template = revision.template.parse();
    let mut pod = pod_of(workload, world, &revision.name, &template, &name);
    if let Some(identity) = &workload.identity {
        identity::assign(identity, ordinal, &mut pod);
    }
    inject(&mut pod, &world.sidecars);
    new_pod(name, revision, &pod)
}

/// A pod for a dry run; it is not stored.
pub(crate) fn dry_run_pod(workload: &Workload, world: &World, revision: &Revision) -> Value {
    let name = format!("{}-dry-run", workload.name);
    let template = revision.template.parse();
    let mut pod = pod_of(workload, world, &revision.name, &template, &name);
    if let Some(identity) = &workload.identity {
        identity::assign(identity, identity.start, &mut pod);
    }
    inject(&mut pod, &world.sidecars);
    without_side_effects(pod)
}

/// A pod of a revision.
fn pod_of(
    workload: &Workload,
    world: &World,
    revision: &str,
    template: &Value,
    name: &str,
) -> Value {
    let part = |path: &str| template.pointer(path).filter(|it| !it.is_null()).cloned();
    let mut labels = part("/metadata/labels").unwrap_or_else(|| json!({}));
    labels[names::REVISION_LABEL] = json!(revision);
    // The label is set from the start, so that no other client can delete the pod before it is guarded.
    let is_guarded = workload.labels_new_pods();
    if is_guarded {
        labels[names::GUARDED_LABEL] = Value::String(workload.uid.clone());
    } else if let Some(labels) = labels.as_object_mut() {
        labels.remove(names::GUARDED_LABEL);
    }
    let mut metadata = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("namespace".to_owned(), json!(workload.namespace)),
        ("labels".to_owned(), labels),
        ("ownerReferences".to_owned(), json!([workload.owner_reference()])),
    ]);
    for field in ["annotations", "finalizers"] {
        if let Some(value) = part(&format!("/metadata/{field}")) {
            metadata.insert(field.to_owned(), value);
        }
    }
    if is_guarded {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        for (key, value) in guard_annotations(template) {
            annotations[key] = json!(value);
        }
    }
    // With an index in the template, all pods would have the same one.
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(names::INDEX_ID);
    }
    let mut spec = part("/spec").unwrap_or_else(|| json!({}));
    if workload.gated {
        add_gate(&mut spec);
    }
    let class = world.priority_class.as_ref().filter(|_| is_guarded);
    if let Some(class) = class
        && spec["priorityClassName"].as_str().unwrap_or_default() == ""
    {
        spec["priorityClassName"] = json!(class.as_ref());
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// Adds the readiness gate that keeps traffic from a pod while it is updated.
fn add_gate(spec: &mut Value) {
    let gates = spec.get("readinessGates").and_then(Value::as_array).cloned().unwrap_or_default();
    if gates.iter().any(|gate| gate.get("conditionType") == Some(&json!(names::IN_PLACE_GATE))) {
        return;
    }
    let gates: Vec<Value> =
        gates.into_iter().chain([json!({"conditionType": names::IN_PLACE_GATE})]).collect();
    spec["readinessGates"] = Value::Array(gates);
}

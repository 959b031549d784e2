//! What the rules say of a pod, and the pods they make.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::draft::Draft;
use super::in_place::is_under_way;
use super::workload::UpdateType;
use super::{Action, Gate, NewPod, Pod, PodRef, Workload, World, hot_patch, identity};
use crate::api::names;

/// Pods that the workload controls. Orphans that it selects are taken over, and pods that it no
/// longer selects let go. An orphan that ended is adopted only where its name is an ordinal's:
/// there it must be replaced.
pub fn own_pods<'a>(workload: &Workload, world: &'a World, draft: &mut Draft) -> Vec<&'a Pod> {
    let mut own = Vec::new();
    for pod in world.pods.iter().map(AsRef::as_ref) {
        let is_member = workload.is_member(pod);
        match &pod.controller {
            Some(uid) if *uid == workload.uid && is_member => own.push(pod),
            Some(uid) if *uid == workload.uid && !pod.terminating => {
                draft.push(Action::ReleasePod(PodRef::of(pod)))
            }
            None if is_member && !pod.terminating && is_of_use(workload, pod) => {
                draft.push(Action::AdoptPod(PodRef::of(pod)));
            }
            _ => {}
        }
    }
    own
}

/// Whether adopting an orphan leads anywhere: one that ended is only in the way, where its name is
/// an ordinal's.
fn is_of_use(workload: &Workload, orphan: &Pod) -> bool {
    !orphan.ended() || workload.identity.is_some()
}

/// Those that neither ended nor are Terminating.
pub fn active<'a>(own: &[&'a Pod]) -> Vec<&'a Pod> {
    let is_active = |pod: &&&Pod| !pod.terminating && !pod.ended();
    own.iter().filter(is_active).copied().collect()
}

/// Whether a pod is available: ready for minReadySeconds, and no change of it is under way.
pub fn is_available(pod: &Pod, workload: &Workload, now: Timestamp) -> bool {
    available_at(pod, workload).is_some_and(|at| at <= now)
}

/// When a pod that stays ready is available. Without minReadySeconds that is no question of time: the
/// clock of the kubelet, which says since when it is ready, may be ahead of ours.
pub fn available_at(pod: &Pod, workload: &Workload) -> Option<Timestamp> {
    if pod.terminating
        || is_under_way(pod)
        || hot_patch::is_under_way(pod)
        || pod.gate == Gate::Unset
    {
        return None;
    }
    let since = pod.ready_since?;
    match workload.min_ready.is_zero() {
        true => Some(Timestamp::MIN),
        false => since.checked_add(workload.min_ready).ok(),
    }
}

/// Names for new pods, the same for everybody who has seen the same pods: should two operators, or
/// one before and after a crash, ever plan from the same past, they make the same pods, and the API
/// server refuses the second one.
pub struct PodNames<'a> {
    workload: &'a Workload<'a>,
    taken: BTreeSet<String>,
    newest: u64,
    next: u64,
}

impl<'a> PodNames<'a> {
    /// Names beside those of the pods that are there.
    pub fn new(workload: &'a Workload<'a>, world: &World) -> Self {
        let mut newest = 0;
        let pods = world.pods.iter().map(|pod| {
            newest = newest.max(pod.resource_version);
            pod.name.clone()
        });
        let taken = pods.chain(world.taken.iter().cloned()).collect();
        Self {
            workload,
            taken,
            newest,
            next: 0,
        }
    }

    fn next_instance(&mut self) -> String {
        loop {
            let Workload {
                uid, generation, ..
            } = self.workload;
            let id = names::instance_id(
                format!("{uid}/{generation}/{}/{}", self.newest, self.next).as_bytes(),
            );
            self.next += 1;
            if self.taken.insert(format!("{}-{id}", self.workload.name)) {
                return id;
            }
        }
    }

    /// A new pod of a revision.
    pub fn new_pod(&mut self, revision: &str, template: &Value) -> NewPod {
        let id = self.next_instance();
        let name = format!("{}-{id}", self.workload.name);
        let mut pod = pod_of(self.workload, revision, template, &name);
        pod["metadata"]["labels"][names::INSTANCE_LABEL] = Value::String(id);
        NewPod {
            name,
            revision: revision.to_owned(),
            pod,
        }
    }
}

/// The pod of an ordinal.
pub fn pod_with_ordinal(
    workload: &Workload,
    ordinal: i64,
    revision: &str,
    template: &Value,
) -> NewPod {
    let name = workload.pod_name(ordinal);
    let mut pod = pod_of(workload, revision, template, &name);
    if let Some(identity) = &workload.identity {
        identity::give(workload, identity, ordinal, &mut pod);
    }
    NewPod {
        name,
        revision: revision.to_owned(),
        pod,
    }
}

/// A pod to ask the API server about; nothing of it stays.
pub fn dry_run_pod(workload: &Workload, revision: &str, template: &Value) -> Value {
    let name = format!("{}-dry-run", workload.name);
    let mut pod = pod_of(workload, revision, template, &name);
    if let Some(identity) = &workload.identity {
        identity::give(workload, identity, identity.start, &mut pod);
    }
    pod
}

/// The pod that a template stands for.
fn pod_of(workload: &Workload, revision: &str, template: &Value, name: &str) -> Value {
    let part = |path: &str| template.pointer(path).filter(|it| !it.is_null()).cloned();
    let mut labels = part("/metadata/labels").unwrap_or_else(|| json!({}));
    labels[names::REVISION_LABEL] = Value::String(revision.to_owned());
    let mut metadata = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("namespace".to_owned(), json!(workload.namespace)),
        ("labels".to_owned(), labels),
        (
            "ownerReferences".to_owned(),
            json!([workload.owner_reference()]),
        ),
    ]);
    for field in ["annotations", "finalizers"] {
        if let Some(value) = part(&format!("/metadata/{field}")) {
            metadata.insert(field.to_owned(), value);
        }
    }
    let mut spec = part("/spec").unwrap_or_else(|| json!({}));
    if workload.update == UpdateType::InplaceUpdate {
        add_gate(&mut spec);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// Adds the readiness gate that keeps traffic from a pod while it is updated.
fn add_gate(spec: &mut Value) {
    let gates = spec
        .get("readinessGates")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    if gates
        .iter()
        .any(|gate| gate.get("conditionType") == Some(&json!(names::IN_PLACE_GATE)))
    {
        return;
    }
    let gates: Vec<Value> = gates
        .into_iter()
        .chain([json!({"conditionType": names::IN_PLACE_GATE})])
        .collect();
    spec["readinessGates"] = Value::Array(gates);
}

//! Converts a pod from the API server to the slim [`Pod`] that the planner reads.
//!
//! The conversion depends only on the pod's previous and new state. It needs the previous state because the first
//! status of a generation is known only from the transition (see [`FirstStatus`]).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::bcs;
use super::resources;
use crate::runtime::control::{Control, control};
use crate::runtime::log_limiter::log_limited;
use crate::runtime::reflector::Origin;
use crate::runtime::watch::version_number;
use gamekeeper_core::api::{AnnotationLimits, names};
use gamekeeper_core::observed::{
    Container, ContainerStatus, Disruption, FirstStatus, Gate, InPlaceRecord, Labels, MoveRequest,
    Pod, PodPhase, Qos, QosClass, Resize, is_guaranteed, sidecar_marks,
};
use gamekeeper_core::text::truncate;

/// Strings that many pods share.
#[derive(Default)]
pub struct Interner {
    texts: HashSet<Arc<str>>,
    /// The size at which unused strings are dropped.
    limit: usize,
}

/// The longest reason in a pod's status that is kept, in characters. All who may write the status choose it.
const MAX_REASON: usize = 1_000;

/// The smallest limit of an interner.
const MIN_LIMIT: usize = 4096;

impl Interner {
    /// The shared string that is equal to this one.
    pub fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        if self.texts.len() >= self.limit {
            self.texts.retain(|known| Arc::strong_count(known) > 1);
            // Twice the number in use: with a limit close to it, each new string would cause another pass.
            self.limit = MIN_LIMIT.max(2 * self.texts.len());
        }
        let shared: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&shared));
        shared
    }
}

/// The slim form of a pod; None if its controller is not a workload of this operator. Orphans have a slim form.
pub(super) fn slim(
    previous: Option<&Pod>,
    origin: Origin,
    pod: core::Pod,
    interner: &mut Interner,
) -> Option<Pod> {
    let controller = match control(&pod.metadata) {
        Control::Ours(uid) => Some(uid),
        Control::None => None,
        Control::Foreign => return None,
    };
    Some(slim_with_controller(previous, origin, controller, pod, interner))
}

/// The slim form of any pod. `controller` is the uid of the workload that controls it; None if no workload does.
pub(super) fn slim_with_controller(
    previous: Option<&Pod>,
    origin: Origin,
    controller: Option<String>,
    pod: core::Pod,
    interner: &mut Interner,
) -> Pod {
    let meta = pod.metadata;
    let spec = pod.spec.unwrap_or_default();
    let status = pod.status.unwrap_or_default();
    let annotations = meta.annotations.unwrap_or_default();
    let labels = Labels::new(meta.labels.unwrap_or_default(), |revision| interner.share(revision));
    let revision = labels.revision();
    let gate = gate(&spec, &status);
    let containers = containers(&spec, &status, interner);
    // If the operator of bk-bcs has left a record as well, the one for the revision in the pod's label applies.
    let record = match record(&annotations, previous) {
        Some(record) if record.revision == revision => Some(record),
        other => bcs::record(&annotations, revision, gate, &containers).or(other),
    };
    let trouble = trouble::trouble(
        &Seen {
            created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |it| it.0),
            deletion: meta.deletion_timestamp.as_ref().map(|it| it.0),
            finalizers: meta.finalizers.as_deref().unwrap_or_default(),
            spec: &spec,
            status: &status,
            record: record.as_deref(),
        },
        previous.filter(|previous| Some(&previous.uid) == meta.uid.as_ref()),
    );
    let mut slim = Pod {
        trouble,
        postponed: bcs::postponed(&annotations, revision),
        namespace: meta.namespace.unwrap_or_default(),
        name: meta.name.unwrap_or_default(),
        uid: meta.uid.unwrap_or_default(),
        resource_version: version_number(&meta.resource_version.unwrap_or_default()),
        generation: meta.generation.unwrap_or_default(),
        created: meta.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        terminating: meta.deletion_timestamp.is_some(),
        labels,
        controller,
        deletion_cost: cost(annotations.get(names::POD_DELETION_COST)),
        annotated: !annotations.is_empty(),
        marked_deleting: annotations.get(names::DELETING_ANNOTATION).is_some_and(|it| it == "true"),
        waiting_since: annotations
            .get(names::WAITING_SINCE_ANNOTATION)
            .map(|it| it.parse().unwrap_or(Timestamp::UNIX_EPOCH)),
        move_requested: annotations.get(names::MOVE_ANNOTATION).map(|it| match it.as_str() {
            names::MOVE_NODE_GOING => MoveRequest::NodeGoing,
            _ => MoveRequest::User,
        }),
        released: annotations.contains_key(names::RELEASED_ANNOTATION),
        hot_patched: annotations.contains_key(names::HOT_PATCH_ANNOTATION),
        index: annotations.get(names::INDEX_ID).and_then(|index| index.parse().ok()),
        sidecars: sidecar_marks(&annotations),
        record,
        phase: phase(status.phase.as_deref()),
        disruption: disruption(&status),
        ended_at_once: ended_at_once(&status),
        ready_since: ready_since(&status),
        gate,
        resize: resize(&status),
        qos: qos(&spec, &status),
        overhead: overhead(&spec, interner),
        observed_generation: status.observed_generation.unwrap_or_default(),
        containers,
        node: spec.node_name,
        pod_ip: status.pod_ip,
        host_ip: status.host_ip,
        first_status: None,
    };
    slim.first_status = first_status(previous, origin, &slim);
    slim
}

/// A deletion cost in millionths; 0 if it is not a number, as in Kubernetes.
pub(super) fn cost(annotation: Option<&String>) -> i64 {
    let cost = annotation.and_then(|cost| cost.parse::<f64>().ok());
    // The cast saturates, and turns NaN into 0.
    cost.map_or(0, |cost| (cost * 1e6) as i64)
}

fn record(
    annotations: &BTreeMap<String, String>,
    previous: Option<&Pod>,
) -> Option<Arc<InPlaceRecord>> {
    let text = annotations.get(names::IN_PLACE_RECORD)?;
    let record = AnnotationLimits::PER_CONTAINER.read::<InPlaceRecord>(text);
    let Some(record) = record else {
        let annotation = names::IN_PLACE_RECORD;
        log_limited!(
            warn,
            annotation,
            "ignoring an annotation of a pod that is no record of an in-place update"
        );
        return None;
    };
    match previous.and_then(|pod| pod.record.clone()) {
        Some(same) if *same == record => Some(same),
        _ => Some(Arc::new(record)),
    }
}

pub(super) fn phase(phase: Option<&str>) -> PodPhase {
    match phase {
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some("Unknown") => PodPhase::Unknown,
        _ => PodPhase::Pending,
    }
}

/// Why a pod ended, if none of its containers ran for ten seconds.
fn ended_at_once(status: &core::PodStatus) -> Option<Arc<str>> {
    if !matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")) {
        return None;
    }
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let reported = lists.into_iter().flatten().flatten();
    if !reported.clone().all(ran_briefly) {
        return None;
    }
    let reasons = [&status.reason, &status.message].into_iter().flatten();
    let reasons: Vec<&str> = reasons.map(String::as_str).collect();
    let container_reason = |it: &core::ContainerStatus| {
        let ended = it.state.as_ref()?.terminated.as_ref()?;
        Some(format!("container {} ended with exit code {}", it.name, ended.exit_code))
    };
    let why = match reasons.is_empty() {
        true => reported.rev().find_map(container_reason).unwrap_or_default(),
        false => reasons.join(": "),
    };
    Some(truncate(&why, MAX_REASON).into())
}

/// Whether a container never started, or ran once for less than ten seconds. False if that is unknown.
fn ran_briefly(container: &core::ContainerStatus) -> bool {
    const MIN_RUN: SignedDuration = SignedDuration::from_secs(10);
    let state = container.state.clone().unwrap_or_default();
    let earlier = container.last_state.as_ref();
    if state.running.is_some()
        || container.restart_count > 0
        || earlier.is_some_and(|it| it.terminated.is_some())
    {
        return false;
    }
    state.terminated.is_none_or(|ended| {
        let times = ended.started_at.zip(ended.finished_at);
        times.is_some_and(|(from, to)| to.0.duration_since(from.0) < MIN_RUN)
    })
}

fn condition<'a>(status: &'a core::PodStatus, type_: &str) -> Option<&'a core::PodCondition> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == type_)
}

fn disruption(status: &core::PodStatus) -> Option<Disruption> {
    let target = condition(status, "DisruptionTarget").filter(|it| it.status == "True")?;
    Some(match target.reason.as_deref() {
        Some("EvictionByEvictionAPI") => Disruption::Eviction,
        Some("PreemptionByScheduler") => Disruption::Preemption,
        Some("DeletionByTaintManager") => Disruption::Taint,
        Some("DeletionByPodGC") => Disruption::LostNode,
        Some("TerminationByKubelet") => Disruption::Kubelet,
        _ => Disruption::Other,
    })
}

fn time_or_epoch(time: Option<&Time>) -> Timestamp {
    time.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

fn ready_since(status: &core::PodStatus) -> Option<Timestamp> {
    let ready = condition(status, "Ready")?;
    (ready.status == "True").then(|| time_or_epoch(ready.last_transition_time.as_ref()))
}

fn gate(spec: &core::PodSpec, status: &core::PodStatus) -> Gate {
    let gates = spec.readiness_gates.as_deref().unwrap_or_default();
    if !gates.iter().any(|gate| gate.condition_type == names::IN_PLACE_GATE) {
        return Gate::None;
    }
    match condition(status, names::IN_PLACE_GATE) {
        None => Gate::Unset,
        Some(gate) if gate.status == "True" => Gate::Open,
        Some(gate) => Gate::Closed(time_or_epoch(gate.last_transition_time.as_ref())),
    }
}

fn resize(status: &core::PodStatus) -> Resize {
    let is_true = |found: &&core::PodCondition| found.status == "True";
    if let Some(pending) = condition(status, "PodResizePending").filter(is_true) {
        let message = truncate(pending.message.as_deref().unwrap_or_default(), MAX_REASON);
        return match pending.reason.as_deref() {
            Some("Infeasible") => Resize::Infeasible(message),
            _ => Resize::Deferred(message),
        };
    }
    match condition(status, "PodResizeInProgress").filter(is_true) {
        Some(_) => Resize::InProgress,
        None => Resize::Settled,
    }
}

/// The QoS class, unless resources of the pod as a whole decide it.
fn qos(spec: &core::PodSpec, status: &core::PodStatus) -> Option<Qos> {
    let class = QosClass::of(status.qos_class.as_deref()?).filter(|_| spec.resources.is_none())?;
    let init = spec.init_containers.iter().flatten();
    let mut ending = init.filter(|it| it.restart_policy.as_deref() != Some("Always"));
    let init_guaranteed = ending.all(|it| is_guaranteed(&serde_json::json!(it.resources)));
    Some(Qos { class, init_guaranteed })
}

/// What the RuntimeClass of a pod adds to its resources, as JSON.
fn overhead(spec: &core::PodSpec, interner: &mut Interner) -> Option<Arc<str>> {
    let overhead = spec.overhead.as_ref().filter(|it| !it.is_empty())?;
    Some(interner.share(&serde_json::json!(overhead).to_string()))
}

/// The regular containers, and after them the native sidecars.
fn containers(
    spec: &core::PodSpec,
    status: &core::PodStatus,
    interner: &mut Interner,
) -> Vec<Container> {
    let regular = spec.containers.iter().enumerate().map(|indexed| (false, indexed));
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let sidecars = init
        .iter()
        .enumerate()
        .filter(|(_, container)| container.restart_policy.as_deref() == Some("Always"))
        .map(|indexed| (true, indexed));
    let mut containers: Vec<Container> = regular
        .chain(sidecars)
        .map(|(init, (index, container))| {
            let statuses = match init {
                true => status.init_container_statuses.as_deref(),
                false => status.container_statuses.as_deref(),
            };
            let reported = statuses
                .unwrap_or_default()
                .iter()
                .find(|reported| reported.name == container.name);
            let wanted = container.resources.as_ref();
            Container {
                name: container.name.clone(),
                index,
                init,
                image: container.image.clone().unwrap_or_default(),
                resources: interner.share(&resources::canonical(wanted)),
                status: reported.map(|reported| container_status(reported, wanted)),
            }
        })
        .collect();
    containers.shrink_to_fit();
    containers
}

fn container_status(
    reported: &core::ContainerStatus,
    wanted: Option<&core::ResourceRequirements>,
) -> ContainerStatus {
    ContainerStatus {
        image: reported.image.clone(),
        image_id: reported.image_id.clone(),
        container_id: reported.container_id.clone().unwrap_or_default(),
        restart_count: reported.restart_count,
        ready: reported.ready,
        running: is_running(reported),
        started_at: started_at(reported),
        resources_applied: resources::applied(wanted, reported.resources.as_ref()),
    }
}

/// Whether a container runs. A container that has no state counts as waiting, as in the API, unless it is
/// ready.
fn is_running(reported: &core::ContainerStatus) -> bool {
    let state = reported.state.as_ref();
    let is_stopped = state.is_some_and(|it| it.waiting.is_some() || it.terminated.is_some());
    state.is_some_and(|it| it.running.is_some()) || (reported.ready && !is_stopped)
}

fn started_at(reported: &core::ContainerStatus) -> Option<Timestamp> {
    let running = reported.state.as_ref()?.running.as_ref()?;
    running.started_at.as_ref().map(|time| time.0)
}

/// The first status of the pod's generation, if it is known.
///
/// It becomes known when the watch shows that the kubelet's observedGeneration has just reached the generation, and
/// remains known until the generation changes.
fn first_status(previous: Option<&Pod>, origin: Origin, pod: &Pod) -> Option<FirstStatus> {
    let previous = previous.filter(|previous| previous.uid == pod.uid)?;
    let known = previous.first_status.as_ref();
    if let Some(known) = known.filter(|known| known.generation == pod.generation) {
        return Some(known.clone());
    }
    let arrived =
        previous.observed_generation < pod.generation && pod.observed_generation == pod.generation;
    (origin == Origin::Watch && arrived).then(|| FirstStatus {
        generation: pod.generation,
        container_ids: pod.containers.iter().map(container_id).collect(),
    })
}

fn container_id(container: &Container) -> String {
    let status = container.status.as_ref();
    status.map_or_else(String::new, |status| status.container_id.clone())
}

mod trouble;

use trouble::Seen;

#[cfg(test)]
mod tests;

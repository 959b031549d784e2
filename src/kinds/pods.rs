//! The cached forms of pods: slim for pods of our workloads, minimal for all others.
//!
//! One watch delivers all pods of the cluster, because no selector matches only ours: a watch cannot select by owner
//! reference, and users may change labels. A pod that lost a selected label would vanish from the cache even though
//! a match is still being played in it. So each event is first parsed as far as the owner references. Pods of other
//! controllers are dropped at that point, unless a SidecarSet reaches their namespace. The minimal form of a pod holds
//! only what the status of a SidecarSet needs, and what decides whether an orphan is adopted: a workload that selects
//! the orphan may be created later. If a pod with a minimal form has sidecars that SidecarSets update, its slim form is
//! kept as well.

mod of_sets;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::Deserialize;

use super::MAX_POD_BYTES;
use super::slim::{Interner, phase, slim, slim_with_controller};
use crate::runtime::control::Control;
use crate::runtime::memory;
use crate::runtime::reflector::Origin;
use crate::runtime::store::{Cached, Head, Store};
use crate::runtime::watch::{Identity, Object, version_number};
use gamekeeper_core::api::names;
use gamekeeper_core::observed::{Pod, PodPhase, SidecarMark, SidecarMarks, sidecar_marks};

/// The cached form of a pod.
#[derive(Clone, Debug)]
pub enum CachedPod {
    /// A pod of one of our workloads.
    Own(Arc<Pod>),
    /// A pod without a controller.
    Orphan(Box<MinimalPod>),
    /// A pod of another controller, in a namespace that a SidecarSet may reach.
    Foreign(Box<MinimalPod>),
}

/// The uid under which all pods of other controllers are indexed, in place of their controllers' uids. No workload has
/// this uid.
const FOREIGN: &str = "-";

/// A pod without its managed fields, which name each field of the pod, and take eighty times their length as maps.
#[derive(Deserialize)]
struct WholePod {
    metadata: WholeMeta,
    spec: Option<core::PodSpec>,
    status: Option<core::PodStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WholeMeta {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
}

/// Decodes a pod.
fn read_pod(object: Object<'_>) -> Result<core::Pod, serde_json::Error> {
    let WholePod { metadata, spec, status } = object.read_within(MAX_POD_BYTES)?;
    let metadata = ObjectMeta {
        namespace: metadata.namespace,
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        generation: metadata.generation,
        creation_timestamp: metadata.creation_timestamp,
        deletion_timestamp: metadata.deletion_timestamp,
        labels: metadata.labels,
        annotations: metadata.annotations,
        owner_references: metadata.owner_references,
        finalizers: metadata.finalizers,
        ..ObjectMeta::default()
    };
    Ok(core::Pod { metadata, spec, status })
}

impl CachedPod {
    /// Parses a pod whose previous state was `previous`. Returns None for a pod of another controller, without
    /// parsing it, unless `keep_foreign` is set.
    pub fn read(
        previous: Option<&CachedPod>,
        origin: Origin,
        identity: &Identity,
        object: Object<'_>,
        keep_foreign: bool,
        interner: &mut Interner,
    ) -> Result<Option<Self>, serde_json::Error> {
        let mut minimal = || {
            let mut minimal = MinimalPod::new(object.read_within(MAX_POD_BYTES)?, interner);
            if let Some(annotated) =
                minimal.annotated.as_mut().filter(|it| keep_foreign && it.is_injected())
            {
                let previous = previous.and_then(CachedPod::with_containers);
                let previous = previous.map(AsRef::as_ref);
                let running =
                    slim_with_controller(previous, origin, None, read_pod(object)?, interner);
                annotated.running = Some(Arc::new(running));
            }
            Ok::<_, serde_json::Error>(Box::new(minimal))
        };
        Ok(match identity.control {
            Control::Foreign if keep_foreign => Some(CachedPod::Foreign(minimal()?)),
            Control::Foreign => None,
            Control::None => Some(CachedPod::Orphan(minimal()?)),
            Control::Ours(_) => {
                let previous = previous.and_then(CachedPod::own).map(AsRef::as_ref);
                let pod = slim(previous, origin, read_pod(object)?, interner);
                pod.map(|pod| CachedPod::Own(Arc::new(pod)))
            }
        })
    }

    /// The pod, if one of our workloads controls it.
    pub fn own(&self) -> Option<&Arc<Pod>> {
        match self {
            CachedPod::Own(pod) => Some(pod),
            CachedPod::Orphan(_) | CachedPod::Foreign(_) => None,
        }
    }

    /// The pod with its containers, if these are kept: for pods of our workloads, and pods whose sidecars are updated
    /// by their sets.
    pub fn with_containers(&self) -> Option<&Arc<Pod>> {
        match self {
            CachedPod::Own(pod) => Some(pod),
            CachedPod::Orphan(pod) | CachedPod::Foreign(pod) => pod.running(),
        }
    }

    /// The pod, if it has no controller.
    pub fn orphan(&self) -> Option<&MinimalPod> {
        match self {
            CachedPod::Orphan(orphan) => Some(orphan),
            CachedPod::Own(_) | CachedPod::Foreign(_) => None,
        }
    }

    /// Whether one of our workloads controls the pod, or may adopt it. A workload may adopt a pod that was created for
    /// a workload and has no controller.
    fn has_workload(&self) -> bool {
        match self {
            CachedPod::Own(_) => true,
            // StatefulSets and DaemonSets label their pods with a revision as well.
            CachedPod::Orphan(pod) => {
                let kind_labels = [names::INSTANCE_LABEL, names::POD_NAME_LABEL];
                let is_ours = kind_labels.iter().any(|label| pod.label(label).is_some());
                is_ours && pod.label(names::REVISION_LABEL).is_some()
            }
            CachedPod::Foreign(_) => false,
        }
    }

    /// The uid of the workload that guards the pod, according to its label. On pods that were not created for a
    /// workload, the label guards nothing.
    pub fn guarded_by(&self) -> Option<&str> {
        match self {
            CachedPod::Own(pod) => pod.guarded_by(),
            CachedPod::Orphan(pod) if self.has_workload() => pod.label(names::GUARDED_LABEL),
            CachedPod::Orphan(_) | CachedPod::Foreign(_) => None,
        }
    }

    /// The SidecarSets that were considered when the pod was created.
    pub fn marks(&self) -> Option<&SidecarMarks> {
        match self {
            CachedPod::Own(pod) => Some(&pod.sidecars),
            CachedPod::Orphan(pod) | CachedPod::Foreign(pod) => pod.sidecars(),
        }
    }
}

impl Cached for CachedPod {
    fn head(&self) -> Head<'_> {
        match self {
            CachedPod::Own(pod) => Head {
                namespace: &pod.namespace,
                name: &pod.name,
                uid: &pod.uid,
                version: pod.resource_version,
                terminating: pod.terminating,
                controller: pod.controller.as_deref(),
            },
            CachedPod::Orphan(orphan) => Head {
                namespace: &orphan.namespace,
                name: &orphan.name,
                uid: &orphan.uid,
                version: orphan.version,
                terminating: orphan.terminating,
                controller: None,
            },
            CachedPod::Foreign(pod) => Head {
                namespace: &pod.namespace,
                name: &pod.name,
                uid: &pod.uid,
                version: pod.version,
                terminating: pod.terminating,
                controller: Some(FOREIGN),
            },
        }
    }

    fn memory(&self) -> usize {
        match self {
            CachedPod::Own(pod) => memory::of_pod(pod),
            CachedPod::Orphan(pod) | CachedPod::Foreign(pod) => {
                let annotated = pod.annotated.as_ref().map_or(0, |it| {
                    let running = it.running.as_ref().map_or(0, |pod| memory::of_pod(pod));
                    it.sidecars.len() * 512 + running
                });
                pod.name.len() + pod.uid.len() + pod.labels.len() + annotated + 256
            }
        }
    }

    /// The containers of pods that are not ours are cached only while SidecarSets reach their namespace.
    fn differs_from(&self, cached: &Self) -> bool {
        let has_containers = |pod: &Self| pod.with_containers().is_some();
        self.version() != cached.version() || has_containers(self) != has_containers(cached)
    }

    fn shared_name(&self) -> Arc<str> {
        match self {
            CachedPod::Own(pod) => pod.name.as_str().into(),
            CachedPod::Orphan(pod) | CachedPod::Foreign(pod) => Arc::clone(&pod.name),
        }
    }
}

/// The cached form of a pod that none of our workloads controls.
#[derive(Clone, Debug)]
pub struct MinimalPod {
    namespace: Arc<str>,
    name: Arc<str>,
    uid: Box<str>,
    version: u64,
    /// `key=value`, separated by commas. Pods with equal labels share the text.
    labels: Arc<str>,
    phase: PodPhase,
    /// None if the pod has none of the annotations that matter, which saves memory for most pods.
    annotated: Option<Box<Annotated>>,
    terminating: bool,
    ready: bool,
}

/// The annotations that matter in a minimal pod.
#[derive(Clone, Debug, Default, PartialEq)]
struct Annotated {
    index: Option<u32>,
    /// The SidecarSets that were considered when the pod was created.
    sidecars: SidecarMarks,
    /// The pod with its containers, if a SidecarSet may update it: it has sidecars, and pods of other controllers count
    /// in its namespace.
    running: Option<Arc<Pod>>,
}

/// The parts of a pod that are parsed for its minimal form.
#[derive(Deserialize)]
struct ParsedPod {
    metadata: Meta,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<String>,
    conditions: Option<Vec<PodCondition>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl Annotated {
    fn read(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let index = annotations.get(names::INDEX_ID);
        let annotated = Self {
            index: index.and_then(|index| index.parse().ok()),
            sidecars: sidecar_marks(annotations),
            running: None,
        };
        (annotated != Self::default()).then_some(annotated)
    }

    /// Whether the pod has the containers of a SidecarSet.
    fn is_injected(&self) -> bool {
        self.sidecars.values().any(SidecarMark::is_injected)
    }
}

impl MinimalPod {
    fn new(pod: ParsedPod, interner: &mut Interner) -> Self {
        let meta = pod.metadata;
        let annotations = meta.annotations.unwrap_or_default();
        let mut conditions = pod.status.conditions.iter().flatten();
        let labels = meta.labels.iter().flatten();
        let labels: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        Self {
            namespace: interner.share(&meta.namespace),
            name: meta.name.into(),
            uid: meta.uid.into(),
            version: version_number(&meta.resource_version),
            labels: interner.share(&labels.join(",")),
            phase: phase(pod.status.phase.as_deref()),
            annotated: Annotated::read(&annotations).map(Box::new),
            terminating: meta.deletion_timestamp.is_some(),
            ready: conditions.any(|it| it.type_ == "Ready" && it.status == "True"),
        }
    }

    fn index(&self) -> Option<u32> {
        self.annotated.as_ref()?.index
    }

    fn sidecars(&self) -> Option<&SidecarMarks> {
        let annotated = self.annotated.as_ref()?;
        Some(&annotated.sidecars)
    }

    fn running(&self) -> Option<&Arc<Pod>> {
        self.annotated.as_ref()?.running.as_ref()
    }

    fn ended(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// The pod's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The pod's labels.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        self.each_label().map(owned).collect()
    }

    fn label(&self, key: &str) -> Option<&str> {
        let mut labels = self.each_label();
        labels.find(|(it, _)| *it == key).map(|(_, value)| value)
    }

    fn each_label(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.split(',').filter_map(|it| it.split_once('='))
    }

    /// Whether two states of a pod are the same as far as adoption is concerned.
    pub fn is_like(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.labels == other.labels
            && self.phase == other.phase
            && self.index() == other.index()
            && self.terminating == other.terminating
    }

    /// The pod as the planner reads it.
    fn pod(&self) -> Option<Pod> {
        let terminating = self.terminating.then_some(Time(Timestamp::UNIX_EPOCH));
        let pod = core::Pod {
            metadata: ObjectMeta {
                namespace: Some(self.namespace.to_string()),
                name: Some(self.name.to_string()),
                uid: Some(self.uid.to_string()),
                resource_version: Some(self.version.to_string()),
                labels: Some(self.labels()),
                deletion_timestamp: terminating,
                ..ObjectMeta::default()
            },
            ..core::Pod::default()
        };
        let pod = slim(None, Origin::List, pod, &mut Interner::default());
        pod.map(|pod| Pod { phase: self.phase, index: self.index(), ..pod })
    }
}

impl Store<CachedPod> {
    /// The pods that the workload with this uid controls, and the orphans whose labels it selects.
    pub fn of_workload(
        &self,
        namespace: &str,
        uid: &str,
        selected: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> Vec<Arc<Pod>> {
        let controlled = self.controlled_by(namespace, Some(uid));
        let controlled = controlled.iter().filter_map(|pod| pod.own().cloned());
        let mut pods: Vec<_> = controlled.collect();
        // Each distinct set of labels is compared with the selector only once.
        let mut known: HashMap<Arc<str>, bool> = HashMap::new();
        for orphan in self.controlled_by(namespace, None) {
            let Some(orphan) = orphan.orphan() else {
                continue;
            };
            let is_selected = known
                .entry(Arc::clone(&orphan.labels))
                .or_insert_with(|| selected(&orphan.labels()));
            if *is_selected {
                pods.extend(orphan.pod().map(Arc::new));
            }
        }
        pods
    }
}

#[cfg(test)]
mod tests;

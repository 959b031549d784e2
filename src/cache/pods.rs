//! Pods as the cache holds them: those of our workloads slim, those that nothing controls smaller still.
//!
//! All pods of the cluster come by one watch, because no selector tells ours from the others: what says
//! whose a pod is, its owner reference, cannot be selected by, and labels are for users to change. A
//! pod that lost one would be gone from the cache although its match goes on. So each event is first
//! read as far as that reference. What another controller has is dropped there; of a pod that nothing
//! controls only what its adoption is decided on is kept, for a workload may come whose selector
//! matches it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;

use super::control::Control;
use super::slim::{Interner, Sight, phase, slim};
use super::store::{Cached, Head, Store};
use super::watch::{Identity, Object, version_number};
use gamekeeper_core::plan::{Pod, PodPhase};

/// A pod that nothing controls, or one of our workloads does.
#[derive(Clone, Debug)]
pub enum CachedPod {
    /// A pod of one of our workloads.
    Own(Arc<Pod>),
    /// A pod that nothing controls.
    Orphan(Box<Orphan>),
}

impl CachedPod {
    /// The cached form of a pod, whose state before this was `previous`; None for a pod of another
    /// controller, which is not read any further.
    pub fn read(
        previous: Option<&CachedPod>,
        sight: Sight,
        identity: &Identity,
        object: Object<'_>,
        interner: &mut Interner,
    ) -> Result<Option<Self>, serde_json::Error> {
        Ok(match identity.control {
            Control::Foreign => None,
            Control::None => {
                let orphan = Orphan::new(object.read()?, interner);
                Some(CachedPod::Orphan(Box::new(orphan)))
            }
            Control::Ours(_) => {
                let previous = previous.and_then(CachedPod::own).map(AsRef::as_ref);
                let pod = slim(previous, sight, object.read()?, interner);
                pod.map(|pod| CachedPod::Own(Arc::new(pod)))
            }
        })
    }

    /// A pod of one of our workloads.
    pub fn own(&self) -> Option<&Arc<Pod>> {
        match self {
            CachedPod::Own(pod) => Some(pod),
            CachedPod::Orphan(_) => None,
        }
    }

    /// A pod that nothing controls.
    pub fn orphan(&self) -> Option<&Orphan> {
        match self {
            CachedPod::Orphan(orphan) => Some(orphan),
            CachedPod::Own(_) => None,
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
        }
    }

    fn shared_name(&self) -> Arc<str> {
        match self {
            CachedPod::Own(pod) => pod.name.as_str().into(),
            CachedPod::Orphan(orphan) => Arc::clone(&orphan.name),
        }
    }
}

/// What an adoption is decided on.
#[derive(Clone, Debug)]
pub struct Orphan {
    namespace: Arc<str>,
    name: Arc<str>,
    uid: Box<str>,
    version: u64,
    /// `key=value` by comma, held once for all pods that have the same.
    labels: Arc<str>,
    phase: PodPhase,
    terminating: bool,
}

/// A pod as far as an orphan is read.
#[derive(Deserialize)]
struct OrphanHead {
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
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: Option<String>,
}

impl Orphan {
    fn new(pod: OrphanHead, interner: &mut Interner) -> Self {
        let meta = pod.metadata;
        let labels = meta.labels.unwrap_or_default().into_iter();
        let labels: Vec<String> = labels
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        Self {
            namespace: interner.share(meta.namespace),
            name: meta.name.into(),
            uid: meta.uid.into(),
            version: version_number(&meta.resource_version),
            labels: interner.share(labels.join(",")),
            phase: phase(pod.status.phase.as_deref()),
            terminating: meta.deletion_timestamp.is_some(),
        }
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its labels.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let labels = self.labels.split(',').filter_map(|it| it.split_once('='));
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        labels.map(owned).collect()
    }

    /// Whether an adoption is decided alike on another state of it.
    pub fn is_like(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.labels == other.labels
            && self.phase == other.phase
            && self.terminating == other.terminating
    }

    /// As the planner sees it.
    fn pod(&self) -> Option<Pod> {
        let terminating = self
            .terminating
            .then_some(Time(jiff::Timestamp::UNIX_EPOCH));
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
        let pod = slim(None, Sight::Listed, pod, &mut Interner::default());
        pod.map(|pod| Pod {
            phase: self.phase,
            ..pod
        })
    }
}

impl Store<CachedPod> {
    /// Pods that the workload with this uid controls, and those without a controller whose labels are
    /// selected.
    pub fn of_workload(
        &self,
        namespace: &str,
        uid: &str,
        selected: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> Vec<Arc<Pod>> {
        let own = self.controlled_by(namespace, Some(uid));
        let mut pods: Vec<_> = own.iter().filter_map(|pod| pod.own().cloned()).collect();
        let mut known: HashMap<Arc<str>, bool> = HashMap::new();
        for orphan in self.controlled_by(namespace, None) {
            let Some(orphan) = orphan.orphan() else {
                continue;
            };
            let is_selected = match known.get(&orphan.labels) {
                Some(known) => *known,
                None => {
                    let is_selected = selected(&orphan.labels());
                    known.insert(Arc::clone(&orphan.labels), is_selected);
                    is_selected
                }
            };
            if is_selected {
                pods.extend(orphan.pod().map(Arc::new));
            }
        }
        pods
    }
}

#[cfg(test)]
mod tests;

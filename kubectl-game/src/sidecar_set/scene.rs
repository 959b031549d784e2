//! A SidecarSet with the pods that it selects, and their workloads.

use std::collections::{BTreeMap, HashMap};

use gamekeeper_core::api::GROUP;
use gamekeeper_core::api::names::{WorkloadKind, controller_of};
use gamekeeper_core::observed::{SidecarMark, mark_key, sidecar_marks};
use gamekeeper_core::sidecar_set::{Namespace, NamespacePolicy, Sidecars};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{ListParams, ObjectMeta};

use super::set::Set;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::scene::Scene;

/// A set, the pods that count in its status, and all workloads with their HookRuns.
#[derive(Clone, Debug)]
pub struct SidecarScene {
    pub set: Set,
    /// Sorted by namespace and name.
    pub pods: Vec<Pod>,
    pub workloads: Vec<Scene>,
}

impl SidecarScene {
    /// Keeps only those pods that count in the set's status.
    pub fn new(
        set: Set,
        namespaces: Vec<Namespace>,
        mut pods: Vec<Pod>,
        workloads: Vec<Scene>,
    ) -> Self {
        let namespaces = namespaces.into_iter().map(|it| (it.name.clone(), it));
        let namespaces: HashMap<String, Namespace> = namespaces.collect();
        let sidecars = Sidecars::of(&set.typed);
        let policy = NamespacePolicy {
            // The operator keeps revisions in its own namespace.
            own: set.typed.status.as_ref().map(|it| it.revision_namespace.clone()),
            all: false,
        };
        let mark = mark_key(set.name());
        pods.retain(|pod| {
            let namespace = namespaces.get(&pod.namespace().unwrap_or_default());
            let (Some(sidecars), Some(namespace)) = (&sidecars, namespace) else {
                return false;
            };
            let is_selected =
                sidecars.reach.reaches(namespace, &policy) && sidecars.reach.selects(pod.labels());
            // It is not known here whether the operator injects into pods of other controllers in namespaces without a
            // label, but if it does, such pods have the set's mark.
            let is_open = namespace.is_open_to_all(&policy);
            let counts = has_workload(pod) || is_open || pod.annotations().contains_key(&mark);
            is_selected && !has_ended(pod) && counts
        });
        pods.sort_by_cached_key(|pod| (pod.namespace(), pod.name_any()));
        SidecarScene { set, pods, workloads }
    }

    /// Reads the pods of a set, in all namespaces or in this one.
    pub async fn read(cluster: &Cluster, set: Set, namespace: Option<&str>) -> Result<Self, Error> {
        let namespace = namespace.or(set.spec().namespace.as_deref());
        let namespace = namespace.map(str::to_owned);
        let namespaces = read_namespaces(cluster, namespace.as_deref()).await?;
        let params =
            ListParams { label_selector: set.selector(), ..ListParams::default().match_any() };
        let api = cluster.pods_in(namespace.as_deref());
        let pods = cluster.send(async || api.list(&params).await).await?.items;
        let (cluster, everywhere) = match namespace {
            Some(namespace) => (cluster.in_namespace(namespace), false),
            None => (cluster.clone(), true),
        };
        let games = cluster.list(everywhere).await?;
        // The tree is about the set, so it does not mention that HookRuns may not be listed.
        let (workloads, _) = cluster.with_runs(games, everywhere).await?;
        Ok(SidecarScene::new(set, namespaces, pods, workloads))
    }

    /// The set's mark on a pod.
    pub fn mark(&self, pod: &Pod) -> Option<SidecarMark> {
        sidecar_marks(pod.annotations()).remove(self.set.name())
    }

    /// The pods grouped by controller, those without one last.
    pub fn by_controller(&self) -> Vec<(Option<&OwnerReference>, Vec<&Pod>)> {
        let mut groups: BTreeMap<_, (Option<&OwnerReference>, Vec<&Pod>)> = BTreeMap::new();
        for pod in &self.pods {
            let owner = controller_of(&pod.metadata);
            let name = owner.map(|owner| (pod.namespace(), &owner.kind, &owner.name));
            let key = (name.is_none(), name);
            let (_, pods) = groups.entry(key).or_insert_with(|| (owner, Vec::new()));
            pods.push(pod);
        }
        groups.into_values().collect()
    }

    /// The workload with this uid.
    pub fn workload(&self, uid: &str) -> Option<&Scene> {
        self.workloads.iter().find(|scene| scene.game.uid == uid)
    }
}

/// Reads all namespaces, or the one with this name.
async fn read_namespaces(cluster: &Cluster, name: Option<&str>) -> Result<Vec<Namespace>, Error> {
    let api = cluster.namespaces();
    let found = match name {
        Some(name) => {
            let found = cluster.send(async || api.get_metadata_opt(name).await);
            found.await?.into_iter().collect()
        }
        None => {
            let params = ListParams::default().match_any();
            let found = cluster.send(async || api.list_metadata(&params).await);
            found.await?.items
        }
    };
    let namespaces = found.into_iter().map(|it| namespace(it.metadata));
    Ok(namespaces.collect())
}

fn namespace(meta: ObjectMeta) -> Namespace {
    Namespace { name: meta.name.unwrap_or_default(), labels: meta.labels.unwrap_or_default() }
}

/// Whether a pod no longer counts.
fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a GameDeployment or GameStatefulSet controls a pod.
fn has_workload(pod: &Pod) -> bool {
    let Some(owner) = controller_of(&pod.metadata) else {
        return false;
    };
    let group = owner.api_version.split('/').next();
    let mut kinds = WorkloadKind::ALL.into_iter();
    group == Some(GROUP) && kinds.any(|kind| kind.as_str() == owner.kind)
}

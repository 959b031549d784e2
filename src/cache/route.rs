//! Routes changes of objects to the queues of the workloads and runs that they concern.
//!
//! Both the old and the new state of an object count, so that a workload is also queued when it loses an object.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::kinds::{CachedHookRun, CachedRevision, NodeState, Whole};
use super::pods::CachedPod;
use super::set_revisions::CachedSetRevision;
use super::sidecars::{CachedNamespace, SidecarIndex};
use super::store::{Cached, Transition};
use super::workload_index::{Entry, WorkloadIndex};
use crate::objects::{Kind, ObjectKey};
use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::api::{API_VERSION, Cluster, GameWorkload, HookRun, HookTemplate, SidecarSet};
use gamekeeper_core::plan::sidecars::Sidecars;
use gamekeeper_core::plan::{Claim, makes_same_plan};

/// Receives keys to reconcile; must not block.
pub(crate) type Sink = Box<dyn Fn(ObjectKey) + Send + Sync>;

/// Receives keys of workloads to reconcile; must not block.
pub(crate) type WorkloadSink = Box<dyn Fn(WorkloadKind, ObjectKey) + Send + Sync>;

/// Routes changes to the queues of the controllers.
pub(crate) struct Router {
    workloads: RwLock<WorkloadIndex>,
    to_workloads: WorkloadSink,
    to_hook_runs: Sink,
    /// Receives templates that cannot be decoded, or that could not be decoded until now.
    to_hook_templates: Sink,
    sidecars: Arc<SidecarIndex>,
    to_sidecar_sets: Sink,
    /// None if lifecycle hooks are disabled.
    clusters: Option<Clusters>,
}

/// The Clusters; a change to any node or Cluster queues all of them.
struct Clusters {
    keys: RwLock<BTreeSet<ObjectKey>>,
    queue: Sink,
}

impl Router {
    pub(crate) fn new(
        to_workloads: WorkloadSink,
        to_hook_runs: Sink,
        to_hook_templates: Sink,
        sidecars: Arc<SidecarIndex>,
        to_sidecar_sets: Sink,
    ) -> Self {
        Self {
            workloads: RwLock::default(),
            to_workloads,
            to_hook_runs,
            to_hook_templates,
            sidecars,
            to_sidecar_sets,
            clusters: None,
        }
    }

    /// A router that queues nothing.
    #[cfg(test)]
    pub(crate) fn to_nowhere(sidecars: &Arc<SidecarIndex>) -> Self {
        let nowhere = || -> Sink { Box::new(|_| {}) };
        let to_workloads = Box::new(|_, _| {});
        let sidecars = Arc::clone(sidecars);
        Self::new(to_workloads, nowhere(), nowhere(), sidecars, nowhere())
    }

    /// Also routes to Clusters.
    pub(crate) fn with_clusters(mut self, queue: Sink) -> Self {
        let keys = RwLock::default();
        self.clusters = Some(Clusters { keys, queue });
        self
    }

    /// Queues the workload, and updates the index.
    pub(crate) fn workload<K: GameWorkload>(&self, (old, new): &Transition<Whole<K>>) {
        let workloads = self.workloads.write();
        let mut workloads = workloads.unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = old {
            workloads.remove(old.uid());
        }
        if let Some(new) = new {
            workloads.insert(new);
        }
        drop(workloads);
        for side in [old, new].into_iter().flatten() {
            (self.to_workloads)(K::KIND, side.key());
        }
    }

    /// Queues an object that cannot be decoded, or that could not be decoded and no longer exists; for a template,
    /// also the workloads that name it. Objects of the other kinds have no controller in this process.
    pub(crate) fn unreadable(&self, kind: Kind, key: &ObjectKey) {
        match kind {
            Kind::GameDeployment => (self.to_workloads)(WorkloadKind::GameDeployment, key.clone()),
            Kind::GameStatefulSet => {
                (self.to_workloads)(WorkloadKind::GameStatefulSet, key.clone());
            }
            Kind::HookRun => (self.to_hook_runs)(key.clone()),
            Kind::HookTemplate => {
                (self.to_hook_templates)(key.clone());
                self.queue(self.read().naming(&key.namespace, &key.name));
            }
            Kind::SidecarSet => {
                self.sidecars.put_set(&key.name, None);
                (self.to_sidecar_sets)(key.clone());
            }
            Kind::Cluster => {
                if let Some(clusters) = &self.clusters {
                    (clusters.queue)(key.clone());
                }
            }
            Kind::Pod
            | Kind::Revision
            | Kind::Node
            | Kind::Claim
            | Kind::Namespace
            | Kind::SetRevision => {}
        }
    }

    /// Queues the run, and also its workload if the change can affect a plan. Most measurements change only the run.
    pub(crate) fn hook_run(&self, transition: &Transition<CachedHookRun>) {
        for side in sides(transition) {
            (self.to_hook_runs)(side.key());
        }
        if let (Some(old), Some(new)) = transition
            && old.controller() == new.controller()
            && makes_same_plan(&old.object, &new.object)
        {
            return;
        }
        self.queue_controllers(transition);
        if let Some(clusters) = &self.clusters {
            sides(transition)
                .filter_map(|run| cluster_of(&run.object))
                .for_each(|key| (clusters.queue)(key));
        }
    }

    /// Queues all Clusters: which one may run scripts depends on the others.
    pub(crate) fn cluster(&self, transition: &Transition<Whole<Cluster>>) {
        let Some(clusters) = &self.clusters else {
            return;
        };
        let (old, new) = transition;
        let mut keys = clusters
            .keys
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = old {
            keys.remove(&old.key());
        }
        let known = keys.clone();
        keys.extend(new.iter().map(|new| new.key()));
        drop(keys);
        let own = sides(transition).map(|it| it.key());
        own.chain(known).for_each(|key| (clusters.queue)(key));
    }

    /// Records the set, and queues it.
    pub(crate) fn sidecar_set(&self, (old, new): &Transition<Whole<SidecarSet>>) {
        let Some(set) = new.as_ref().or(old.as_ref()) else {
            return;
        };
        self.sidecars.put_set(set.name(), new.as_deref());
        (self.to_sidecar_sets)(set.key());
    }

    /// Records the namespace, and queues all sets: any of them may reach it now, or no longer.
    pub(crate) fn namespace(&self, (old, new): &Transition<CachedNamespace>) {
        let Some(namespace) = new.as_ref().or(old.as_ref()) else {
            return;
        };
        if let (Some(old), Some(new)) = (old, new)
            && old.namespace == new.namespace
        {
            return;
        }
        self.sidecars
            .put_namespace(namespace.name(), new.as_deref());
        for set in self.sidecars.all() {
            (self.to_sidecar_sets)(ObjectKey::new("", set));
        }
    }

    /// Records the revision of a set, and queues the set.
    pub(crate) fn set_revision(&self, (old, new): &Transition<CachedSetRevision>) {
        for side in [old, new].into_iter().flatten() {
            let Some(set) = side.set() else { continue };
            let is_removed = new.as_ref().is_none_or(|new| new.set() != side.set());
            let revision = side.revision().filter(|_| !is_removed);
            if let Some(name) = self.sidecars.put_revision(set, side.name(), revision) {
                (self.to_sidecar_sets)(ObjectKey::new("", name));
            }
        }
    }

    /// Queues the SidecarSets whose status depends on the change of a pod.
    fn queue_sidecar_sets(&self, (old, new): &Transition<CachedPod>) {
        let concerned = self.sidecars.concerned_by(|set| {
            let [old, new] =
                [old, new].map(|side| side.as_ref().and_then(|pod| pod.for_sidecar_set(set)));
            old != new
        });
        for set in concerned {
            (self.to_sidecar_sets)(ObjectKey::new("", set));
        }
    }

    /// Queues the pod's controller, or the workloads that might adopt it, and the SidecarSets that count it.
    pub(crate) fn pod(&self, transition: &Transition<CachedPod>) {
        self.queue_sidecar_sets(transition);
        self.queue_controllers(transition);
        let [old, new] =
            [&transition.0, &transition.1].map(|side| side.as_ref().and_then(|pod| pod.orphan()));
        if let (Some(old), Some(new)) = (old, new)
            && old.is_like(new)
        {
            return;
        }
        for orphan in [old, new].into_iter().flatten() {
            let labels = orphan.labels();
            self.queue(self.read().selecting(orphan.namespace(), &labels));
        }
    }

    pub(crate) fn revision(&self, transition: &Transition<CachedRevision>) {
        self.queue_controllers(transition);
        for orphan in sides(transition).filter(|revision| revision.controller().is_none()) {
            self.queue(self.read().selecting(orphan.namespace(), &orphan.labels));
        }
    }

    /// Queues the workloads that name the template.
    pub(crate) fn hook_template(&self, transition: &Transition<Whole<HookTemplate>>) {
        for template in sides(transition) {
            self.queue(self.read().naming(template.namespace(), template.name()));
        }
    }

    /// Queues the claim's controller, and the workload whose pods the claim is named after.
    pub(crate) fn claim(&self, transition: &Transition<Claim>) {
        self.queue_controllers(transition);
        for claim in sides(transition) {
            self.queue(self.read().claiming(&claim.namespace, &claim.name));
        }
    }

    /// Queues the workloads whose pods leave lost nodes if the node was lost or came back, those with native
    /// sidecars and the SidecarSets that have some if its kubelet was upgraded, and those whose pods are moved if its
    /// removal was announced or called off.
    pub(crate) fn node(&self, (old, new): &Transition<NodeState>) {
        self.queue_clusters(old.as_deref(), new.as_deref());
        let lost = |side: &Option<Arc<NodeState>>| side.as_ref().and_then(|node| node.lost);
        let kubelet = |side: &Option<Arc<NodeState>>| side.as_ref()?.old_kubelet.clone();
        let going = |side: &Option<Arc<NodeState>>| Some(Arc::clone(&side.as_ref()?.going));
        let lost_changed = lost(old) != lost(new);
        let kubelet_changed = kubelet(old) != kubelet(new);
        let going_changed = going(old).unwrap_or_default() != going(new).unwrap_or_default();
        if !lost_changed && !kubelet_changed && !going_changed {
            return;
        }
        if kubelet_changed {
            let sets = self.sidecars.concerned_by(Sidecars::has_native);
            let keys = sets.into_iter().map(|set| ObjectKey::new("", set));
            keys.for_each(&self.to_sidecar_sets);
        }
        let gets_native = |it: &Entry| self.sidecars.injects_native(&it.key.namespace);
        let workloads = self.read();
        self.queue(workloads.all().filter(|it| {
            (lost_changed && it.leaves_lost_nodes)
                || (kubelet_changed && (it.has_sidecars || gets_native(it)))
                || (going_changed && it.moves_off_nodes)
        }));
    }

    /// Queues all Clusters if a change of a node can affect their plans.
    fn queue_clusters(&self, old: Option<&NodeState>, new: Option<&NodeState>) {
        let Some(clusters) = &self.clusters else {
            return;
        };
        let [old, new] = [old, new].map(|side| side?.for_clusters.as_ref());
        if let (Some(old), Some(new)) = (old, new)
            && old.is_like(new)
        {
            return;
        }
        let keys = clusters.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().for_each(|key| (clusters.queue)(key.clone()));
    }

    fn queue_controllers<T: Cached>(&self, transition: &Transition<T>) {
        let controllers: BTreeSet<&str> = sides(transition)
            .filter_map(|side| side.controller())
            .collect();
        let workloads = self.read();
        self.queue(controllers.into_iter().filter_map(|uid| workloads.get(uid)));
    }

    fn queue<'w>(&self, workloads: impl Iterator<Item = &'w Entry>) {
        for workload in workloads {
            (self.to_workloads)(workload.kind, workload.key.clone());
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, WorkloadIndex> {
        let workloads = self.workloads.read();
        workloads.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The Cluster that a run belongs to.
fn cluster_of(run: &HookRun) -> Option<ObjectKey> {
    let mut owners = run.metadata.owner_references.iter().flatten();
    let owner = owners.find(|it| it.kind == Cluster::KIND && it.api_version == API_VERSION)?;
    Some(ObjectKey::new("", &owner.name))
}

fn sides<T>(transition: &Transition<T>) -> impl Iterator<Item = &Arc<T>> {
    [&transition.0, &transition.1].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;
    use crate::cache::{Interner, NodeHead, Origin, Settings, slim_claim, test_feed};
    use gamekeeper_core::api::names;
    use gamekeeper_core::api::{GameDeployment, GameStatefulSet};

    /// A router that knows two workloads, and the keys that it queues.
    fn router() -> (Router, Arc<Mutex<BTreeSet<String>>>) {
        let queued = Arc::new(Mutex::new(BTreeSet::new()));
        let sink = |kind: &'static str| -> Sink {
            let queued = Arc::clone(&queued);
            Box::new(move |key| {
                queued.lock().unwrap().insert(format!("{kind} {key}"));
            })
        };
        let to_templates = sink("template");
        let to_runs = sink("run");
        let to_workloads = sink("workload");
        let to_workloads: WorkloadSink = Box::new(move |_, key| to_workloads(key));
        let sidecars = Arc::new(SidecarIndex::default());
        let router = Router::new(to_workloads, to_runs, to_templates, sidecars, sink("set"));
        let lobby = json!({
            "metadata": {"namespace": "games", "name": "lobby", "uid": "lobby-uid"},
            "spec": {
                "selector": {"matchLabels": {"app": "lobby"}},
                "template": {},
                "preDeleteUpdateStrategy": {"hook": {"templateName": "drained"}},
                "updateStrategy": {"canary": {"steps": [{"hook": {"templateName": "healthy"}}]}},
            },
        });
        let lobby: GameDeployment = serde_json::from_value(lobby).unwrap();
        router.workload(&(None, Some(Arc::new(Whole::new(lobby, false)))));
        let world = json!({
            "metadata": {"namespace": "games", "name": "world", "uid": "world-uid"},
            "spec": {
                "selector": {"matchLabels": {"app": "world"}},
                "template": {
                    "metadata": {"annotations": {names::FORCE_OFF_LOST_NODES: "true"}},
                    "spec": {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]},
                },
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
            },
        });
        let world: GameStatefulSet = serde_json::from_value(world).unwrap();
        router.workload(&(None, Some(Arc::new(Whole::new(world, false)))));
        queued.lock().unwrap().clear();
        (router, queued)
    }

    fn pod(labels: Value, owner: Option<&str>) -> Option<Arc<CachedPod>> {
        let owners = owner.map(|uid| {
            json!([{
                "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
                "name": "lobby", "uid": uid, "controller": true,
            }])
        });
        let pod = json!({"metadata": {
            "namespace": "games", "name": "a", "labels": labels, "ownerReferences": owners,
        }});
        let pod = test_feed::pod(None, Origin::Watch, &pod, &mut Interner::default());
        pod.map(Arc::new)
    }

    fn queued(queued: &Mutex<BTreeSet<String>>) -> Vec<String> {
        std::mem::take(&mut *queued.lock().unwrap())
            .into_iter()
            .collect()
    }

    #[test]
    fn a_pod_that_is_deleted_or_released_concerns_its_owner() {
        let (router, keys) = router();
        router.pod(&(pod(json!({"app": "lobby"}), Some("lobby-uid")), None));
        assert_eq!(queued(&keys), ["workload games/lobby"]);
        let released = pod(json!({"app": "other"}), None);
        router.pod(&(pod(json!({"app": "lobby"}), Some("lobby-uid")), released));
        assert_eq!(queued(&keys), ["workload games/lobby"]);
    }

    #[test]
    fn an_orphan_concerns_the_workloads_that_select_it() {
        let (router, keys) = router();
        router.pod(&(None, pod(json!({"app": "lobby"}), None)));
        assert_eq!(queued(&keys), ["workload games/lobby"]);
        router.pod(&(None, pod(json!({"app": "other"}), None)));
        router.pod(&(None, pod(json!({"app": "lobby"}), Some("another-uid"))));
        assert!(queued(&keys).is_empty());
    }

    #[test]
    fn a_pod_concerns_the_sidecar_sets_whose_counts_it_changes() {
        let (router, keys) = router();
        let labeled = || pod(json!({"app": "lobby"}), Some("lobby-uid"));
        router.pod(&(None, labeled()));
        assert_eq!(queued(&keys), ["workload games/lobby"]);
        let set = json!({
            "metadata": {"name": "log"},
            "spec": {"selector": {"matchLabels": {"app": "lobby"}}, "containers": [{"name": "log"}]},
        });
        let set: SidecarSet = serde_json::from_value(set).unwrap();
        router.sidecar_set(&(None, Some(Arc::new(Whole::new(set, true)))));
        assert_eq!(queued(&keys), ["set /log"]);
        router.pod(&(None, labeled()));
        assert_eq!(queued(&keys), ["set /log", "workload games/lobby"]);
        router.pod(&(labeled(), labeled()));
        router.pod(&(None, pod(json!({"app": "other"}), Some("lobby-uid"))));
        assert_eq!(queued(&keys), ["workload games/lobby"]);
    }

    #[test]
    fn a_template_concerns_the_workloads_that_name_it() {
        let (router, keys) = router();
        let template = |namespace: &str, name: &str| {
            let template = json!({
                "metadata": {"namespace": namespace, "name": name},
                "spec": {"metrics": []},
            });
            let template = Whole::new(serde_json::from_value(template).unwrap(), true);
            router.hook_template(&(Some(Arc::new(template)), None));
            queued(&keys)
        };
        assert_eq!(template("games", "drained"), ["workload games/lobby"]);
        assert_eq!(template("games", "healthy"), ["workload games/lobby"]);
        assert!(template("games", "unused").is_empty());
        assert!(template("other", "drained").is_empty());
    }

    fn run(owner: &str, status: Value) -> Option<Arc<CachedHookRun>> {
        let run = json!({
            "metadata": {
                "namespace": "games", "name": "check",
                "ownerReferences": [{
                    "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
                    "name": "lobby", "uid": owner, "controller": true,
                }],
            },
            "spec": {"metrics": []},
            "status": status,
        });
        let run = Whole::new(serde_json::from_value(run).unwrap(), true);
        Some(Arc::new(run))
    }

    #[test]
    fn a_changed_run_concerns_itself_and_its_workload() {
        let (router, keys) = router();
        let running = || run("lobby-uid", json!({"phase": "Running"}));
        for transition in [
            (None, running()),
            (running(), None),
            (running(), run("lobby-uid", json!({"phase": "Failed"}))),
            (running(), run("world-uid", json!({"phase": "Running"}))),
        ] {
            router.hook_run(&transition);
            let queued = queued(&keys);
            assert!(queued.contains(&"run games/check".to_owned()), "{queued:?}");
            assert!(
                queued.contains(&"workload games/lobby".to_owned()),
                "{queued:?}"
            );
        }
    }

    #[test]
    fn a_measurement_concerns_only_its_run() {
        let (router, keys) = router();
        let measured = |count| {
            let results = json!([{"name": "players", "phase": "Running", "count": count}]);
            run(
                "lobby-uid",
                json!({"phase": "Running", "metricResults": results}),
            )
        };
        router.hook_run(&(measured(1), measured(2)));
        assert_eq!(queued(&keys), ["run games/check"]);
    }

    #[test]
    fn a_claim_concerns_the_workload_whose_pods_it_is_named_after() {
        let (router, keys) = router();
        let claim = |name: &str| {
            let claim = json!({"metadata": {"namespace": "games", "name": name}});
            let claim = slim_claim(serde_json::from_value(claim).unwrap());
            router.claim(&(None, Some(Arc::new(claim))));
            queued(&keys)
        };
        assert_eq!(claim("data-world-0"), ["workload games/world"]);
        assert_eq!(claim("data-world-12"), ["workload games/world"]);
        for name in [
            "data-world-x",
            "data-world-01",
            "data-lobby-0",
            "data-world",
        ] {
            assert!(claim(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn an_upgraded_kubelet_concerns_workloads_with_sidecars() {
        let (router, keys) = router();
        let node = |version: &str| {
            let node = json!({
                "metadata": {"name": "n"}, "status": {"nodeInfo": {"kubeletVersion": version}},
            });
            NodeState::new(serde_json::from_value(node).unwrap(), &Settings::default())
                .map(Arc::new)
        };
        router.node(&(node("v1.31.0"), node("v1.32.0")));
        assert_eq!(queued(&keys), ["workload games/world"]);
        router.node(&(node("v1.32.0"), node("v1.36.0")));
        assert!(queued(&keys).is_empty());
        let set = |list: &str| {
            let mut set = json!({
                "metadata": {"name": "log"},
                "spec": {"selector": {"matchLabels": {"app": "lobby"}}, "namespace": "games"},
            });
            set["spec"][list] = json!([{"name": "log", "restartPolicy": "Always"}]);
            let set: SidecarSet = serde_json::from_value(set).unwrap();
            router.sidecar_set(&(None, Some(Arc::new(Whole::new(set, true)))));
            queued(&keys);
        };
        set("containers");
        router.node(&(node("v1.31.0"), node("v1.32.0")));
        assert_eq!(queued(&keys), ["workload games/world"]);
        set("initContainers");
        router.node(&(node("v1.31.0"), node("v1.32.0")));
        let all = ["set /log", "workload games/lobby", "workload games/world"];
        assert_eq!(queued(&keys), all);
    }

    #[test]
    fn a_lost_node_concerns_the_workloads_that_force_delete_its_pods() {
        let (router, keys) = router();
        let node = |taint: &str| {
            let node = json!({
                "metadata": {"name": "n"}, "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
            });
            let node: NodeHead = serde_json::from_value(node).unwrap();
            NodeState::new(node, &Settings::default()).map(Arc::new)
        };
        let lost = node("node.kubernetes.io/unreachable");
        router.node(&(None, lost.clone()));
        assert_eq!(queued(&keys), ["workload games/world"]);
        router.node(&(lost.clone(), lost.clone()));
        assert!(queued(&keys).is_empty());
        router.node(&(lost, node("node.kubernetes.io/not-ready")));
        assert_eq!(queued(&keys), ["workload games/world"]);
    }
}

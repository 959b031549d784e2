//! Routes changes of objects to the queues of the workloads and runs that they concern.
//!
//! Both the old and the new state of an object count, so a workload is also queued when it loses an object.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::nodes::NodeState;
use super::pods::CachedPod;
use super::set_revisions::CachedSetRevision;
use super::sidecars::{CachedNamespace, SidecarIndex};
use super::workload_index::{Entry, WorkloadIndex};
use crate::kinds::{CachedHookRun, CachedRevision, Whole};
use crate::runtime::control::Control;
use crate::runtime::objects::{Kind, ObjectKey};
use crate::runtime::store::{Cached, Transition};
use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::api::{API_VERSION, Cluster, GameWorkload, HookRun, HookTemplate, SidecarSet};
use gamekeeper_core::observed::Claim;
use gamekeeper_core::sidecar_set::Sidecars;
use gamekeeper_core::workload::{makes_same_plan, token_hook, why_sidecars_are_held};

/// Receives keys to reconcile; must not block.
pub(crate) type Sink = Box<dyn Fn(ObjectKey) + Send + Sync>;

/// Receives keys of workloads to reconcile; must not block.
pub(crate) type WorkloadSink = Box<dyn Fn(WorkloadKind, ObjectKey) + Send + Sync>;

/// Routes changes to the queues of the controllers.
pub(crate) struct Router {
    workloads: RwLock<WorkloadIndex>,
    to_workloads: WorkloadSink,
    to_hook_runs: Sink,
    /// Receives the keys of HookTemplates that cannot be decoded, or that could not be decoded until now.
    to_hook_templates: Sink,
    sidecars: Arc<SidecarIndex>,
    to_sidecar_sets: Sink,
    /// None if lifecycle hooks are disabled.
    clusters: Option<Clusters>,
}

/// The Clusters. A change to a Cluster queues all of them, and so does a change to a node that can affect their plans.
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

    /// Also queues Clusters.
    pub(crate) fn with_clusters(mut self, queue: Sink) -> Self {
        let keys = RwLock::default();
        self.clusters = Some(Clusters { keys, queue });
        self
    }

    /// Queues the workload, and the SidecarSets whose updates it starts or stops holding back.
    /// Updates the index.
    pub(crate) fn workload<K: GameWorkload>(&self, transition: &Transition<Whole<K>>) {
        self.queue_sets_of_workload(transition);
        let (old, new) = transition;
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

    /// Queues an object that cannot be decoded, or that could not be decoded until now, and the workload that controls
    /// it, for which nothing can be planned. For a HookTemplate, also queues the workloads that name it; for a claim, the
    /// workload whose pods it is named after; for a pod or revision without a controller, all workloads of its namespace;
    /// for a SidecarSet, all workloads, because it may select the pods of any.
    pub(crate) fn unreadable(&self, kind: Kind, key: &ObjectKey, control: &Control) {
        match control {
            Control::Ours(uid) => self.queue(self.read().get(&key.namespace, uid).into_iter()),
            Control::None if matches!(kind, Kind::Pod | Kind::Revision) => {
                self.queue(self.read().in_namespace(&key.namespace));
            }
            Control::None | Control::Foreign => {}
        }
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
                self.queue(self.read().all());
            }
            Kind::Cluster => {
                if let Some(clusters) = &self.clusters {
                    (clusters.queue)(key.clone());
                }
            }
            Kind::Claim => self.queue(self.read().claiming(&key.namespace, &key.name)),
            Kind::Pod | Kind::Revision | Kind::Node | Kind::Namespace | Kind::SetRevision => {}
        }
    }

    /// Queues the run. If the change can affect a plan, also queues the run's workload, SidecarSets and Cluster. Most
    /// measurements affect no plan.
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
        self.queue_sets(|set| {
            sides(transition).any(|run| token_hook(&run.object, &set.revision).is_some())
        });
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
        let mut keys = clusters.keys.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = old {
            keys.remove(&old.key());
        }
        let known = keys.clone();
        keys.extend(new.iter().map(|new| new.key()));
        drop(keys);
        let changed = sides(transition).map(|it| it.key());
        changed.chain(known).for_each(|key| (clusters.queue)(key));
    }

    /// Records the set, and queues it.
    pub(crate) fn sidecar_set(&self, (old, new): &Transition<Whole<SidecarSet>>) {
        let Some(set) = new.as_ref().or(old.as_ref()) else {
            return;
        };
        if self.sidecars.put_set(set.name(), new.as_deref()) {
            // They have been waiting for it.
            self.queue(self.read().all());
        }
        (self.to_sidecar_sets)(set.key());
    }

    /// Records a change of a namespace, and queues all sets: any of them may start or stop reaching the namespace.
    /// Also queues the workloads in a new namespace, because they have been waiting for it to be cached.
    pub(crate) fn namespace(&self, (old, new): &Transition<CachedNamespace>) {
        let Some(namespace) = new.as_ref().or(old.as_ref()) else {
            return;
        };
        if let (Some(old), Some(new)) = (old, new)
            && old.namespace == new.namespace
        {
            return;
        }
        self.sidecars.put_namespace(namespace.name(), new.as_deref());
        if old.is_none() {
            self.queue(self.read().in_namespace(namespace.name()));
        }
        for set in self.sidecars.all() {
            (self.to_sidecar_sets)(ObjectKey::new("", set));
        }
    }

    /// Records a new, changed or removed revision of a SidecarSet, and queues the set.
    pub(crate) fn set_revision(&self, (old, new): &Transition<CachedSetRevision>) {
        for side in [old, new].into_iter().flatten() {
            let Some(uid) = side.set_uid() else { continue };
            let is_removed = new.as_ref().is_none_or(|new| new.set_uid() != Some(uid));
            let revision = side.revision().filter(|_| !is_removed);
            if let Some(name) = self.sidecars.put_revision(uid, side.name(), revision) {
                (self.to_sidecar_sets)(ObjectKey::new("", name));
            }
        }
    }

    /// Queues the SidecarSets whose status depends on the change of a pod.
    fn queue_sets_of_pod(&self, (old, new): &Transition<CachedPod>) {
        self.queue_sets(|set| {
            let [old, new] =
                [old, new].map(|side| side.as_ref().and_then(|pod| pod.for_sidecar_set(set)));
            old != new
        });
    }

    /// Queues the SidecarSets that reach a workload's namespace, if the workload starts or stops holding back
    /// sidecar updates, or if its reason for holding them back changes.
    fn queue_sets_of_workload<K: GameWorkload>(&self, (old, new): &Transition<Whole<K>>) {
        let Some(workload) = new.as_ref().or(old.as_ref()) else {
            return;
        };
        if self.sidecars.is_empty() {
            return;
        }
        let [old, new] =
            [old, new].map(|side| why_sidecars_are_held(side.as_ref()?.object.as_ref()));
        if old == new {
            return;
        }
        let reaching = self.sidecars.reaching(workload.namespace());
        for set in reaching.into_iter().flat_map(|it| it.sets) {
            (self.to_sidecar_sets)(ObjectKey::new("", &set.name));
        }
    }

    /// Queues the SidecarSets that a change concerns.
    fn queue_sets(&self, concerns: impl Fn(&Sidecars) -> bool) {
        for set in self.sidecars.concerned_by(concerns) {
            (self.to_sidecar_sets)(ObjectKey::new("", set));
        }
    }

    /// Queues the pod's controller, or the workloads that might adopt it, and the SidecarSets that count it.
    pub(crate) fn pod(&self, transition: &Transition<CachedPod>) {
        self.queue_sets_of_pod(transition);
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

    /// Queues what the change of a node concerns:
    /// - If the node was lost or came back: all workloads, because their status names the pods on lost nodes.
    /// - If its kubelet was upgraded to one that restarts native sidecars: the workloads whose pods have or can get
    ///   these, and the SidecarSets with native sidecars. To one that changes resources: the workloads that are updated
    ///   in place.
    /// - If its removal was announced or called off: the workloads whose pods are moved off such nodes, or are guarded.
    /// - If the change can affect the plans of Clusters: all Clusters.
    pub(crate) fn node(&self, (old, new): &Transition<NodeState>) {
        self.queue_clusters(old.as_deref(), new.as_deref());
        let lost = |side: &Option<Arc<NodeState>>| side.as_ref().and_then(|node| node.lost);
        let old_kubelet = |side: &Option<Arc<NodeState>>| side.as_ref()?.old_kubelet.clone();
        let resizes = |side| old_kubelet(side).is_none();
        let restarts_sidecars = |side| old_kubelet(side).is_none_or(|it| it.restarts_sidecars());
        let going = |side: &Option<Arc<NodeState>>| Some(Arc::clone(&side.as_ref()?.going));
        let lost_changed = lost(old) != lost(new);
        let resizes_now = !resizes(old) && resizes(new);
        let sidecars_changed = restarts_sidecars(old) != restarts_sidecars(new);
        let going_changed = going(old).unwrap_or_default() != going(new).unwrap_or_default();
        if !(lost_changed || resizes_now || sidecars_changed || going_changed) {
            return;
        }
        if sidecars_changed {
            let sets = self.sidecars.concerned_by(Sidecars::has_native);
            let keys = sets.into_iter().map(|set| ObjectKey::new("", set));
            keys.for_each(&self.to_sidecar_sets);
        }
        let gets_native = |it: &Entry| self.sidecars.injects_native(&it.key.namespace);
        let workloads = self.read();
        self.queue(workloads.all().filter(|it| {
            lost_changed
                || (resizes_now && it.is_updated_in_place)
                || (sidecars_changed && (it.has_sidecars || gets_native(it)))
                || (going_changed && it.heeds_going_nodes)
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
        let controllers: BTreeSet<(&str, &str)> = sides(transition)
            .filter_map(|side| Some((side.namespace(), side.controller()?)))
            .collect();
        let workloads = self.read();
        let found = controllers.into_iter();
        self.queue(found.filter_map(|(namespace, uid)| workloads.get(namespace, uid)));
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
mod tests;

//! Updates the pods of SidecarSets within the limits of the sets, and writes the status of the sets.
//!
//! Containers are injected elsewhere: by the plans of workloads, and by the webhook.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::Shared;
use super::memories::{Memories, Remembered};
use super::set_workloads::{SetWorkloads, deselected_pods};
use crate::kinds::{Cache, Whole};
use crate::reconcile::apply::{Target, instant};
use crate::runtime::objects::{Kind, ObjectKey};
use crate::runtime::queue::{Reconciled, Requeue};
use crate::runtime::store::Cached;
use gamekeeper_core::api::names::SIDECAR_SET_LABEL;
use gamekeeper_core::api::{SidecarSet, SidecarSetStatus};
use gamekeeper_core::observed::Pod;
use gamekeeper_core::sidecar_set::{
    MatchedPod, Memory, OtherPods, RevisionWritten, SetRevision, SetWorld, Sidecars, WebhookState,
    plan,
};
use gamekeeper_core::workload::record_of_other_pod;
use gamekeeper_core::write::{Attempt, Owner, Plan};

/// How long a reconcile waits for the first list of revisions, whose watch begins with the first set.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// The shortest time between two lists of revisions, and between two reconciles while the list is missing.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

/// The shortest time between two counts of a set's pods: a thousand starting pods must not cause a thousand writes.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// What is remembered about a set.
#[derive(Debug, Default)]
struct SetMemory {
    answers: Memory,
    /// When the set's pods were last counted.
    counted: Option<Instant>,
}

impl SetMemory {
    /// When the pods may be counted again. None if they may be counted now; this time is then recorded.
    fn next_count(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let due = self.counted.map(|last| last + COUNT_INTERVAL);
        let due = due.filter(|due| *due > now);
        if due.is_none() {
            self.counted = Some(now);
        }
        due
    }
}

/// A plan, and when it was made.
struct Planning {
    plan: Plan<SidecarSetStatus>,
    now: Timestamp,
    read_at: Instant,
    took: Duration,
}

/// Reconciles SidecarSets.
pub(crate) struct SidecarSets {
    shared: Shared,
    webhook: watch::Receiver<WebhookState>,
    memories: Memories<SetMemory>,
}

impl SidecarSets {
    pub(crate) fn new(shared: Shared, webhook: watch::Receiver<WebhookState>) -> Self {
        Self { shared, webhook, memories: Memories::default() }
    }

    fn cache(&self) -> &Cache {
        &self.shared.cache
    }

    /// Reconciles one set: waits until the cache shows the operator's last writes for it, plans, and applies.
    pub(crate) async fn reconcile(self: Arc<Self>, key: ObjectKey) -> Reconciled {
        let sets = &self.cache().sidecar_sets;
        // A plan that does not see the tokens that the previous plan allotted would allot too many.
        if let Some(known) = sets.get(&key) {
            self.cache().until_caught_up(known.uid()).await;
        }
        let Some(set) = sets.get(&key) else {
            self.memories.forget(self.cache(), &key);
            return match sets.unreadable(&key) {
                // An operator for one namespace cannot tell whether the set is for that namespace.
                Some(unreadable) if !self.cache().sidecars.is_scoped() => {
                    let reporter = &self.shared.unreadable;
                    reporter.report(Kind::SidecarSet, &key, &unreadable).await.into()
                }
                _ => Requeue::Settled(None).into(),
            };
        };
        if !self.cache().sidecars.is_ours(&set.object) || set.terminating() {
            return Requeue::Settled(None).into();
        }
        let mut remembered = self.memories.recall(self.cache(), &key, set.uid());
        let reconciled = match remembered.memory.next_count() {
            Some(due) => Requeue::Settled(Some(due)).into(),
            None => self.plan_and_apply(&set, &mut remembered).await,
        };
        self.memories.keep(key, remembered);
        reconciled
    }

    async fn plan_and_apply(
        self: &Arc<Self>,
        set: &Arc<Whole<SidecarSet>>,
        remembered: &mut Remembered<SetMemory>,
    ) -> Reconciled {
        let Remembered { memory: SetMemory { answers, counted }, pace, .. } = remembered;
        let mut progress = self.cache().progress(Kind::SetRevision);
        let listed = timeout(LIST_TIMEOUT, progress.wait_for(|progress| progress.listed > 0));
        if !matches!(listed.await, Ok(Ok(_))) {
            return Requeue::Settled(Some(Instant::now() + LIST_INTERVAL)).into();
        }
        let generation = set.object.metadata.generation.unwrap_or_default();
        answers.begin_plan(generation, Timestamp::now());
        let (this, subject, known) = (Arc::clone(self), Arc::clone(set), answers.clone());
        let planned = self.shared.planners.run(move || this.plan(&subject, &known));
        let Planning { plan, now, read_at, took } = planned.await;
        let wake = plan.wake.map(|at| instant(at, now));
        let mut target = self.target(set, read_at);
        let on_write = |written| self.cache().expectations.record(set.uid(), written);
        let old_status = set.object.status.as_ref();
        let applier = &self.shared.applier;
        let report =
            applier.carry_out(&mut target, plan, old_status, answers, pace, &on_write).await;
        let written = answers.take_written();
        if written.is_some() {
            // The pods have not been counted.
            *counted = None;
        }
        if written == Some(RevisionWritten::Lost) {
            // The cache does not show which object has the name.
            self.cache().set_revisions.relist(LIST_INTERVAL).await;
        }
        Reconciled { requeue: report.requeue(wake), planning: took }
    }

    /// Reads the cache and plans.
    fn plan(&self, set: &Whole<SidecarSet>, answers: &Memory) -> Planning {
        let read_at = Instant::now();
        let now = Timestamp::now();
        let cache = self.cache();
        let sidecars = cache.sidecars.get(set.name());
        let pods = sidecars.iter().flat_map(|it| self.pods(it, answers, now));
        let (orphans, taken) = self.other_revisions(set);
        let webhook = self.webhook.borrow().clone();
        let world = SetWorld {
            now,
            sidecars: sidecars.as_deref(),
            revisions: &cache.sidecars.revisions(set.uid()),
            orphans: &orphans,
            taken: &taken,
            revision_namespace: &cache.settings.own_namespace,
            pods: &pods.collect::<Vec<_>>(),
            others: OtherPods {
                namespaces: &sidecars.as_deref().map(|it| self.open_to_all(it)).unwrap_or_default(),
                all: cache.sidecars.policy().all,
                webhook: &webhook,
            },
            // Events of cluster-scoped objects belong to the namespace `default`.
            publishes_events: !cache.sidecars.is_scoped(),
            refused_revision: answers.refused_revision(Attempt::RecordRevision),
            refused_clean_up: answers.refused_revision(Attempt::CleanUp),
            named: &|| self.named_revisions(set.name()),
            record: record_of_other_pod,
        };
        let plan = plan(&set.object, &world);
        Planning { plan, now, read_at, took: read_at.elapsed() }
    }

    fn target(&self, set: &Whole<SidecarSet>, read_at: Instant) -> Target {
        let meta = &set.object.metadata;
        let label = (SIDECAR_SET_LABEL.to_owned(), set.name().to_owned());
        Target {
            owner: Owner {
                kind: Kind::SidecarSet,
                namespace: String::new(),
                name: set.name().to_owned(),
                uid: set.uid().to_owned(),
                resource_version: meta.resource_version.clone().unwrap_or_default(),
                revision_namespace: self.cache().settings.own_namespace.to_string(),
                revision_labels: BTreeMap::from([label]),
                selector_keys: Vec::new(),
            },
            generation: meta.generation.unwrap_or_default(),
            deleting: false,
            hooked: false,
            read_at,
        }
    }

    /// The revisions that do not belong to the set: those that it may adopt, and the names of the others.
    fn other_revisions(
        &self,
        set: &Whole<SidecarSet>,
    ) -> (Vec<Arc<SetRevision>>, BTreeSet<String>) {
        let (mut orphans, mut taken) = (Vec::new(), BTreeSet::new());
        for other in self.cache().set_revisions.store().all() {
            match other.revision() {
                _ if other.set_uid() == Some(set.uid()) => {}
                Some(revision) if other.is_adoptable_by(set.name()) => {
                    orphans.push(Arc::clone(revision));
                }
                _ => {
                    taken.insert(other.name().to_owned());
                }
            }
        }
        (orphans, taken)
    }

    /// The revisions that marks of pods name.
    fn named_revisions(&self, set: &str) -> HashSet<String> {
        let mut named = HashSet::new();
        for pod in self.cache().pods.store().all() {
            if let Some(mark) = pod.marks().and_then(|marks| marks.get(set)) {
                named.insert(mark.revision.clone());
                named.extend(mark.token.clone());
            }
        }
        named
    }

    /// The namespaces that the set reaches and in which pods of other controllers get sidecars.
    fn open_to_all(&self, sidecars: &Sidecars) -> Vec<String> {
        let reached = self.cache().sidecars.reached_by(sidecars).into_iter();
        let open = reached.filter_map(|(namespace, all)| all.then_some(namespace));
        open.collect()
    }

    fn pods(&self, sidecars: &Sidecars, answers: &Memory, now: Timestamp) -> Vec<MatchedPod> {
        let mut workloads = SetWorkloads::of(self.cache(), sidecars);
        let mut pods = deselected_pods(self.cache(), sidecars, now);
        for pod in &mut pods {
            pod.refused = answers.refused(&pod.uid).cloned();
        }
        for (namespace, all) in self.cache().sidecars.reached_by(sidecars) {
            // Only the references are copied while the store is locked.
            let found: Vec<_> = {
                let store = self.cache().pods.store();
                store.in_namespace(&namespace).cloned().collect()
            };
            for pod in found {
                if let Some(mut matched) = pod.matched(sidecars, all, now) {
                    let with_containers = pod.with_containers();
                    matched.kubelet_ignores =
                        with_containers.is_some_and(|pod| self.kubelet_ignores(sidecars, pod));
                    matched.refused = answers.refused(&matched.uid).cloned();
                    if let Some(own) = pod.own() {
                        workloads.describe(own, &mut matched);
                    }
                    let is_hot_patched = with_containers.is_some_and(|pod| pod.hot_patched);
                    matched.hot_patched = is_hot_patched && matched.held.is_none();
                    pods.push(matched);
                }
            }
        }
        pods
    }

    /// Whether the update would change the image of a native sidecar, and the pod's kubelet would ignore that.
    fn kubelet_ignores(&self, sidecars: &Sidecars, pod: &Pod) -> bool {
        let mut native = sidecars.images().filter(|it| it.native);
        let changes_native = native.any(|it| {
            let mut containers = pod.containers.iter();
            containers
                .any(|container| container.name == it.container && container.image != it.image)
        });
        changes_native
            && pod.node.as_ref().is_some_and(|node| {
                let node = self.cache().nodes.store().get("", node);
                let kubelet = node.and_then(|node| node.old_kubelet.clone());
                kubelet.is_some_and(|it| !it.restarts_sidecars())
            })
    }
}

//! The controller of workloads, the same for both kinds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::Instant;
use tracing::debug;

use super::Shared;
use super::world::{MemorySnapshot, NotPlanned, world};
use crate::kinds::{Cache, Whole};
use crate::reconcile::apply::{Memory, Target, WorkloadLabels, instant};
use crate::runtime::control::Control;
use crate::runtime::log_limiter::log_limited;
use crate::runtime::objects::{ObjectKey, Written};
use crate::runtime::queue::{Reconciled, Requeue};
use crate::runtime::reflector::{Reflector, Unreadable};
use crate::runtime::store::Cached;
use gamekeeper_core::api::{ConditionType, WorkloadStatus, json_memory};
use gamekeeper_core::causes::with_causes;
use gamekeeper_core::workload::{
    EndedMatch, GuardedPlayers, InvalidWorkload, Planned, ended_in_spite_of_the_guard,
    unreadable_message,
};
use gamekeeper_core::write::{Owner, Plan};

/// Planning that takes longer is logged. A plan for ten thousand pods takes a tenth of this time.
const SLOW_PLAN: Duration = Duration::from_millis(500);

/// A template that takes more memory than this while it is parsed, in bytes, makes a plan large.
const LARGE_TEMPLATE: usize = 1 << 20;

/// Reconciles the workloads of one kind.
pub(crate) struct Workloads<K> {
    shared: Shared,
    reflector: Arc<Reflector<Whole<K>>>,
    /// By workload. An entry is removed while its workload is reconciled.
    memories: Mutex<HashMap<ObjectKey, Remembered>>,
}

struct Remembered {
    uid: String,
    memory: Memory,
}

impl<K: Planned> Workloads<K> {
    pub(crate) fn new(shared: Shared, reflector: Arc<Reflector<Whole<K>>>) -> Self {
        Self { shared, reflector, memories: Mutex::default() }
    }

    /// Reconciles one workload: waits until the cache shows the operator's last writes for it, plans, and applies.
    pub(crate) async fn reconcile(self: Arc<Self>, key: ObjectKey) -> Reconciled {
        let cache = &self.shared.cache;
        let Some(known) = self.reflector.get(&key) else {
            return self.handle_missing(&key).await.into();
        };
        let metrics = &self.shared.metrics;
        let started = Instant::now();
        cache.until_caught_up(known.uid()).await;
        metrics.caught_up(K::KIND, started.elapsed());
        if self.is_new(&key, &known)
            && let Err(error) = cache.see_current_sets().await
        {
            let error = with_causes(&error);
            log_limited!(warn, %error, "cannot compare the SidecarSets with the API server");
            return Requeue::Retry(None).into();
        }
        let Some(workload) = self.reflector.get(&key) else {
            return self.handle_missing(&key).await.into();
        };
        let mut memory = self.recall(&key, workload.uid());
        let started = Instant::now();
        let reconciled = self.plan_and_apply(&workload, &mut memory).await;
        let labels = labels_of(&workload);
        let is_success = !matches!(reconciled.requeue, Requeue::Retry(_));
        metrics.reconciled(labels, is_success, started.elapsed());
        let uid = workload.uid().to_owned();
        self.memories().insert(key, Remembered { uid, memory });
        reconciled
    }

    /// Whether no operator has planned for this workload yet. If so, it has no pods, and those that it gets now keep
    /// the sidecars that they are created with.
    fn is_new(&self, key: &ObjectKey, workload: &Whole<K>) -> bool {
        let memories = self.memories();
        let remembered = memories.get(key).filter(|it| it.uid == workload.uid());
        // The API server gives a new object the observed generation -1.
        let status = workload.object.status().map(AsRef::as_ref);
        let is_observed = status.is_some_and(|it: &WorkloadStatus| it.observed_generation > 0);
        remembered.is_none() && !is_observed
    }

    /// Handles a workload that is not in the store: reports it if it cannot be decoded; forgets it if it was deleted.
    async fn handle_missing(&self, key: &ObjectKey) -> Requeue {
        let Some(unreadable) = self.reflector.unreadable(key) else {
            self.forget(key);
            return Requeue::Settled(None);
        };
        let reporter = &self.shared.unreadable;
        reporter.report(K::KIND.into(), key, &unreadable).await
    }

    /// Reports that nothing is planned for a workload, unless its status shows that.
    async fn report_unreadable(&self, workload: &Whole<K>, why: String) -> Requeue {
        let status: Option<&WorkloadStatus> = workload.object.status().map(AsRef::as_ref);
        let ready = status.and_then(|it| it.condition(ConditionType::Ready));
        if ready.is_some_and(|it| it.message == unreadable_message(&why)) {
            return Requeue::Settled(None);
        }
        let unreadable = Unreadable {
            uid: workload.uid().to_owned(),
            resource_version: workload.version().to_string(),
            reason: why,
            control: Control::None,
            over_budget: false,
        };
        let reporter = &self.shared.unreadable;
        reporter.report(K::KIND.into(), &workload.key(), &unreadable).await
    }

    async fn plan_and_apply(&self, workload: &Arc<Whole<K>>, memory: &mut Memory) -> Reconciled {
        let planned = self.plan(workload, memory).await;
        let Planning { read_at, now, revisions, sidecars, plan, players, ended_without_hook, took } =
            match planned {
                Ok(planning) => planning,
                Err(NotPlanned::UnknownNamespace) => {
                    debug!("the namespace is not in the cache yet");
                    return Requeue::Settled(None).into();
                }
                Err(NotPlanned::Unreadable(why)) => {
                    return self.report_unreadable(workload, why).await.into();
                }
            };
        let mut target = target(workload, read_at);
        memory.players = players;
        let metrics = &self.shared.metrics;
        if workload.object.protection().is_some() {
            metrics.ended_without_hook(&labels_of(workload), &ended_without_hook);
            if let Some(event) = ended_in_spite_of_the_guard(&ended_without_hook) {
                self.shared.applier.tell(&target, event);
            }
        }
        memory.record_sidecars(sidecars);
        memory.retain_revisions(|name| revisions.contains(name));
        let plan = match plan {
            Ok(plan) => plan,
            Err(invalid) => {
                let why = invalid.to_string();
                return self.report_unreadable(workload, why).await.into();
            }
        };
        debug!(writes = ?plan.writes, wake = ?plan.wake, "planned");
        let wake = plan.wake.map(|at| instant(at, now));
        if plan.status.is_some() {
            memory.retain_failures(&plan.writes, now);
        }
        let uid = workload.uid();
        let expectations = &self.shared.cache.expectations;
        let unstored_runs = &self.shared.cache.unstored_runs;
        let on_write = |write| {
            if let Written::Deleted(deleted) = &write {
                unstored_runs.remove(&deleted.key, &deleted.uid);
            }
            expectations.record(uid, write);
        };
        let old_status = workload.object.status();
        let applier = &self.shared.applier;
        let report = applier.carry_out(&mut target, plan, old_status, memory, &on_write).await;
        Reconciled { requeue: report.requeue(wake), planning: took }
    }

    /// Reads the cache and plans, on the planner threads.
    async fn plan(
        &self,
        workload: &Arc<Whole<K>>,
        memory: &Memory,
    ) -> Result<Planning<K::Status>, NotPlanned> {
        let (cache, memory) = (Arc::clone(&self.shared.cache), MemorySnapshot::of(memory));
        let subject = Arc::clone(workload);
        let planners = &self.shared.planners;
        let work = move || Planning::of(&cache, &subject, memory);
        let template = workload.object.pod_template().text();
        let planning = match json_memory(template.as_bytes()) > LARGE_TEMPLATE {
            true => planners.run_large(workload.namespace(), work).await?,
            false => planners.run(work).await?,
        };
        let took = planning.took;
        self.shared.metrics.planned(K::KIND, took);
        if took > SLOW_PLAN {
            log_limited!(
                warn,
                ?took,
                "planning is slow: this process has too little CPU for its number of pods"
            );
        }
        Ok(planning)
    }

    fn recall(&self, key: &ObjectKey, uid: &str) -> Memory {
        let remembered = self.memories().remove(key);
        match remembered {
            Some(remembered) if remembered.uid == uid => remembered.memory,
            // This memory belongs to a deleted workload of the same name.
            Some(old) => {
                forget(&self.shared.cache, &key.namespace, &old.uid);
                Memory::default()
            }
            None => Memory::default(),
        }
    }

    fn forget(&self, key: &ObjectKey) {
        let remembered = self.memories().remove(key);
        if let Some(remembered) = remembered {
            forget(&self.shared.cache, &key.namespace, &remembered.uid);
            log_limited!(info, "the workload was deleted");
        }
    }

    fn memories(&self) -> MutexGuard<'_, HashMap<ObjectKey, Remembered>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets what the cache holds for a workload that was deleted.
fn forget(cache: &Cache, namespace: &str, uid: &str) {
    cache.expectations.forget(uid);
    cache.unstored_runs.remove_all_of(namespace, uid);
}

/// A plan and its inputs.
struct Planning<S> {
    /// When the cache was read.
    read_at: Instant,
    /// The same time on the wall clock.
    now: Timestamp,
    /// The names of the workload's revisions.
    revisions: BTreeSet<String>,
    /// The revisions of the SidecarSets that new pods get.
    sidecars: Vec<String>,
    plan: Result<Plan<S>, InvalidWorkload>,
    /// Guarded pods that may have players now.
    players: GuardedPlayers,
    /// What ended guarded pods that may have had players, except deletions by the operator.
    ended_without_hook: Vec<EndedMatch>,
    /// How long reading and planning took.
    took: Duration,
}

impl<S> Planning<S> {
    fn of<K: Planned<Status = S>>(
        cache: &Cache,
        workload: &Whole<K>,
        mut memory: MemorySnapshot,
    ) -> Result<Self, NotPlanned> {
        let read_at = Instant::now();
        let known_players = std::mem::take(&mut memory.players);
        let world = world(cache, workload, memory)?;
        let plan = workload.object.plan(&world);
        let object = workload.object.as_ref();
        Ok(Self {
            read_at,
            now: world.now,
            plan,
            players: GuardedPlayers::of(object, &world),
            ended_without_hook: known_players.ended(object, &world),
            took: read_at.elapsed(),
            sidecars: world.sidecars.iter().map(|it| it.new_pods_identity()).collect(),
            revisions: world.revisions.iter().map(|it| it.name.clone()).collect(),
        })
    }
}

fn labels_of<K: Planned>(workload: &Whole<K>) -> WorkloadLabels {
    WorkloadLabels {
        kind: K::KIND,
        namespace: workload.namespace().to_owned(),
        name: workload.name().to_owned(),
    }
}

fn target<K: Planned>(workload: &Whole<K>, read_at: Instant) -> Target {
    let meta = workload.object.meta();
    let selector = workload.object.label_selector();
    let labels = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    let keys = labels.map(|(key, _)| key).chain(expressions.map(|it| &it.key));
    let [pre_delete, pre_inplace, _] = workload.object.pod_hooks();
    let pre_hooks = [pre_delete, pre_inplace];
    Target {
        owner: Owner {
            kind: K::KIND.into(),
            namespace: workload.namespace().to_owned(),
            name: workload.name().to_owned(),
            uid: workload.uid().to_owned(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            revision_namespace: workload.namespace().to_owned(),
            revision_labels: template_labels(&*workload.object),
            selector_keys: keys.cloned().collect(),
        },
        generation: meta.generation.unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
        hooked: pre_hooks.iter().any(|strategy| strategy.hook.is_some()),
        read_at,
    }
}

/// The labels of new revisions: those of the template, as for native controllers. The selector matches them whatever its
/// terms are, so that revisions are found again when they have become orphans.
fn template_labels<K: Planned>(workload: &K) -> BTreeMap<String, String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Template {
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        labels: Option<BTreeMap<String, Option<String>>>,
    }
    let template: Template = workload.pod_template().read();
    let labels = template.metadata.labels.into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key, value?))).collect()
}

#[cfg(test)]
mod tests;

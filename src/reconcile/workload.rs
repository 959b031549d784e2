//! The controller of workloads, the same for both kinds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::Instant;
use tracing::debug;

use super::Shared;
use super::memories::{Memories, Remembered};
use super::world::{NotPlanned, world};
use crate::kinds::{Cache, Whole};
use crate::reconcile::apply::{Target, WorkloadLabels, instant};
use crate::runtime::control::Control;
use crate::runtime::log_limiter::log_limited;
use crate::runtime::objects::{ObjectKey, Written};
use crate::runtime::queue::{Reconciled, Requeue};
use crate::runtime::reflector::{Reflector, Unreadable};
use crate::runtime::store::Cached;
use gamekeeper_core::api::{ConditionType, WorkloadStatus, json_memory};
use gamekeeper_core::causes::with_causes;
use gamekeeper_core::workload::{
    EndedMatch, GuardedPlayers, InvalidWorkload, Memory, Planned, ended_in_spite_of_the_guard,
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
    memories: Memories<Memory>,
}

impl<K: Planned> Workloads<K> {
    pub(crate) fn new(shared: Shared, reflector: Arc<Reflector<Whole<K>>>) -> Self {
        Self { shared, reflector, memories: Memories::default() }
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
        let mut remembered = self.memories.recall(cache, &key, workload.uid());
        let started = Instant::now();
        let reconciled = self.plan_and_apply(&workload, &mut remembered).await;
        let labels = labels_of(&workload);
        let is_success = !matches!(reconciled.requeue, Requeue::Retry(_));
        metrics.reconciled(labels, is_success, started.elapsed());
        self.memories.keep(key, remembered);
        reconciled
    }

    /// Whether no operator has planned for this workload yet. If so, it has no pods, and those that it gets now keep
    /// the sidecars that they are created with.
    fn is_new(&self, key: &ObjectKey, workload: &Whole<K>) -> bool {
        // The API server gives a new object the observed generation -1.
        let status = workload.object.status().map(AsRef::as_ref);
        let is_observed = status.is_some_and(|it: &WorkloadStatus| it.observed_generation > 0);
        !is_observed && !self.memories.knows(key, workload.uid())
    }

    /// Handles a workload that is not in the store: reports it if it cannot be decoded; forgets it if it was deleted.
    async fn handle_missing(&self, key: &ObjectKey) -> Requeue {
        let Some(unreadable) = self.reflector.unreadable(key) else {
            if self.memories.forget(&self.shared.cache, key) {
                log_limited!(info, "the workload was deleted");
            }
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

    async fn plan_and_apply(
        &self,
        workload: &Arc<Whole<K>>,
        remembered: &mut Remembered<Memory>,
    ) -> Reconciled {
        let Remembered { memory, pace, .. } = remembered;
        let planned = self.plan(workload, memory).await;
        let Planning { read_at, now, plan, ended_without_hook, took } = match planned {
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
        let metrics = &self.shared.metrics;
        if workload.object.protection().is_some() {
            metrics.ended_without_hook(&labels_of(workload), &ended_without_hook);
            if let Some(event) = ended_in_spite_of_the_guard(&ended_without_hook) {
                self.shared.applier.tell(&target, event);
            }
        }
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
        let report =
            applier.carry_out(&mut target, plan, old_status, memory, pace, &on_write).await;
        Reconciled { requeue: report.requeue(wake), planning: took }
    }

    /// Reads the cache and plans, on the planner threads.
    async fn plan(
        &self,
        workload: &Arc<Whole<K>>,
        memory: &mut Memory,
    ) -> Result<Planning<K::Status>, NotPlanned> {
        let (cache, mut known) = (Arc::clone(&self.shared.cache), std::mem::take(memory));
        let subject = Arc::clone(workload);
        let planners = &self.shared.planners;
        let work = move || (Planning::of(&cache, &subject, &mut known), known);
        let template = workload.object.pod_template().text();
        let (planning, known) = match json_memory(template.as_bytes()) > LARGE_TEMPLATE {
            true => planners.run_large(workload.namespace(), work).await,
            false => planners.run(work).await,
        };
        *memory = known;
        let planning = planning?;
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
}

/// A plan and its inputs.
struct Planning<S> {
    /// When the cache was read.
    read_at: Instant,
    /// The same time on the wall clock.
    now: Timestamp,
    plan: Result<Plan<S>, InvalidWorkload>,
    /// What ended guarded pods that may have had players, except deletions by the operator.
    ended_without_hook: Vec<EndedMatch>,
    /// How long reading and planning took.
    took: Duration,
}

impl<S> Planning<S> {
    fn of<K: Planned<Status = S>>(
        cache: &Cache,
        workload: &Whole<K>,
        memory: &mut Memory,
    ) -> Result<Self, NotPlanned> {
        let read_at = Instant::now();
        let mut world = world(cache, workload)?;
        memory.begin_plan(&world.revisions, &world.sidecars);
        world.memory = std::mem::take(memory);
        let plan = workload.object.plan(&world);
        let object = workload.object.as_ref();
        let ended_without_hook = world.memory.players.ended(object, &world);
        let players = GuardedPlayers::of(object, &world);
        let now = world.now;
        *memory = world.memory;
        memory.players = players;
        Ok(Self { read_at, now, plan, ended_without_hook, took: read_at.elapsed() })
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

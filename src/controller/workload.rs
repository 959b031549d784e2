//! The controller of workloads, the same for both kinds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::core::SelectorExt;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::Shared;
use super::queue::{Looked, Next};
use crate::api::names::{self, WorkloadKind};
use crate::apply::events::Told;
use crate::apply::{Memory, Of, Outcome, Report, Target, Thing, Written};
use crate::cache::{Cached, Deleted, Kind, Mirror, ObjectKey, Whole, Write};
use crate::plan::{Claim, Event, Planned, Pod, World};

/// Looks at workloads of one kind.
pub struct Workloads<K> {
    shared: Shared,
    mirror: Arc<Mirror<Whole<K>>>,
    /// What is remembered of each, by its name; taken out while it is looked at.
    memories: Mutex<HashMap<ObjectKey, Remembered>>,
}

struct Remembered {
    uid: String,
    memory: Memory,
}

impl<K: Planned> Workloads<K> {
    /// A controller of the workloads in this mirror that remembers nothing yet.
    pub fn new(shared: Shared, mirror: Arc<Mirror<Whole<K>>>) -> Self {
        Self {
            shared,
            mirror,
            memories: Mutex::default(),
        }
    }

    /// Looks at one: waits until its own last writes are seen, plans, and carries the plan out.
    pub async fn look(self: Arc<Self>, key: ObjectKey) -> Looked {
        let cache = &self.shared.cache;
        let Some(known) = self.mirror.get(&key) else {
            self.forget(&key);
            return Next::Settled(None).into();
        };
        let metrics = &self.shared.metrics;
        let asked = Instant::now();
        cache.caught_up(known.uid()).await;
        metrics.caught_up(K::KIND, asked.elapsed());
        let Some(workload) = self.mirror.get(&key) else {
            self.forget(&key);
            return Next::Settled(None).into();
        };
        let mut memory = self.recall(&key, workload.uid());
        let begun = Instant::now();
        let looked = self.reconcile(&workload, &mut memory).await;
        let of = Of {
            kind: K::KIND,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        };
        metrics.looked(of, !matches!(looked.next, Next::Retry(_)), begun.elapsed());
        let uid = workload.uid().to_owned();
        self.memories().insert(key, Remembered { uid, memory });
        looked
    }

    async fn reconcile(&self, workload: &Whole<K>, memory: &mut Memory) -> Looked {
        let mut target = target(workload);
        let begun = Instant::now();
        let world = self.world(workload, memory);
        let is_there = |name: &str| world.revisions.iter().any(|it| it.name == name);
        memory.retain_revisions(is_there);
        let plan = workload.object.plan(&world);
        let planning = begun.elapsed();
        let plan = match plan {
            Ok(plan) => plan,
            Err(invalid) => {
                warn!(%invalid, "nothing can be planned");
                let event = Event {
                    warning: true,
                    reason: "InvalidSpec".to_owned(),
                    message: invalid.to_string(),
                };
                self.shared.events.tell(&target, Told::Plain(event));
                return Next::Settled(None).into();
            }
        };
        debug!(actions = ?plan.actions, wake = ?plan.wake, "planned");
        let wake = plan.wake.map(|at| instant(at, world.now));
        if let Some(status) = &plan.status {
            memory.forget_failures(status.as_ref());
        }
        let uid = workload.uid();
        let note = |written| self.note(uid, workload.namespace(), written);
        let shown = workload.object.status();
        let applier = &self.shared.applier;
        let report = applier
            .carry_out(&mut target, plan, shown, memory, &note)
            .await;
        Looked {
            next: next(report, wake),
            planning,
        }
    }

    /// Everything that the planner is to see.
    fn world(&self, workload: &Whole<K>, memory: &Memory) -> World {
        let cache = &self.shared.cache;
        let (namespace, uid) = (workload.namespace(), workload.uid());
        let selector = workload.object.selector();
        let selected = |labels: &BTreeMap<String, String>| {
            selector.as_ref().is_some_and(|it| it.matches(labels))
        };
        let pods = cache.pods.store().of_workload(namespace, uid, selected);
        let revisions = {
            let store = cache.revisions.store();
            let mut revisions = store.controlled_by(namespace, Some(uid));
            let orphans = store.controlled_by(namespace, None);
            revisions.extend(orphans.into_iter().filter(|it| selected(&it.labels)));
            revisions
        };
        let runs = cache.hook_runs.store().controlled_by(namespace, Some(uid));
        let templates = {
            let store = cache.hook_templates.store();
            let named = workload.object.hook_templates().into_iter();
            named
                .filter_map(|name| {
                    let template = store.get(namespace, name)?;
                    Some((name.to_owned(), Arc::clone(&template.object)))
                })
                .collect()
        };
        let (node_costs, lost_nodes) = self.nodes(&pods);
        World {
            now: Timestamp::now(),
            pods,
            runs: runs.iter().map(|run| Arc::clone(&run.object)).collect(),
            revisions: revisions
                .iter()
                .map(|it| Arc::clone(&it.revision))
                .collect(),
            templates,
            node_costs,
            lost_nodes,
            claims: self.claims(workload),
            verdicts: memory.verdicts.clone(),
            taken: memory.taken.clone(),
            failures: memory.failures.clone(),
        }
    }

    /// Deletion costs of the nodes that these pods are bound to, and which of them are lost.
    fn nodes(&self, pods: &[Arc<Pod>]) -> (BTreeMap<String, i32>, BTreeSet<String>) {
        let store = self.shared.cache.nodes.store();
        let (mut costs, mut lost) = (BTreeMap::new(), BTreeSet::new());
        for name in pods.iter().filter_map(|pod| pod.node.as_ref()) {
            let Some(node) = store.get("", name) else {
                continue;
            };
            costs.extend(node.cost.map(|cost| (name.clone(), cost)));
            lost.extend(node.lost.then(|| name.clone()));
        }
        (costs, lost)
    }

    /// Claims that are named after the workload's pods, or that it controls.
    fn claims(&self, workload: &Whole<K>) -> BTreeMap<String, Arc<Claim>> {
        let templates = workload.object.claim_templates();
        if templates.is_empty() {
            return BTreeMap::new();
        }
        let prefixes: Vec<String> = templates
            .iter()
            .map(|it| names::claim_prefix(names::claim_template_name(it), workload.name()))
            .collect();
        let is_own = |claim: &Claim| {
            let is_named = |prefix| names::ordinal_after(prefix, &claim.name).is_some();
            claim.is_owned_by(workload.uid()) || prefixes.iter().any(|it| is_named(it))
        };
        let store = self.shared.cache.claims.store();
        let claims = store.in_namespace(workload.namespace()).into_iter();
        let own = claims.filter(|claim| is_own(claim));
        own.map(|claim| (claim.name.clone(), claim)).collect()
    }

    /// Notes a write, so that the next plan waits until the cache shows it.
    fn note(&self, uid: &str, namespace: &str, written: Written) {
        let write = match written {
            Written::Version(thing, version) => Write::Version(kind(K::KIND, thing), version),
            Written::Deleted(thing, name, uid) => Write::Deleted(Deleted {
                kind: kind(K::KIND, thing),
                key: ObjectKey::new(namespace, name),
                uid,
            }),
            Written::Unknown(thing) => Write::Unknown(kind(K::KIND, thing)),
        };
        self.shared.cache.expectations.note(uid, write);
    }

    fn recall(&self, key: &ObjectKey, uid: &str) -> Memory {
        match self.memories().remove(key) {
            Some(remembered) if remembered.uid == uid => remembered.memory,
            // Another object of the same name: what was said of the old one is void.
            _ => Memory::default(),
        }
    }

    fn forget(&self, key: &ObjectKey) {
        if let Some(remembered) = self.memories().remove(key) {
            self.shared.cache.expectations.forget(&remembered.uid);
            info!("gone");
        }
    }

    fn memories(&self) -> MutexGuard<'_, HashMap<ObjectKey, Remembered>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn kind(workload: WorkloadKind, thing: Thing) -> Kind {
    match thing {
        Thing::Workload => match workload {
            WorkloadKind::GameDeployment => Kind::GameDeployment,
            WorkloadKind::GameStatefulSet => Kind::GameStatefulSet,
        },
        Thing::Pod => Kind::Pod,
        Thing::HookRun => Kind::HookRun,
        Thing::Revision => Kind::Revision,
        Thing::Claim => Kind::Claim,
    }
}

fn target<K: Planned>(workload: &Whole<K>) -> Target {
    let meta = workload.object.meta();
    let labels = &workload.object.label_selector().match_labels;
    let [pre_delete, pre_inplace, _] = workload.object.pod_hooks();
    let before = [pre_delete, pre_inplace];
    Target {
        kind: K::KIND,
        namespace: workload.namespace().to_owned(),
        name: workload.name().to_owned(),
        uid: workload.uid().to_owned(),
        generation: meta.generation.unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        selector_labels: labels.clone().unwrap_or_default(),
        hooked: before.iter().any(|strategy| strategy.hook.is_some()),
        seen: Instant::now(),
    }
}

/// A moment of the wall clock on the monotonic one.
fn instant(at: Timestamp, now: Timestamp) -> Instant {
    let ahead = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    // A little later rather than a little too early, when there is nothing to do yet.
    Instant::now() + ahead.max(Duration::from_millis(10))
}

/// When to look again after a plan was carried out.
fn next(report: Report, wake: Option<Instant>) -> Next {
    match report.outcome {
        Outcome::Done => Next::Settled([wake, report.status_due].into_iter().flatten().min()),
        Outcome::Unfinished => Next::Now,
        Outcome::Moved(message) => {
            debug!(message, "the world has moved on; planning again");
            Next::Again
        }
        Outcome::Failed { message, after } => {
            warn!(message, "refused; trying again later");
            Next::Retry(after)
        }
    }
}

//! Metrics of the existing HookRuns: how many there are, and how long workloads have waited for them.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};

use super::owners::Owners;
use super::waits::Waits;
use super::workloads::labels;
use crate::kinds::Cache;
use crate::reconcile::apply::WorkloadLabels;
use crate::reconcile::{RunOwner, point};
use crate::runtime::metrics::encode_family;
use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::api::{GameWorkload, HookRun, WorkloadStatus};

#[derive(Default)]
pub(super) struct Hooks {
    /// The longest duration of a run, by owner and phase.
    survival: BTreeMap<SurvivalLabels, f64>,
    /// The number of runs, by workload, point and phase.
    runs: BTreeMap<(WorkloadPoint, String), f64>,
    /// The longest wait of a pod for its hook, or of a canary step for its run.
    waits: BTreeMap<WorkloadPoint, f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct SurvivalLabels {
    #[prometheus(flatten)]
    owner: RunOwner,
    phase: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WorkloadPoint {
    workload: WorkloadLabels,
    point: HookPoint,
}

pub(super) fn read(cache: &Cache, owners: &Owners, waits: &Waits, now: Timestamp) -> Hooks {
    let mut hooks = Hooks::default();
    for run in cache.hook_runs.store().all() {
        hooks.add(&run.object, owners, waits, now);
    }
    waits.remove_old(now);
    for workload in cache.game_deployments.store().all() {
        hooks.add_guarded_waits(&*workload.object, now);
    }
    for workload in cache.game_stateful_sets.store().all() {
        hooks.add_guarded_waits(&*workload.object, now);
    }
    hooks
}

impl Hooks {
    fn add(&mut self, run: &HookRun, owners: &Owners, waits: &Waits, now: Timestamp) {
        let status = run.status.clone().unwrap_or_default();
        let phase = status.phase.to_string();
        if let Some(started) = status.started_at {
            let end = status.finished_at.as_ref().map_or(now, |it| it.0);
            let labels = SurvivalLabels { owner: owners.owner(run), phase: phase.clone() };
            raise(&mut self.survival, labels, seconds(started.0, end));
        }
        let Some(key) = workload_point(run, owners) else {
            return;
        };
        // Nothing waits for a finished run of a step: the rollout continues, or is paused.
        if key.point != HookPoint::Step || status.finished_at.is_none() {
            let since = waits.since(run, key.point, now);
            raise(&mut self.waits, key.clone(), seconds(since, now));
        }
        *self.runs.entry((key, phase)).or_default() += 1.0;
    }

    /// Guarded pods also wait without a HookRun, if none can be created or if their hook was removed.
    fn add_guarded_waits<K: GameWorkload>(&mut self, workload: &K, now: Timestamp) {
        let status = workload.status().map(AsRef::as_ref);
        let protection = status.and_then(|it: &WorkloadStatus| it.protection.as_ref());
        let waiting = protection.map_or(&[][..], |it| &it.waiting);
        let Some(since) = waiting.iter().map(|it| it.since.0).min() else {
            return;
        };
        let meta = workload.meta();
        let workload = WorkloadLabels {
            kind: K::KIND,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        };
        let point = HookPoint::PreDelete;
        raise(&mut self.waits, WorkloadPoint { workload, point }, seconds(since, now));
    }

    pub(super) fn encode(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let name = "bkbcs_hook_hookrun_survive_time_seconds";
        let help = "Longest time that a HookRun of an owner has been running, or ran";
        encode_family(to, name, help, self.survival.clone())?;
        let runs = self.runs.iter().map(|((key, phase), count)| {
            let [kind, namespace, name, point] = key.labels();
            ([kind, namespace, name, point, ("phase", phase)], *count)
        });
        encode_family(to, "gamekeeper_hook_runs", "HookRuns of a workload", runs)?;
        let waits = self.waits.iter().map(|(key, wait)| (key.labels(), *wait));
        let help =
            "Longest time that a pod has waited for its hook, or a canary step for its HookRun";
        encode_family(to, "gamekeeper_hook_wait_seconds", help, waits)
    }
}

impl WorkloadPoint {
    fn labels(&self) -> [(&'static str, &str); 4] {
        let [kind, namespace, name] = labels(&self.workload);
        [kind, namespace, name, ("point", self.point.as_str())]
    }
}

/// The workload and the hook point that a run was created for; None if no workload created it, or if the
/// workload no longer exists.
fn workload_point(run: &HookRun, owners: &Owners) -> Option<WorkloadPoint> {
    let (kind, point) = point(run)?;
    let namespace = run.metadata.namespace.as_deref()?;
    let (_, owner) = run.controlling_workload().filter(|(owner_kind, _)| *owner_kind == kind)?;
    owners.has(kind, namespace, owner).then(|| WorkloadPoint {
        workload: WorkloadLabels {
            kind,
            namespace: namespace.to_owned(),
            name: owner.name.clone(),
        },
        point,
    })
}

/// Raises the value of a key to at least `seconds`.
fn raise<K: Ord>(values: &mut BTreeMap<K, f64>, key: K, seconds: f64) {
    let value = values.entry(key).or_default();
    *value = value.max(seconds);
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

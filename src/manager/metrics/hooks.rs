//! The HookRuns that there are, by owner: how many, and how long workloads have waited for them.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};

use super::owners::Owners;
use super::waits::Waits;
use super::workloads::labels;
use crate::apply::WorkloadLabels;
use crate::cache::Cache;
use crate::controller::{RunOwner, point};
use crate::metrics::gauge;
use gamekeeper_core::api::HookRun;
use gamekeeper_core::api::names::HookPoint;

#[derive(Default)]
pub(super) struct Hooks {
    /// The longest that a run of an owner has been at work, by phase.
    survival: BTreeMap<SurvivalLabels, f64>,
    /// Runs of workloads, by point and phase.
    runs: BTreeMap<(WorkloadPoint, String), f64>,
    /// The longest that a pod of a workload has waited for a hook, or a canary step for a run.
    waits: BTreeMap<WorkloadPoint, f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct SurvivalLabels {
    #[prometheus(flatten)]
    of: RunOwner,
    phase: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WorkloadPoint {
    of: WorkloadLabels,
    point: HookPoint,
}

pub(super) fn read(cache: &Cache, owners: &Owners, waits: &Waits, now: Timestamp) -> Hooks {
    let mut hooks = Hooks::default();
    for run in cache.hook_runs.store().all() {
        hooks.add(&run.object, owners, waits, now);
    }
    waits.forget(now);
    hooks
}

impl Hooks {
    fn add(&mut self, run: &HookRun, owners: &Owners, waits: &Waits, now: Timestamp) {
        let status = run.status.clone().unwrap_or_default();
        let phase = status.phase.to_string();
        if let Some(started) = status.started_at {
            let end = status.finished_at.as_ref().map_or(now, |it| it.0);
            let survived = SurvivalLabels {
                of: owners.owner(run),
                phase: phase.clone(),
            };
            longest(&mut self.survival, survived, seconds(started.0, end));
        }
        let Some(at) = workload_point(run, owners) else {
            return;
        };
        // Nothing waits for a step's run that has ended: the rollout goes on, or is paused.
        if at.point != HookPoint::Step || status.finished_at.is_none() {
            let began = waits.began(run, at.point, now);
            longest(&mut self.waits, at.clone(), seconds(began, now));
        }
        *self.runs.entry((at, phase)).or_default() += 1.0;
    }

    pub(super) fn encode(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let name = "bkbcs_hook_hookrun_survive_time_seconds";
        let help = "Longest time that a HookRun of an owner has been running, or ran";
        let survival = self
            .survival
            .iter()
            .map(|(of, longest)| (of.clone(), *longest));
        gauge(to, name, help, survival)?;
        let runs = self.runs.iter().map(|((at, phase), count)| {
            let [kind, namespace, name, point] = at.labels();
            ([kind, namespace, name, point, ("phase", phase)], *count)
        });
        gauge(to, "gamekeeper_hook_runs", "HookRuns of a workload", runs)?;
        let waits = self
            .waits
            .iter()
            .map(|(at, longest)| (at.labels(), *longest));
        let help =
            "Longest time that a pod has waited for its hook, or a canary step for its HookRun";
        gauge(to, "gamekeeper_hook_wait_seconds", help, waits)
    }
}

impl WorkloadPoint {
    fn labels(&self) -> [(&'static str, &str); 4] {
        let [kind, namespace, name] = labels(&self.of);
        [kind, namespace, name, ("point", self.point.as_str())]
    }
}

/// The point at which a run was made, of a workload that there is.
fn workload_point(run: &HookRun, owners: &Owners) -> Option<WorkloadPoint> {
    let (kind, point) = point(run)?;
    let namespace = run.metadata.namespace.as_deref()?;
    let (_, owner) = run.controlling_workload().filter(|(of, _)| *of == kind)?;
    owners.has(kind, namespace, owner).then(|| WorkloadPoint {
        of: WorkloadLabels {
            kind,
            namespace: namespace.to_owned(),
            name: owner.name.clone(),
        },
        point,
    })
}

fn longest<K: Ord>(of: &mut BTreeMap<K, f64>, key: K, seconds: f64) {
    let longest = of.entry(key).or_default();
    *longest = longest.max(seconds);
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

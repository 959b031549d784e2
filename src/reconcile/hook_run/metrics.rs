//! Durations and results of HookRuns and their measurements. The series that bk-bcs has too have the same names here.
//! In bk-bcs, the series have a label for the run, so their number grows without bound; here they have a label for the
//! run's owner instead.
//!
//! Tenants choose the names of owners and metrics, so both are bounded: an owner is an existing workload, and a
//! namespace has at most [`MAX_PAIRS`] pairs of owner and metric. All other pairs are counted with both labels empty.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};

use crate::reconcile::apply::{BUCKETS, ResultLabel};
use crate::runtime::metrics::{Counts, Timings};
use gamekeeper_core::api::names::{HookPoint, WorkloadKind};
use gamekeeper_core::api::{HookPhase, HookRun};

/// The maximum number of pairs of owner and metric that are counted separately for one namespace.
const MAX_PAIRS: usize = 500;

#[derive(Clone, Debug)]
pub(crate) struct HookMetrics {
    /// The pairs of owner and metric that have series, by namespace.
    pairs: Arc<Mutex<BTreeMap<String, Pairs>>>,
    reconciles: Timings<ReconcileLabels>,
    runs: Timings<RunLabels>,
    measurements: Timings<MeasurementLabels>,
    ends: Counts<EndLabels>,
}

type Pairs = BTreeSet<(String, String)>;

/// The namespace and the owner of runs, as labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
pub(crate) struct RunOwner {
    pub namespace: String,
    /// `KIND|NAME` as in bk-bcs; empty for runs that no workload controls.
    pub owner: String,
}

impl RunOwner {
    /// The workload that controls a run, if the workload exists.
    pub(crate) fn of(
        run: &HookRun,
        exists: impl FnOnce(WorkloadKind, &str, &OwnerReference) -> bool,
    ) -> Self {
        let namespace = run.metadata.namespace.clone().unwrap_or_default();
        let owner = run.controlling_workload();
        let owner = owner.filter(|(kind, owner)| exists(*kind, &namespace, owner));
        Self {
            owner: owner.map_or_else(String::new, |(kind, owner)| name(kind, &owner.name)),
            namespace,
        }
    }

    pub(crate) fn workload(kind: WorkloadKind, namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), owner: self::name(kind, name) }
    }
}

fn name(kind: WorkloadKind, name: &str) -> String {
    format!("{}|{name}", kind.as_str())
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct ReconcileLabels {
    #[prometheus(flatten)]
    run_owner: RunOwner,
    status: ResultLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct RunLabels {
    #[prometheus(flatten)]
    run_owner: RunOwner,
    action: &'static str,
    status: ResultLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct MeasurementLabels {
    #[prometheus(flatten)]
    run_owner: RunOwner,
    metric: String,
    phase: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct EndLabels {
    point: &'static str,
    phase: String,
}

impl Default for HookMetrics {
    fn default() -> Self {
        Self {
            pairs: Arc::default(),
            reconciles: Timings::with_buckets(&BUCKETS),
            runs: Timings::with_buckets(&BUCKETS),
            measurements: Timings::with_buckets(&BUCKETS),
            ends: Counts::default(),
        }
    }
}

impl HookMetrics {
    pub(super) fn reconciled(&self, run_owner: RunOwner, is_success: bool, took: Duration) {
        let ((run_owner, _), status) = (self.bounded(run_owner, ""), ResultLabel::of(is_success));
        self.reconciles.observe(ReconcileLabels { run_owner, status }, took);
    }

    pub(super) fn ended(
        &self,
        run_owner: RunOwner,
        run: &HookRun,
        phase: HookPhase,
        took: Duration,
    ) {
        let labels = RunLabels {
            run_owner: self.bounded(run_owner, "").0,
            action: "executeHookRun",
            status: ResultLabel::of(phase == HookPhase::Successful),
        };
        self.runs.observe(labels, took);
        self.ends.increment(EndLabels {
            point: point(run).map_or("Manual", |(_, point)| point.as_str()),
            phase: phase.to_string(),
        });
    }

    /// Counts a measurement. Metrics of runs that no workload controls are not distinguished.
    pub(super) fn measured(
        &self,
        run_owner: RunOwner,
        metric: &str,
        phase: HookPhase,
        took: Duration,
    ) {
        let metric = if run_owner.owner.is_empty() { "" } else { metric };
        let (run_owner, metric) = self.bounded(run_owner, metric);
        let labels = MeasurementLabels { run_owner, metric, phase: phase.to_string() };
        self.measurements.observe(labels, took);
    }

    /// The labels to count under. Owner and metric are empty if the pair is new and its namespace has too many pairs.
    fn bounded(&self, run_owner: RunOwner, metric: &str) -> (RunOwner, String) {
        let mut pairs = self.pairs();
        let known = pairs.entry(run_owner.namespace.clone()).or_default();
        let pair = (run_owner.owner.clone(), metric.to_owned());
        if known.len() < MAX_PAIRS || known.contains(&pair) {
            known.insert(pair);
            return (run_owner, metric.to_owned());
        }
        let owner = String::new();
        (RunOwner { owner, ..run_owner }, String::new())
    }

    pub(crate) fn retain(&self, owners: &BTreeSet<RunOwner>) {
        self.pairs().retain(|namespace, pairs| {
            let mut run_owner = RunOwner { namespace: namespace.clone(), owner: String::new() };
            pairs.retain(|(owner, _)| {
                run_owner.owner.clone_from(owner);
                owners.contains(&run_owner)
            });
            !pairs.is_empty()
        });
        self.reconciles.retain(|it| owners.contains(&it.run_owner));
        self.runs.retain(|it| owners.contains(&it.run_owner));
        self.measurements.retain(|it| owners.contains(&it.run_owner));
    }

    fn pairs(&self) -> MutexGuard<'_, BTreeMap<String, Pairs>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kind of workload that a run was created for, and the hook point; None for a run that a user created.
pub(crate) fn point(run: &HookRun) -> Option<(WorkloadKind, HookPoint)> {
    let mut kinds = WorkloadKind::ALL.into_iter();
    kinds.find_map(|kind| Some((kind, run.point(kind)?)))
}

impl Collector for HookMetrics {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let to = &mut to;
        let name = "bkbcs_hook_reconcile_duration_seconds";
        self.reconciles.encode(to, name, "Duration of one reconcile of a HookRun")?;
        let name = "bkbcs_hook_hookrun_exec_duration_seconds";
        let help = "Duration of a HookRun from start to end";
        self.runs.encode_with_extremes(to, name, help)?;
        let name = "bkbcs_hook_metric_exec_duration_seconds";
        let help = "Duration of one measurement of a HookRun";
        self.measurements.encode_with_extremes(to, name, help)?;
        let help = "HookRuns that have ended";
        self.ends.encode(to, "gamekeeper_hook_runs_ended", help)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};

    use super::*;

    fn run(owners: Value) -> HookRun {
        let run = json!({
            "metadata": {"namespace": "games", "name": "run", "ownerReferences": owners},
            "spec": {"metrics": []},
        });
        serde_json::from_value(run).expect("a run")
    }

    #[test]
    fn the_owner_of_a_run_is_an_existing_workload_that_controls_it() {
        let owner = |api: &str, kind: &str, uid: &str, controller: bool| json!([{"apiVersion": api, "kind": kind, "name": "lobby", "uid": uid, "controller": controller}]);
        let ours = "tkex.tencent.com/v1alpha1";
        for (owners, expected) in [
            (owner(ours, "GameDeployment", "u-1", true), "GameDeployment|lobby"),
            (owner(ours, "GameDeployment", "u-2", true), ""),
            (owner(ours, "GameDeployment", "u-1", false), ""),
            (owner(ours, "Anything", "u-1", true), ""),
            (owner("v1", "GameDeployment", "u-1", true), ""),
            (json!([]), ""),
        ] {
            let run_owner = RunOwner::of(&run(owners.clone()), |_, namespace, owner| {
                (namespace, &*owner.name, &*owner.uid) == ("games", "lobby", "u-1")
            });
            assert_eq!(run_owner.owner, expected, "{owners}");
        }
    }

    fn count_lines(metrics: &HookMetrics, start: &str) -> usize {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics.clone()));
        let mut page = String::new();
        encode(&mut page, &registry).expect("a page");
        page.lines().filter(|line| line.starts_with(start)).count()
    }

    #[test]
    fn the_series_of_a_namespace_are_bounded_however_many_names_it_uses() {
        let metrics = HookMetrics::default();
        let lobby_in =
            |namespace: &str| RunOwner::workload(WorkloadKind::GameDeployment, namespace, "lobby");
        for number in 0..3 * MAX_PAIRS {
            let metric = format!("metric-{number}");
            metrics.measured(lobby_in("greedy"), &metric, HookPhase::Successful, Duration::ZERO);
        }
        metrics.measured(lobby_in("other"), "players", HookPhase::Successful, Duration::ZERO);
        let count = "bkbcs_hook_metric_exec_duration_seconds_count";
        let greedy = format!("{count}{{namespace=\"greedy\"");
        assert_eq!(count_lines(&metrics, &greedy), MAX_PAIRS + 1);
        let other = format!(
            "{count}{{namespace=\"other\",owner=\"GameDeployment|lobby\",metric=\"players\""
        );
        assert_eq!(count_lines(&metrics, &other), 1);
        metrics.retain(&BTreeSet::from([lobby_in("other")]));
        assert_eq!(count_lines(&metrics, &greedy), 0);
        metrics.measured(lobby_in("greedy"), "again", HookPhase::Successful, Duration::ZERO);
        assert_eq!(count_lines(&metrics, &format!("{greedy},owner=\"GameDeployment|lobby\"")), 1);
    }
}

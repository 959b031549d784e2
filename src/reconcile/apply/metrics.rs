//! Metrics of workloads: how long reconciles, plans and writes take, and how guarded pods ended.
//!
//! The metrics that bk-bcs also has keep its names and labels.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, EncodeLabelValue, LabelSetEncoder,
};

use super::Target;
use crate::runtime::metrics::{Counts, Timings};
use crate::runtime::objects::Kind;
use crate::runtime::request::Refusal;
use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::guard::Ground;
use gamekeeper_core::observed::Disruption;
use gamekeeper_core::workload::{EndedMatch, Ending};
use gamekeeper_core::write::{Change, DeletionReason, Owner, Write};

/// The histogram buckets of bk-bcs, in seconds.
pub(crate) const BUCKETS: [f64; 11] =
    [0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0];

/// The histogram buckets for the duration of planning, in seconds. They suit workloads with one pod, workloads with
/// more than ten thousand pods, and everything in between.
const PLANNING_BUCKETS: [f64; 11] =
    [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

/// How long the counts of guarded pods that ended are kept after their workload is deleted. A workload disappears
/// together with its last pod, so without this delay Prometheus could not scrape the last count.
const KEPT_AFTER_DELETION: Duration = Duration::from_secs(600);

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    reconciles: Timings<ResultLabels>,
    creations: Timings<ResultLabels>,
    updates: Timings<PodWriteLabels>,
    deletions: Timings<PodWriteLabels>,
    hooks: Timings<HookRunLabels>,
    lag: Timings<KindLabel>,
    plans: Timings<KindLabel>,
    guarded: Counts<GuardedLabels>,
    /// Deleted workloads whose series in `guarded` are kept for a while, and when each was first seen to be missing.
    missing: Arc<Mutex<BTreeMap<WorkloadLabels, Instant>>>,
}

/// The labels of a workload: `gd="NAMESPACE/NAME"` for a GameDeployment, `namespace="NAMESPACE", name="NAME"`
/// for a GameStatefulSet, as in bk-bcs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkloadLabels {
    pub kind: WorkloadKind,
    pub namespace: String,
    pub name: String,
}

impl WorkloadLabels {
    /// Those of an object that may be a workload; None if it is not.
    fn of(owner: &Owner) -> Option<Self> {
        let kind = match owner.kind {
            Kind::GameDeployment => WorkloadKind::GameDeployment,
            Kind::GameStatefulSet => WorkloadKind::GameStatefulSet,
            _ => return None,
        };
        Some(Self { kind, namespace: owner.namespace.clone(), name: owner.name.clone() })
    }
}

impl EncodeLabelSet for WorkloadLabels {
    fn encode(&self, to: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let Self { namespace, name, .. } = self;
        match self.kind {
            WorkloadKind::GameDeployment => {
                ("gd", format!("{namespace}/{name}")).encode(to.encode_label())
            }
            WorkloadKind::GameStatefulSet => {
                ("namespace", namespace).encode(to.encode_label())?;
                ("name", name).encode(to.encode_label())
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "label values as in bk-bcs")]
pub(crate) enum ResultLabel {
    success,
    failure,
}

impl ResultLabel {
    pub(crate) fn of(is_success: bool) -> Self {
        match is_success {
            true => ResultLabel::success,
            false => ResultLabel::failure,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "label values as in bk-bcs")]
enum PodAction {
    deletePod,
    forceDeletePod,
    recreatingFailedPod,
    rollingUpdate,
    inplaceUpdate,
    hotPatchUpdate,
}

impl PodAction {
    /// As in bk-bcs, the label of a pod deletion tells its reason only if the pod belongs to a GameStatefulSet.
    fn deletion(kind: WorkloadKind, reason: DeletionReason) -> Self {
        match (kind, reason) {
            (WorkloadKind::GameStatefulSet, DeletionReason::Update) => PodAction::rollingUpdate,
            (
                WorkloadKind::GameStatefulSet,
                DeletionReason::Ended | DeletionReason::EndedAtOnce,
            ) => PodAction::recreatingFailedPod,
            _ => PodAction::deletePod,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct ResultLabels {
    #[prometheus(flatten)]
    workload: WorkloadLabels,
    status: ResultLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct PodWriteLabels {
    #[prometheus(flatten)]
    workload: WorkloadLabels,
    status: ResultLabel,
    action: PodAction,
    grace: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
#[expect(non_snake_case, reason = "a label as in bk-bcs")]
struct HookRunLabels {
    namespace: String,
    name: String,
    status: ResultLabel,
    action: String,
    objectKind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct GuardedLabels {
    kind: &'static str,
    namespace: String,
    name: String,
    why: &'static str,
}

/// The values of the label `why`.
const WHY_ENDED: [&str; 8] = [
    "deadline",
    "released",
    "eviction",
    "preemption",
    "taint",
    "lost_node",
    "kubelet",
    "other_client",
];

fn why_ended(ending: Ending) -> &'static str {
    let Ending::Unreleased(disruption) = ending else {
        return "released";
    };
    match disruption {
        Some(Disruption::Eviction) => "eviction",
        Some(Disruption::Preemption) => "preemption",
        Some(Disruption::Taint) => "taint",
        Some(Disruption::LostNode) => "lost_node",
        Some(Disruption::Kubelet) => "kubelet",
        Some(Disruption::Other) | None => "other_client",
    }
}

impl GuardedLabels {
    fn new(workload: WorkloadLabels, why: &'static str) -> Self {
        Self {
            kind: workload.kind.as_str(),
            namespace: workload.namespace,
            name: workload.name,
            why,
        }
    }

    fn workload(&self) -> Option<WorkloadLabels> {
        Some(WorkloadLabels {
            kind: WorkloadKind::parse(self.kind)?,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            reconciles: Timings::with_buckets(&BUCKETS),
            creations: Timings::with_buckets(&BUCKETS),
            updates: Timings::with_buckets(&BUCKETS),
            deletions: Timings::with_buckets(&BUCKETS),
            hooks: Timings::with_buckets(&BUCKETS),
            lag: Timings::with_buckets(&BUCKETS),
            plans: Timings::with_buckets(&PLANNING_BUCKETS),
            guarded: Counts::default(),
            missing: Arc::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn reconciled(&self, workload: WorkloadLabels, is_success: bool, took: Duration) {
        let status = ResultLabel::of(is_success);
        self.reconciles.observe(ResultLabels { workload, status }, took);
    }

    /// Records how long a reconcile waited until the cache had observed the last writes for a workload.
    pub(crate) fn caught_up(&self, kind: WorkloadKind, took: Duration) {
        let kind = kind.as_str();
        self.lag.observe(KindLabel { kind }, took);
    }

    pub(crate) fn planned(&self, kind: WorkloadKind, took: Duration) {
        let kind = kind.as_str();
        self.plans.observe(KindLabel { kind }, took);
    }

    /// Counts guarded pods that ended before their hook succeeded, and that the operator did not delete.
    pub(crate) fn ended_without_hook(&self, workload: &WorkloadLabels, pods: &[EndedMatch]) {
        for why in WHY_ENDED {
            self.guarded.init(GuardedLabels::new(workload.clone(), why));
        }
        for ended in pods {
            let why = why_ended(ended.by);
            self.guarded.increment(GuardedLabels::new(workload.clone(), why));
        }
    }

    pub(super) fn wrote<T>(
        &self,
        target: &Target,
        write: &Write,
        result: &Result<T, Refusal>,
        took: Duration,
    ) {
        let Some(workload) = WorkloadLabels::of(&target.owner) else {
            return;
        };
        let status = ResultLabel::of(result.is_ok());
        let pod_labels = |action| PodWriteLabels {
            workload: workload.clone(),
            status,
            action,
            grace: target.hooked,
        };
        match write.change() {
            Change::CreatePod(_) => {
                let workload = workload.clone();
                self.creations.observe(ResultLabels { workload, status }, took);
            }
            Change::DeletePod(it) => {
                let action = PodAction::deletion(workload.kind, it.reason);
                self.deletions.observe(pod_labels(action), took);
                let why = match it.ground {
                    Ground::Deadline => Some("deadline"),
                    Ground::Released => Some("released"),
                    Ground::NodeLost => Some("lost_node"),
                    Ground::NoHook | Ground::Hook | Ground::NothingRuns => None,
                };
                if let Some(why) = why.filter(|_| result.is_ok()) {
                    self.guarded.increment(GuardedLabels::new(workload.clone(), why));
                }
            }
            Change::ForceDeletePod(_) => {
                self.deletions.observe(pod_labels(PodAction::forceDeletePod), took);
            }
            Change::PatchInPlace(patch) => {
                let action = match patch.record.hot {
                    true => PodAction::hotPatchUpdate,
                    false => PodAction::inplaceUpdate,
                };
                self.updates.observe(pod_labels(action), took);
            }
            Change::CreateHookRun(run) => {
                // bk-bcs does not count canary steps here.
                if let Some(point) = run.pod_point(workload.kind) {
                    let labels = HookRunLabels {
                        namespace: target.owner.namespace.clone(),
                        name: target.owner.name.clone(),
                        status,
                        action: point.as_str().to_lowercase(),
                        objectKind: workload.kind.as_str(),
                    };
                    self.hooks.observe(labels, took);
                }
            }
            _ => {}
        }
    }

    /// Removes the series of workloads that no longer exist. The counts of guarded pods are
    /// removed a while later.
    pub(crate) fn retain(&self, now: Instant, exists: impl Fn(WorkloadKind, &str, &str) -> bool) {
        let still_exists = |it: &WorkloadLabels| exists(it.kind, &it.namespace, &it.name);
        self.reconciles.retain(|it| still_exists(&it.workload));
        self.creations.retain(|it| still_exists(&it.workload));
        self.updates.retain(|it| still_exists(&it.workload));
        self.deletions.retain(|it| still_exists(&it.workload));
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *missing);
        self.guarded.retain(|it| {
            let Some(workload) = it.workload() else {
                return false;
            };
            if still_exists(&workload) {
                return true;
            }
            let since = before.get(&workload).copied().unwrap_or(now);
            let is_recent = now.duration_since(since) < KEPT_AFTER_DELETION;
            if is_recent {
                missing.insert(workload, since);
            }
            is_recent
        });
        self.hooks.retain(|it| {
            let kind = WorkloadKind::parse(it.objectKind);
            kind.is_some_and(|kind| exists(kind, &it.namespace, &it.name))
        });
    }
}

impl Collector for Metrics {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        for (kind, prefix) in [
            (WorkloadKind::GameDeployment, "bkbcs_gamedeployment"),
            (WorkloadKind::GameStatefulSet, "bkbcs_gamestatefulset"),
        ] {
            let reconciles = self.reconciles.filtered(|it| it.workload.kind == kind);
            let name = format!("{prefix}_reconcile_duration_seconds");
            reconciles.encode(&mut to, &name, "Duration of one reconcile of a workload")?;
            let name = |verb: &str| format!("{prefix}_pod_{verb}_duration_seconds");
            let creations = self.creations.filtered(|it| it.workload.kind == kind);
            let help = "Duration of creating a pod";
            creations.encode_with_extremes(&mut to, &name("create"), help)?;
            let updates = self.updates.filtered(|it| it.workload.kind == kind);
            let help = "Duration of updating a running pod";
            updates.encode_with_extremes(&mut to, &name("update"), help)?;
            let deletions = self.deletions.filtered(|it| it.workload.kind == kind);
            let help = "Duration of deleting a pod";
            deletions.encode_with_extremes(&mut to, &name("delete"), help)?;
        }
        let name = "bkbcs_gameworkload_hookrun_create_duration_seconds";
        let help = "Duration of creating a pod's HookRun";
        self.hooks.encode(&mut to, name, help)?;
        let help = "Time that a reconcile waited until the cache showed the operator's last writes for the workload";
        self.lag.encode(&mut to, "gamekeeper_cache_lag_seconds", help)?;
        let help = "Duration of planning: reading the cache and deciding";
        self.plans.encode(&mut to, "gamekeeper_planning_duration_seconds", help)?;
        let help = "Guarded pods that ended before their hook succeeded";
        self.guarded.encode(&mut to, "gamekeeper_guarded_pods_ended", help)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarded_pods_that_ended_remain_counted_for_a_while_after_their_workload_is_deleted() {
        let metrics = Metrics::default();
        let lobby = WorkloadLabels {
            kind: WorkloadKind::GameDeployment,
            namespace: "games".to_owned(),
            name: "lobby".to_owned(),
        };
        let start = Instant::now();
        let count = |seconds, exists| {
            let now = start + Duration::from_secs(seconds);
            metrics.retain(now, |_, _, _| exists);
            metrics.guarded.len()
        };
        let series = WHY_ENDED.len();
        let released = EndedMatch { pod: "lobby-a".to_owned(), by: Ending::Released };
        metrics.ended_without_hook(&lobby, &[released]);
        metrics.reconciled(lobby.clone(), true, Duration::from_millis(1));
        assert_eq!(count(0, true), series);
        assert_eq!(count(30, false), series);
        assert_eq!(metrics.reconciles.len(), 0);
        assert_eq!(count(629, false), series);
        // A new workload with the same name continues the series.
        assert_eq!(count(640, true), series);
        assert_eq!(count(700, false), series);
        assert_eq!(count(1299, false), series);
        assert_eq!(count(1300, false), 0);
        assert!(metrics.missing.lock().expect("a lock").is_empty());
    }
}

//! Durations of reconciles and of writes of pods and HookRuns, under the names and labels that
//! dashboards made for bk-bcs expect.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, EncodeLabelValue, LabelSetEncoder,
};

use super::{Refusal, Target};
use crate::metrics::{Timing, Timings};
use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::plan::{Action, DeletionReason};

/// Buckets of bk-bcs.
pub(crate) const BUCKETS: [f64; 11] = [
    0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0,
];

/// Buckets of plans: from one pod to more than any workload has.
const PLANNING_BUCKETS: [f64; 11] = [
    0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
];

/// Durations, by workload.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    reconciles: Timings<ResultLabels>,
    creations: Timings<ResultLabels>,
    updates: Timings<PodWriteLabels>,
    deletions: Timings<PodWriteLabels>,
    hooks: Timings<HookRunLabels>,
    lag: Timings<KindLabel>,
    plans: Timings<KindLabel>,
}

/// A workload. bk-bcs calls a GameDeployment `gd="NAMESPACE/NAME"`, and a GameStatefulSet
/// `namespace="NAMESPACE", name="NAME"`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkloadLabels {
    pub kind: WorkloadKind,
    pub namespace: String,
    pub name: String,
}

impl EncodeLabelSet for WorkloadLabels {
    fn encode(&self, to: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let Self {
            namespace, name, ..
        } = self;
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

/// How something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "label values as in bk-bcs")]
pub(crate) enum ResultLabel {
    /// Well.
    success,
    /// Not well.
    failure,
}

impl ResultLabel {
    pub(crate) fn well(well: bool) -> Self {
        if well {
            ResultLabel::success
        } else {
            ResultLabel::failure
        }
    }
}

/// What was done to a pod.
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
    /// bk-bcs tells the deletions of a GameStatefulSet apart by why they are made.
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
    of: WorkloadLabels,
    status: ResultLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct PodWriteLabels {
    #[prometheus(flatten)]
    of: WorkloadLabels,
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
struct KindLabel {
    kind: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        fn timings<L: Ord>() -> Timings<L> {
            Timings::new(|| Timing::new(&BUCKETS))
        }
        Self {
            reconciles: timings(),
            creations: timings(),
            updates: timings(),
            deletions: timings(),
            hooks: timings(),
            lag: timings(),
            plans: Timings::new(|| Timing::new(&PLANNING_BUCKETS)),
        }
    }
}

impl Metrics {
    /// Counts a reconcile of a workload.
    pub(crate) fn reconciled(&self, of: WorkloadLabels, well: bool, took: Duration) {
        let status = ResultLabel::well(well);
        self.reconciles.observe(ResultLabels { of, status }, took);
    }

    /// Counts a wait until the cache showed what was last written for a workload.
    pub(crate) fn caught_up(&self, kind: WorkloadKind, took: Duration) {
        let kind = kind.as_str();
        self.lag.observe(KindLabel { kind }, took);
    }

    pub(crate) fn planned(&self, kind: WorkloadKind, took: Duration) {
        let kind = kind.as_str();
        self.plans.observe(KindLabel { kind }, took);
    }

    pub(super) fn wrote<T>(
        &self,
        target: &Target,
        action: &Action,
        answer: &Result<T, Refusal>,
        took: Duration,
    ) {
        let status = ResultLabel::well(answer.is_ok());
        let written = |action| PodWriteLabels {
            of: target.of(),
            status,
            action,
            grace: target.hooked,
        };
        match action {
            Action::CreatePod(_) => {
                let of = target.of();
                self.creations.observe(ResultLabels { of, status }, took);
            }
            Action::DeletePod(it) => {
                let done = PodAction::deletion(target.kind, it.reason);
                self.deletions.observe(written(done), took);
            }
            Action::ForceDeletePod(_) => {
                self.deletions
                    .observe(written(PodAction::forceDeletePod), took);
            }
            Action::PatchInPlace(patch) => {
                let done = match patch.record.hot {
                    true => PodAction::hotPatchUpdate,
                    false => PodAction::inplaceUpdate,
                };
                self.updates.observe(written(done), took);
            }
            Action::CreateHookRun(run) => {
                // bk-bcs counts no canary steps here.
                if let Some(point) = run.pod_point(target.kind) {
                    let made = HookRunLabels {
                        namespace: target.namespace.clone(),
                        name: target.name.clone(),
                        status,
                        action: point.as_str().to_lowercase(),
                        objectKind: target.kind.as_str(),
                    };
                    self.hooks.observe(made, took);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn retain(&self, is_there: impl Fn(WorkloadKind, &str, &str) -> bool) {
        let of = |of: &WorkloadLabels| is_there(of.kind, &of.namespace, &of.name);
        self.reconciles.retain(|it| of(&it.of));
        self.creations.retain(|it| of(&it.of));
        self.updates.retain(|it| of(&it.of));
        self.deletions.retain(|it| of(&it.of));
        self.hooks.retain(|it| {
            WorkloadKind::parse(it.objectKind)
                .is_some_and(|kind| is_there(kind, &it.namespace, &it.name))
        });
    }
}

impl Collector for Metrics {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        for (kind, prefix) in [
            (WorkloadKind::GameDeployment, "bkbcs_gamedeployment"),
            (WorkloadKind::GameStatefulSet, "bkbcs_gamestatefulset"),
        ] {
            let reconciles = self.reconciles.part(|it| it.of.kind == kind);
            let name = format!("{prefix}_reconcile_duration_seconds");
            reconciles.encode(&mut to, &name, "Duration of one reconcile of a workload")?;
            let (name, help) = ("pod_create_duration_seconds", "Duration of creating a pod");
            let creations = self.creations.part(|it| it.of.kind == kind);
            creations.encode(&mut to, &format!("{prefix}_{name}"), help)?;
            creations.encode_extremes(&mut to, &format!("{prefix}_{name}"), help)?;
            for (name, help, writes) in [
                (
                    "pod_update_duration_seconds",
                    "Duration of updating a running pod",
                    &self.updates,
                ),
                (
                    "pod_delete_duration_seconds",
                    "Duration of deleting a pod",
                    &self.deletions,
                ),
            ] {
                let writes = writes.part(|it| it.of.kind == kind);
                writes.encode(&mut to, &format!("{prefix}_{name}"), help)?;
                writes.encode_extremes(&mut to, &format!("{prefix}_{name}"), help)?;
            }
        }
        let name = "bkbcs_gameworkload_hookrun_create_duration_seconds";
        let help = "Duration of creating a pod's HookRun";
        self.hooks.encode(&mut to, name, help)?;
        let help = "Time that a reconcile waited until the cache showed its last writes";
        self.lag
            .encode(&mut to, "gamekeeper_cache_lag_seconds", help)?;
        let help = "Duration of planning: reading the cache and deciding";
        self.plans
            .encode(&mut to, "gamekeeper_planning_duration_seconds", help)
    }
}

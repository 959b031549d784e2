//! HookRun: an execution of a HookTemplate.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::names::{self, HookPoint, WorkloadKind};
use super::{Argument, DryRun, HookPolicy, MeasurementRetention, Metric, TtlStrategy, schema};

/// HookRun runs the metrics of a HookTemplate and ends Successful, Failed, Error or Inconclusive.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tkex.tencent.com",
    version = "v1alpha1",
    kind = "HookRun",
    namespaced,
    doc = "HookRun runs the metrics of a HookTemplate and ends Successful, Failed, Error or Inconclusive.",
    plural = "hookruns",
    shortname = "hr",
    category = "game",
    status = "HookRunStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules_by_metric_name()))]
pub struct HookRunSpec {
    /// Metrics to measure.
    #[schemars(length(min = 1, max = 32), transform = schema::merged_by("name"))]
    pub metrics: Vec<Metric>,
    /// Arguments, each with its value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 256),
        transform = schema::merged_by("name"),
        extend("x-kubernetes-validations" = [schema::arguments_have_values()])
    )]
    pub args: Vec<Argument>,
    /// Whether metrics run in parallel or one after the other.
    #[serde(default)]
    pub policy: HookPolicy,
    /// Metrics that are measured and reported, but do not affect the result of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), transform = schema::merged_by("metricName"))]
    pub dry_run: Vec<DryRun>,
    /// How many measurements the status keeps, by metric.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), transform = schema::merged_by("metricName"))]
    pub measurement_retention: Vec<MeasurementRetention>,
    /// Whether the run is to end immediately.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminate: bool,
    /// How long the run is kept after its end; forever when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_strategy: Option<TtlStrategy>,
}

impl HookRun {
    /// The hook point for which a workload of this kind created the run. None for other runs.
    pub fn point(&self, kind: WorkloadKind) -> Option<HookPoint> {
        let labels = self.metadata.labels.as_ref()?;
        HookPoint::parse(labels.get(kind.type_label())?)
    }

    /// Like [`point`](Self::point), but None for canary steps.
    pub fn pod_point(&self, kind: WorkloadKind) -> Option<HookPoint> {
        self.point(kind).filter(|point| *point != HookPoint::Step)
    }

    /// The workload that controls the run, according to the run's owner references. It may no longer exist.
    pub fn controlling_workload(&self) -> Option<(WorkloadKind, &OwnerReference)> {
        let owner = names::controller_of(&self.metadata)?;
        let (group, _) = owner.api_version.split_once('/')?;
        let kind = WorkloadKind::parse(&owner.kind).filter(|_| group == super::GROUP)?;
        Some((kind, owner))
    }

    /// The run's phase; Pending if it has no status yet.
    pub fn phase(&self) -> HookPhase {
        let status = self.status.as_ref();
        status.map_or_else(HookPhase::default, |status| status.phase)
    }

    /// Why the last measurement of a metric that decides ended in an error, while the run goes on: nothing was measured.
    /// The run ends with the same error if it occurs more than consecutiveErrorLimit times in a row.
    pub fn current_error(&self) -> Option<&str> {
        let status = self.status.as_ref().filter(|it| !it.phase.is_completed())?;
        let fails = |it: &&MetricResult| it.consecutive_error > 0 && !it.dry_run;
        let metric = status.metric_results.iter().find(fails)?;
        let is_error = |it: &&Measurement| it.phase == HookPhase::Error;
        let last = metric.measurements.iter().rev().find(is_error)?;
        Some(last.message.as_deref().unwrap_or_default())
    }

    /// Whether the run guards a deletion that is not part of an update.
    pub fn is_for_removal(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        let target = annotations.and_then(|it| it.get(names::RUN_TARGET));
        target.is_some_and(String::is_empty)
    }
}

/// State of a run, a metric or a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HookPhase {
    /// Not started.
    #[default]
    Pending,
    /// In progress.
    Running,
    /// Ended with success.
    Successful,
    /// A failure limit was exceeded.
    Failed,
    /// Too many consecutive errors.
    Error,
    /// Ended without a decision.
    Inconclusive,
}

impl HookPhase {
    /// Whether the run, metric or measurement has ended.
    pub fn is_completed(self) -> bool {
        !matches!(self, HookPhase::Pending | HookPhase::Running)
    }

    /// Whether the run, metric or measurement has ended without success.
    pub fn has_failed(self) -> bool {
        self.is_completed() && self != HookPhase::Successful
    }
}

impl fmt::Display for HookPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Last observed state of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookRunStatus {
    /// Generation of the run that has ended; absent before its end, which kstatus waits for.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "unless_default")]
    pub observed_generation: Option<i64>,
    /// State of the run.
    #[serde(default)]
    pub phase: HookPhase,
    /// Reason for the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// One entry per metric.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::merged_by("name"))]
    pub metric_results: Vec<MetricResult>,
    /// Condition Stalled is True if the run has ended without success, or while the operator cannot decode it; Ready is
    /// False then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::merged_by("type"))]
    pub conditions: Vec<Condition>,
}

/// The observed generation, unless it is the default, which is no generation.
fn unless_default<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    let observed = Option::<i64>::deserialize(from)?;
    Ok(observed.filter(|it| *it >= 0))
}

pub(super) fn is_zero(count: &i32) -> bool {
    *count == 0
}

/// State of one metric. Counters count all measurements; the list holds the last ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricResult {
    /// Name of the metric.
    pub name: String,
    /// State of the metric.
    #[serde(default)]
    pub phase: HookPhase,
    /// Reason for the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether the metric has no effect on the result of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Measurements, excluding errors.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub count: i32,
    /// Successful measurements.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub successful: i32,
    /// Failed measurements.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: i32,
    /// Inconclusive measurements.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inconclusive: i32,
    /// Measurements that ended in an error.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub error: i32,
    /// Errors since the last measurement without an error.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub consecutive_error: i32,
    /// Successful measurements since the last one with another result.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub consecutive_successful: i32,
    /// The last measurements, oldest first: 10 unless measurementRetention says otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub measurements: Vec<Measurement>,
}

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Measurement {
    /// How it ended.
    #[serde(default)]
    pub phase: HookPhase,
    /// The measured value, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Reason for the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// When a measurement in progress is checked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_at: Option<Time>,
    /// The Job that the operator created for the measurement. No other Job counts for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobReference>,
}

/// A Job in the namespace of its run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobReference {
    /// Name of the Job.
    pub name: String,
    /// UID of the Job.
    pub uid: String,
}

//! Options of a template or run that refer to metrics by name, and the lifetime of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// Metrics that are measured and reported, but do not affect the result of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    /// Name of a metric, or a regular expression that matches whole names, such as .* for all.
    #[schemars(length(min = 1, max = 253))]
    pub metric_name: String,
}

/// How many measurements of some metrics the status keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeasurementRetention {
    /// Name of a metric, or a regular expression that matches whole names; the last rule that matches applies.
    #[schemars(length(min = 1, max = 253))]
    pub metric_name: String,
    /// Number of measurements to keep; 10 for metrics that no rule matches.
    #[schemars(range(min = 1, max = 100))]
    pub limit: i32,
}

/// How long a finished run is kept. Ignored for runs that a workload controls: the operator deletes such a run when the
/// workload no longer needs it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::some_time_to_live()]))]
pub struct TtlStrategy {
    /// Seconds to keep a finished run to which no other field applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub seconds_after_completion: Option<i32>,
    /// Seconds to keep a run that ended in phase Failed, Error or Inconclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub seconds_after_failure: Option<i32>,
    /// Seconds to keep a run that ended in phase Successful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub seconds_after_success: Option<i32>,
}

//! A metric: what to measure, how often, and what counts as success.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MetricProvider, schema};

/// One metric: a call, made once or repeatedly, and what counts as success.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::metric_rules()))]
pub struct Metric {
    /// Name, unique in the template.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Time from the end of one measurement to the start of the next, such as 60s. Required when count is above 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::interval")]
    pub interval: Option<String>,
    /// Time before the first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::delay")]
    pub initial_delay: Option<String>,
    /// Number of measurements to make. When absent or 0, there is one measurement; or, if interval is set,
    /// measurements continue until the run is terminated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// CEL expression over `result`; a measurement for which it is true is Successful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub success_condition: Option<String>,
    /// CEL expression over `result`; a measurement for which it is true is Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub failure_condition: Option<String>,
    /// Number of Failed measurements to tolerate. When absent: 0, or no limit if successfulLimit or
    /// consecutiveSuccessfulLimit is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failure_limit: Option<i32>,
    /// Number of Inconclusive measurements to tolerate; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub inconclusive_limit: Option<i32>,
    /// Number of consecutive errors to tolerate; 4 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub consecutive_error_limit: Option<i32>,
    /// Number of Successful measurements after which the metric succeeds; 0 means unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub successful_limit: Option<i32>,
    /// Number of consecutive Successful measurements after which the metric succeeds; 0 means unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub consecutive_successful_limit: Option<i32>,
    /// How the metric is measured.
    pub provider: MetricProvider,
}

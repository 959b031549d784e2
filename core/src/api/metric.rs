//! A metric: what to measure, how often, and what counts as success.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ExecMetric, JobMetric, KubernetesMetric, PrometheusMetric, WebMetric, schema};

/// One metric: a call, made once or repeatedly, and what counts as good.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::metric_rules()))]
pub struct Metric {
    /// Name, unique in the template.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Time from the end of one measurement to the next, such as 60s; needed when count is above 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::interval")]
    pub interval: Option<String>,
    /// Time before the first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::delay")]
    pub initial_delay: Option<String>,
    /// Measurements to make; without count and interval one, with interval alone until terminated. 0 means unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// CEL expression on `result` that makes a measurement Successful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub success_condition: Option<String>,
    /// CEL expression on `result` that makes a measurement Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub failure_condition: Option<String>,
    /// Failed measurements that are allowed. When absent: 0, or without limit beside successfulLimit or
    /// consecutiveSuccessfulLimit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failure_limit: Option<i32>,
    /// Inconclusive measurements that are allowed; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub inconclusive_limit: Option<i32>,
    /// Errors in a row that are allowed; 4 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub consecutive_error_limit: Option<i32>,
    /// Successful measurements that end the metric; 0 means unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub successful_limit: Option<i32>,
    /// Successful measurements in a row that end the metric; 0 means unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub consecutive_successful_limit: Option<i32>,
    /// The call.
    pub provider: MetricProvider,
}

/// The call of a metric: exactly one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::exactly_one_of(&["web", "prometheus", "kubernetes", "job", "exec"])]))]
pub struct MetricProvider {
    /// An HTTP call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web: Option<Box<WebMetric>>,
    /// A Prometheus query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<Box<PrometheusMetric>>,
    /// Fields of the pod that the run is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesMetric>,
    /// A Job whose exit is the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobMetric>,
    /// A command in a container of the pod that the run is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<Box<ExecMetric>>,
}

//! A metric: what to measure, how often, and what counts as success.

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

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
    #[serde(default, deserialize_with = "limit", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::limit")]
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
    #[serde(default, deserialize_with = "limit", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::limit")]
    pub failure_limit: Option<i32>,
    /// Number of Inconclusive measurements to tolerate; 0 when absent.
    #[serde(default, deserialize_with = "limit", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::limit")]
    pub inconclusive_limit: Option<i32>,
    /// Number of consecutive errors to tolerate; 4 when absent.
    #[serde(default, deserialize_with = "limit", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::limit")]
    pub consecutive_error_limit: Option<i32>,
    /// Number of Successful measurements after which the metric succeeds; 0 means unset.
    #[serde(default, deserialize_with = "limit", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::limit")]
    pub successful_limit: Option<i32>,
    /// Number of consecutive Successful measurements after which the metric succeeds; 0 means unset.
    #[serde(default, deserialize_with = "limit", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::limit")]
    pub consecutive_successful_limit: Option<i32>,
    /// How the metric is measured.
    pub provider: MetricProvider,
}

/// A number that may be written as text: in Argo Rollouts, limits are integers or text.
fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(i32),
        Text(String),
    }
    let not_a_number = |text: &str| D::Error::custom(format!("{text:?} is not a number"));
    match Option::deserialize(deserializer)? {
        None => Ok(None),
        Some(Written::Number(number)) => Ok(Some(number)),
        Some(Written::Text(text)) => text.parse().map(Some).map_err(|_| not_a_number(&text)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_may_be_written_as_text() {
        let metric = |limit| {
            let metric = json!({"name": "a", "failureLimit": limit, "provider": {}});
            serde_json::from_value::<Metric>(metric).map(|metric| metric.failure_limit)
        };
        assert_eq!(metric(json!("3")).expect("a metric"), Some(3));
        assert_eq!(metric(json!(3)).expect("a metric"), Some(3));
        assert_eq!(metric(json!(null)).expect("a metric"), None);
        let error = metric(json!("{{ args.limit }}")).expect_err("an argument").to_string();
        assert_eq!(error, "\"{{ args.limit }}\" is not a number");
    }
}

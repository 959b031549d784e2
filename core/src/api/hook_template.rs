//! HookTemplate: a check that workloads run at their hook points.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DryRun, MeasurementRetention, Metric, schema};

/// HookTemplate defines a check that workloads run at their hook points.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tkex.tencent.com",
    version = "v1alpha1",
    kind = "HookTemplate",
    namespaced,
    doc = "HookTemplate defines a check that workloads run at their hook points.",
    plural = "hooktemplates",
    shortname = "ht",
    category = "game",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules_by_metric_name()))]
pub struct HookTemplateSpec {
    /// Arguments; those without a value get one when a HookRun is created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), transform = schema::merged_by("name"))]
    pub args: Vec<Argument>,
    /// Metrics to measure.
    #[schemars(length(min = 1, max = 32), transform = schema::merged_by("name"))]
    pub metrics: Vec<Metric>,
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
}

/// An argument of a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::one_value()]))]
pub struct Argument {
    /// Name that `{{ args.NAME }}` refers to.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The value, or the default that a run may override.
    #[schemars(length(max = 65536))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Source of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ArgumentSource>,
}

/// Where an argument's value comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::exactly_one_of(&["secretKeyRef", "fieldRef"])]))]
pub struct ArgumentSource {
    /// A key of a Secret with the label `tkex.tencent.com/hook-access: "true"`; read at call time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyRef>,
    /// A field of the HookRun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldRef>,
}

/// A key of a Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the Secret's data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A field of the HookRun, by path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldRef {
    /// The path, for example metadata.namespace.
    #[schemars(length(min = 1, max = 1024))]
    pub field_path: String,
}

/// Whether metrics run in parallel or one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HookPolicy {
    /// In parallel.
    #[default]
    Parallel,
    /// One after the other.
    Ordered,
}

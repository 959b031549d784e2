//! HookTemplate: what to measure, how often, and what counts as good.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

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
pub struct HookTemplateSpec {
    /// Arguments; those without a value get one when a HookRun is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Argument>,
    /// What is measured.
    pub metrics: Vec<Metric>,
    /// Whether metrics run side by side or one after the other.
    #[serde(default)]
    pub policy: HookPolicy,
}

/// An argument of a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Argument {
    /// Name that `{{ args.NAME }}` refers to.
    pub name: String,
    /// The value, or the default that a run may replace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Where the value comes from instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ArgumentSource>,
}

/// Where an argument's value comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArgumentSource {
    /// A key of a Secret labelled `tkex.tencent.com/hook-access: "true"`; read at call time.
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
    /// The Secret.
    pub name: String,
    /// Its key.
    pub key: String,
}

/// A field of the HookRun, by path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldRef {
    /// The path, for example metadata.namespace.
    pub field_path: String,
}

/// Whether metrics run side by side or one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HookPolicy {
    /// Side by side.
    #[default]
    Parallel,
    /// One after the other.
    Ordered,
}

/// One metric: a call, made once or repeatedly, and what counts as good.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metric {
    /// Name, unique in the template.
    pub name: String,
    /// Time from the end of one measurement to the next, such as 60s; needed when count is above 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// Time before the first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_delay: Option<String>,
    /// Measurements to make; without count and interval one, with interval alone until terminated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// CEL expression on `result` that makes a measurement Successful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_condition: Option<String>,
    /// CEL expression on `result` that makes a measurement Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_condition: Option<String>,
    /// Failed measurements that are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_limit: Option<i32>,
    /// Inconclusive measurements that are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inconclusive_limit: Option<i32>,
    /// Errors in a row that are allowed; 4 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consecutive_error_limit: Option<i32>,
    /// Successful measurements that end the metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successful_limit: Option<i32>,
    /// Successful measurements in a row that end the metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consecutive_successful_limit: Option<i32>,
    /// The call.
    pub provider: MetricProvider,
}

/// The call of a metric: exactly one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricProvider {
    /// An HTTP call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web: Option<WebMetric>,
    /// A Prometheus query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusMetric>,
    /// Fields of the pod that the run is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesMetric>,
    /// A Job whose exit is the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobMetric>,
}

/// An HTTP method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum WebMethod {
    /// GET
    #[default]
    GET,
    /// POST
    POST,
    /// PUT
    PUT,
}

/// An HTTP header.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebHeader {
    /// Name.
    pub key: String,
    /// Value; `{{ args.NAME }}` is filled in.
    pub value: String,
}

/// An HTTP call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebMetric {
    /// http or https URL; `{{ args.NAME }}` is filled in.
    pub url: String,
    /// GET, POST or PUT.
    #[serde(default)]
    pub method: WebMethod,
    /// Headers of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<WebHeader>,
    /// Body as text; not together with jsonBody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Body as JSON.
    #[schemars(schema_with = "schema::any_json")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_body: Option<serde_json::Value>,
    /// Seconds until an answer must be there; 10 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// Part of the JSON answer that becomes `result`, such as {$.age}; the whole body when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_path: Option<String>,
    /// Accept any server certificate.
    #[serde(default)]
    pub insecure: bool,
    /// How the call shows who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,
}

/// A Prometheus query.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusMetric {
    /// Base URL of the Prometheus server.
    pub address: String,
    /// The query; `{{ args.NAME }}` is filled in.
    pub query: String,
    /// Seconds until an answer must be there; 30 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// Headers of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<WebHeader>,
    /// Accept any server certificate.
    #[serde(default)]
    pub insecure: bool,
    /// How the call shows who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,
}

/// How a call shows who it is: exactly one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Authentication {
    /// User and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic: Option<BasicAuthentication>,
    /// A bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer: Option<BearerAuthentication>,
    /// OAuth2 client credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth2: Option<OAuth2Authentication>,
}

/// User and password from a Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BasicAuthentication {
    /// The user's name.
    pub username: SecretKeyRef,
    /// The password.
    pub password: SecretKeyRef,
}

/// A bearer token from a Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BearerAuthentication {
    /// The token.
    pub token: SecretKeyRef,
}

/// OAuth2 client credentials from a Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OAuth2Authentication {
    /// Where tokens are had.
    pub token_url: String,
    /// The client's id.
    pub client_id: SecretKeyRef,
    /// The client's secret.
    pub client_secret: SecretKeyRef,
    /// Scopes asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

/// What a Kubernetes metric does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum KubernetesFunction {
    /// Compare fields.
    #[default]
    Get,
    /// Write annotations or labels.
    Patch,
}

/// Fields of the pod that the run is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesMetric {
    /// get or patch.
    pub function: KubernetesFunction,
    /// The fields.
    pub fields: Vec<KubernetesField>,
}

/// A field and its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesField {
    /// `metadata.annotations.NAME` or a jsonPath.
    pub path: String,
    /// The value compared with, or written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// A Job whose exit is the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobMetric {
    /// Labels and annotations of the Job.
    #[schemars(schema_with = "schema::object_meta")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
    /// The Job's spec.
    #[schemars(schema_with = "schema::job_spec")]
    pub spec: serde_json::Value,
}

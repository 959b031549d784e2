//! What a metric can call: web services, Prometheus, the Kubernetes API, Jobs, and commands in containers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Authentication, RawJson, SecretKeyRef, schema};

/// How a metric is measured; exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::exactly_one_of(&MetricProvider::NAMES)]))]
pub struct MetricProvider {
    /// An HTTP call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web: Option<Box<WebMetric>>,
    /// A Prometheus query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<Box<PrometheusMetric>>,
    /// Compares fields of the run's pod, or writes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesMetric>,
    /// A Job; the measurement is Successful when the Job completes, Failed when it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobMetric>,
    /// A command in a container of the run's pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<Box<ExecMetric>>,
}

/// One provider of a metric. Matches over it are exhaustive, so the compiler names what a new provider must say.
#[derive(Clone, Copy, Debug)]
pub enum Provider<'m> {
    /// An HTTP call.
    Web(&'m WebMetric),
    /// A Prometheus query.
    Prometheus(&'m PrometheusMetric),
    /// Fields of the run's pod.
    Kubernetes(&'m KubernetesMetric),
    /// A Job.
    Job(&'m JobMetric),
    /// A command in a container.
    Exec(&'m ExecMetric),
}

impl MetricProvider {
    /// The fields, of which exactly one is set.
    pub const NAMES: [&'static str; 5] = ["web", "prometheus", "kubernetes", "job", "exec"];

    /// The providers that are set. The schema allows only one, but a run may be older than its rules.
    pub fn given(&self) -> impl Iterator<Item = Provider<'_>> {
        let Self { web, prometheus, kubernetes, job, exec } = self;
        let all = [
            web.as_deref().map(Provider::Web),
            prometheus.as_deref().map(Provider::Prometheus),
            kubernetes.as_ref().map(Provider::Kubernetes),
            job.as_ref().map(Provider::Job),
            exec.as_deref().map(Provider::Exec),
        ];
        all.into_iter().flatten()
    }

    /// The fields, for a message: `web, prometheus, kubernetes, job and exec`.
    pub fn names() -> String {
        let [others @ .., last] = Self::NAMES;
        format!("{} and {last}", others.join(", "))
    }
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

impl WebMethod {
    fn is_get(&self) -> bool {
        *self == WebMethod::GET
    }
}

/// An HTTP header.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebHeader {
    /// Name.
    #[schemars(length(min = 1, max = 256))]
    pub key: String,
    /// Value; may contain `{{ args.NAME }}`.
    pub value: String,
}

/// An HTTP call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::web_rules()))]
pub struct WebMetric {
    /// http or https URL; may contain `{{ args.NAME }}`.
    #[schemars(schema_with = "schema::url")]
    pub url: String,
    /// GET, POST or PUT; GET when absent.
    #[serde(default, skip_serializing_if = "WebMethod::is_get")]
    pub method: WebMethod,
    /// Headers of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub headers: Vec<WebHeader>,
    /// Body as text; cannot be combined with jsonBody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub body: Option<String>,
    /// Body as a JSON object.
    #[schemars(schema_with = "schema::json_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_body: Option<RawJson>,
    /// Seconds to wait for a response; 10 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: Option<i32>,
    /// Part of the JSON response that becomes `result`, such as {$.age}; the whole body when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096), extend("x-kubernetes-validations" = [schema::in_braces()]))]
    pub json_path: Option<String>,
    /// Accept any server certificate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// CA certificates (PEM) to trust instead of the system's: a key of a Secret with the label
    /// `tkex.tencent.com/hook-access: "true"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<SecretKeyRef>,
    /// Authentication of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Box<Authentication>>,
}

/// A Prometheus query.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::ca_or_insecure(), schema::one_timeout()]))]
pub struct PrometheusMetric {
    /// Base URL of the Prometheus server.
    #[schemars(schema_with = "schema::url")]
    pub address: String,
    /// The query; may contain `{{ args.NAME }}`.
    #[schemars(length(min = 1, max = 8192))]
    pub query: String,
    /// Use the result of a server that reports it as partial or with warnings. Otherwise such a result is an error,
    /// because a part of the data may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_partial: bool,
    /// Seconds to wait for a response; 30 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: Option<i32>,
    /// The same as timeoutSeconds, as Argo Rollouts names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout: Option<i32>,
    /// Headers of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub headers: Vec<WebHeader>,
    /// Accept any server certificate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// CA certificates (PEM) to trust instead of the system's: a key of a Secret with the label
    /// `tkex.tencent.com/hook-access: "true"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<SecretKeyRef>,
    /// Authentication of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Box<Authentication>>,
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

/// Compares fields of the run's pod, or writes them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::patched_fields()))]
pub struct KubernetesMetric {
    /// get or patch.
    pub function: KubernetesFunction,
    /// The fields to compare, or to write.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub fields: Vec<KubernetesField>,
}

/// A field and its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesField {
    /// `metadata.annotations.KEY`, `metadata.labels.KEY` or a JSONPath.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// The value to compare with, or to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// A Job; the measurement is Successful when the Job completes, Failed when it fails.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobMetric {
    /// Labels and annotations of the Job; its name is derived from the run's.
    #[schemars(schema_with = "schema::object_meta")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RawJson>,
    /// The Job's spec; `{{ args.NAME }}` is replaced in command, args and env of its containers.
    /// activeDeadlineSeconds is 3600 when absent.
    #[schemars(schema_with = "schema::job_spec")]
    pub spec: RawJson,
}

/// A command in a container of the run's pod; its exit code is the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecMetric {
    /// Name of the container; may contain `{{ args.NAME }}`.
    #[schemars(length(min = 1, max = 253))]
    pub container: String,
    /// The program and its arguments, run without a shell; each may contain `{{ args.NAME }}`. Exit code 0 means
    /// Successful.
    #[schemars(schema_with = "schema::command")]
    pub command: Vec<String>,
    /// Seconds to wait for the command to exit; 10 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_provider_is_named() {
        let schema = serde_json::to_value(schemars::schema_for!(MetricProvider)).expect("a schema");
        let fields = schema["properties"].as_object().expect("fields").keys();
        let (mut fields, mut names) = (fields.collect::<Vec<_>>(), MetricProvider::NAMES);
        fields.sort();
        names.sort();
        assert_eq!(fields, names);
    }
}

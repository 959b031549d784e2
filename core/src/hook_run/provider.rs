//! What the providers of metrics differ in, as far as decisions are concerned: the strings into which arguments are
//! filled, the credentials, and what the result of a call is.

use super::strings::{Place, Visit, visit_json};
use crate::api::{Authentication, Metric, Provider, SecretKeyRef, WebHeader};

/// Visits the strings of a metric into which arguments are filled, each with its field path relative to the metric.
pub fn visit_strings(metric: &Metric, visit: Visit<'_>) {
    for provider in metric.provider.given() {
        strings_of(provider, visit);
    }
}

fn strings_of(provider: Provider<'_>, visit: Visit<'_>) {
    match provider {
        Provider::Web(web) => {
            visit(&"provider.web.url", &web.url);
            header_values("provider.web", &web.headers, visit);
            if let Some(body) = &web.body {
                visit(&"provider.web.body", body);
            }
            if let Some(body) = &web.json_body {
                visit_json(body, &"provider.web.jsonBody", Place::Filled, visit);
            }
        }
        Provider::Prometheus(prometheus) => {
            visit(&"provider.prometheus.address", &prometheus.address);
            visit(&"provider.prometheus.query", &prometheus.query);
            header_values("provider.prometheus", &prometheus.headers, visit);
        }
        Provider::Kubernetes(kubernetes) => {
            for (index, field) in kubernetes.fields.iter().enumerate() {
                let path = format!("provider.kubernetes.fields[{index}]");
                visit(&format_args!("{path}.path"), &field.path);
                if let Some(value) = &field.value {
                    visit(&format_args!("{path}.value"), value);
                }
            }
        }
        Provider::Job(job) => visit_json(&job.spec, &"provider.job.spec", Place::JobSpec, visit),
        Provider::Exec(exec) => {
            visit(&"provider.exec.container", &exec.container);
            for (index, text) in exec.command.iter().enumerate() {
                visit(&format_args!("provider.exec.command[{index}]"), text);
            }
        }
    }
}

fn header_values(path: &str, headers: &[WebHeader], visit: Visit<'_>) {
    for (index, header) in headers.iter().enumerate() {
        visit(&format_args!("{path}.headers[{index}].value"), &header.value);
    }
}

/// What `result` is in the conditions of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// A JSON value; in it, a number is text unless it is called `value`.
    Json,
    /// Text; what it is called in a message.
    Text(&'static str),
    /// A number, or a list of numbers.
    Number,
    /// Any value, or none.
    Any,
}

impl<'m> Provider<'m> {
    /// How client and server of the call authenticate each other: the credentials, and the CA of the server.
    pub fn trust(self) -> (Option<&'m Authentication>, Option<&'m SecretKeyRef>) {
        match self {
            Self::Web(it) => (it.authentication.as_deref(), it.ca_secret.as_ref()),
            Self::Prometheus(it) => (it.authentication.as_deref(), it.ca_secret.as_ref()),
            Self::Kubernetes(_) | Self::Job(_) | Self::Exec(_) => (None, None),
        }
    }

    /// Whether the call concerns the run's pod, whose name and namespace are arguments of the run.
    pub fn concerns_pod(self) -> bool {
        match self {
            Self::Kubernetes(_) | Self::Exec(_) => true,
            Self::Web(_) | Self::Prometheus(_) | Self::Job(_) => false,
        }
    }

    /// What the call's result is.
    pub fn result_kind(self) -> ResultKind {
        match self {
            Self::Web(_) => ResultKind::Json,
            Self::Prometheus(_) => ResultKind::Number,
            Self::Kubernetes(it) if it.fields.len() == 1 => ResultKind::Text("a field's result"),
            Self::Exec(_) => ResultKind::Text("a command's output"),
            Self::Kubernetes(_) | Self::Job(_) => ResultKind::Any,
        }
    }
}

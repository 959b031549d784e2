//! What the API server itself says of a pod template, before anything is stored.
//!
//! It is asked to create a `PodTemplate`, as a strict dry run. That is validated as the template of a
//! native workload is, unknown fields included, and nothing else stands in its way: quotas, limit
//! ranges and pod security judge pods, and what they say of one may change any day, so it is no
//! reason to refuse a workload.
//!
//! Only a clear verdict counts. When there is none in time, for whatever reason, the object passes:
//! the operator makes the same dry run, with a pod, before it touches the first running one.

use std::time::Duration;

use http::{Request as HttpRequest, header};
use kube::Client;
use kube::core::Status;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::warn;

use super::log_limiter::LogLimiter;
use super::metrics::AdmissionMetrics;
use super::review::{AdmissionRequest, concerns_a_spec};
use gamekeeper_core::admission::{Finding, is_dns_label};
use gamekeeper_core::api::names::{MAX_NAME, claim_template_name};

/// The timeout of all dry runs for one object: well below the timeout
/// that the chart gives the webhook.
const DRY_RUN_TIMEOUT: Duration = Duration::from_secs(2);
/// Concurrent dry runs; more wait, at most until the timeout.
const MAX_DRY_RUNS: usize = 32;

/// What the API server says of the pod templates of a request.
#[derive(Debug, Default)]
pub(super) struct DryRunFindings {
    /// Of the object that is to be stored.
    pub object: Vec<Finding>,
    /// Of the one that is.
    pub old_object: Vec<Finding>,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
enum Undecided {
    #[error("the API server did not respond within {} s", DRY_RUN_TIMEOUT.as_secs())]
    Late,
    #[error("not allowed to create podtemplates here, not even as a dry run: {0}")]
    Forbidden(String),
    #[error("the API server cannot respond: {0}")]
    Unavailable(String),
    #[error("the response does not concern the template: {0}")]
    Unclear(String),
}

impl Undecided {
    fn outcome(&self) -> &'static str {
        match self {
            Undecided::Late => "timeout",
            Undecided::Forbidden(_) => "forbidden",
            Undecided::Unavailable(_) => "unavailable",
            Undecided::Unclear(_) => "unclear",
        }
    }
}

pub(super) struct DryRun {
    client: Client,
    limiter: Semaphore,
    metrics: AdmissionMetrics,
    log: LogLimiter,
}

impl DryRun {
    pub(super) fn new(client: Client, metrics: AdmissionMetrics) -> Self {
        DryRun {
            client,
            limiter: Semaphore::new(MAX_DRY_RUNS),
            metrics,
            log: LogLimiter::default(),
        }
    }

    /// What the API server says, if the request brings in another template.
    pub(super) async fn judge(&self, request: &AdmissionRequest) -> DryRunFindings {
        if !changes_template(request) {
            return DryRunFindings::default();
        }
        let judged = timeout(DRY_RUN_TIMEOUT, self.compare(request)).await;
        let judged = judged.unwrap_or(Err(Undecided::Late));
        let outcome = match &judged {
            Ok(judgement) if judgement.object.is_empty() => "accepted",
            Ok(_) => "refused",
            Err(why) => why.outcome(),
        };
        self.metrics.dry_run(outcome);
        judged.unwrap_or_else(|why| {
            if let Some(unsaid) = self.log.admit() {
                tell(request, &why, unsaid);
            }
            DryRunFindings::default()
        })
    }

    /// Asks about the new template, and, if that is refused, what it would have said to the old one.
    async fn compare(&self, request: &AdmissionRequest) -> Result<DryRunFindings, Undecided> {
        // The semaphore is never closed.
        let _permit = self.limiter.acquire().await.map_err(|_| Undecided::Late)?;
        let object = self.ask(&request.namespace, &request.object).await?;
        let is_new = request.old_object.is_null();
        let old_object = match object.is_empty() || is_new {
            true => Vec::new(),
            false => self.ask(&request.namespace, &request.old_object).await?,
        };
        Ok(DryRunFindings { object, old_object })
    }

    async fn ask(&self, namespace: &str, workload: &Value) -> Result<Vec<Finding>, Undecided> {
        if !is_dns_label(namespace) {
            // It becomes a part of a path, and any caller of the port may have written it.
            return Err(Undecided::Unclear(format!(
                "{:?} is not a namespace",
                cut(namespace)
            )));
        }
        let path = format!(
            "/api/v1/namespaces/{namespace}/podtemplates?dryRun=All&fieldValidation=Strict&timeout={}s",
            DRY_RUN_TIMEOUT.as_secs()
        );
        let request = HttpRequest::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(pod_template(workload).to_string().into_bytes())
            .map_err(|error| Undecided::Unclear(error.to_string()))?;
        match self.client.request::<IgnoredAny>(request).await {
            Ok(_) => Ok(Vec::new()),
            Err(kube::Error::Api(status)) => verdict(&status, own_volumes(workload).len()),
            Err(error) => Err(Undecided::Unavailable(error.to_string())),
        }
    }
}

/// Logs that a template passes. Any caller of the port may have written all of the request.
fn tell(request: &AdmissionRequest, why: &Undecided, unsaid: u32) {
    let text = |pointer| request.object.pointer(pointer).and_then(Value::as_str);
    let kind = cut(text("/kind").unwrap_or_default());
    let name = cut(text("/metadata/name").unwrap_or_default());
    let namespace = cut(&request.namespace);
    let why = why.to_string();
    let why = cut(&why);
    warn!(
        kind,
        namespace, name, why, unsaid, "admitting a pod template without the API server's verdict"
    );
}

/// The beginning of a text, as long as a name may be.
fn cut(text: &str) -> &str {
    match text.char_indices().nth(MAX_NAME) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Whether pods of the object would be others than before.
fn changes_template(request: &AdmissionRequest) -> bool {
    let is_workload = request.object["spec"]["template"].is_object();
    let differs = |field: &str| request.object["spec"][field] != request.old_object["spec"][field];
    let differs = ["template", "volumeClaimTemplates"]
        .into_iter()
        .any(differs);
    is_workload && differs && concerns_a_spec(request)
}

/// The template as the API server knows templates. Claims are volumes of each pod, and replace a volume of
/// the same name; the others keep their index, because findings name it.
fn pod_template(workload: &Value) -> Value {
    let mut template = workload["spec"]["template"].clone();
    let claims = workload["spec"]["volumeClaimTemplates"].as_array();
    let mut volumes = own_volumes(workload).to_vec();
    for name in claims.into_iter().flatten().map(claim_template_name) {
        let claim = json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        match volumes.iter_mut().find(|volume| volume["name"] == name) {
            Some(volume) => *volume = claim,
            None => volumes.push(claim),
        }
    }
    if !volumes.is_empty() {
        template["spec"]["volumes"] = Value::Array(volumes);
    }
    json!({
        "apiVersion": "v1",
        "kind": "PodTemplate",
        // A name that no other object can have.
        "metadata": {"generateName": "gamekeeper-dry-run-"},
        "template": template,
    })
}

fn own_volumes(workload: &Value) -> &[Value] {
    let volumes = workload["spec"]["template"]["spec"]["volumes"].as_array();
    volumes.map_or(&[], Vec::as_slice)
}

/// What an error response says of the template. Policies and other webhooks also judge PodTemplates,
/// but they name no fields, or not under the object's own name.
fn verdict(status: &Status, own_volumes: usize) -> Result<Vec<Finding>, Undecided> {
    const UNREADABLE: &str = "PodTemplate in version \"v1\" cannot be handled as a PodTemplate: ";
    let message = status.message.clone();
    match status.code {
        401 | 403 => Err(Undecided::Forbidden(message)),
        429 | 500.. => Err(Undecided::Unavailable(message)),
        400 => match message.strip_prefix(UNREADABLE) {
            Some(why) => Ok(unreadable(why)),
            None => Err(Undecided::Unclear(message)),
        },
        422 => invalid(status, own_volumes).ok_or(Undecided::Unclear(message)),
        _ => Err(Undecided::Unclear(message)),
    }
}

/// Fields that the server does not know; or, of another type than it wants, one that it does not place.
fn unreadable(why: &str) -> Vec<Finding> {
    let unknown = why.strip_prefix("strict decoding error: ");
    let fields = unknown.and_then(|list| {
        let mut fields = Vec::new();
        let mut rest = list;
        while !rest.is_empty() {
            rest = rest.strip_prefix("unknown field ")?;
            let mut quoted = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            fields.push(of_workload(&quoted.next()?.ok()?)?);
            rest = rest.get(quoted.byte_offset()..)?;
            rest = rest.strip_prefix(", ").unwrap_or(rest);
        }
        Some(fields)
    });
    match fields {
        Some(fields) => fields.iter().map(|it| Finding::unknown(it)).collect(),
        None => vec![Finding::error(
            "spec.template",
            format!("Invalid value: {why}"),
        )],
    }
}

/// One finding for each cause; None when some cause is not about the template.
fn invalid(status: &Status, own_volumes: usize) -> Option<Vec<Finding>> {
    let details = status.details.as_ref()?;
    if details.kind != "PodTemplate" || details.causes.is_empty() {
        return None;
    }
    let mut findings = Vec::new();
    for cause in &details.causes {
        // Volumes that the claims bring have names that our own rules look at, where they are written.
        if !is_of_claim(&cause.field, own_volumes) {
            findings.push(Finding::error(of_workload(&cause.field)?, &cause.message));
        }
    }
    Some(findings)
}

fn is_of_claim(field: &str, own_volumes: usize) -> bool {
    let rest = field.strip_prefix("template.spec.volumes[");
    let index = rest.and_then(|rest| rest.split(']').next()?.parse::<usize>().ok());
    index.is_some_and(|index| index >= own_volumes)
}

/// Where a field of the PodTemplate stands in the workload.
fn of_workload(field: &str) -> Option<String> {
    let rest = field.strip_prefix("template")?;
    let of_metadata = [".labels", ".annotations"];
    match rest {
        // The API server leaves out a part of their path.
        _ if of_metadata.contains(&rest) => Some(format!("spec.template.metadata{rest}")),
        "" => Some("spec.template".to_owned()),
        _ if rest.starts_with('.') => Some(format!("spec.template{rest}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

//! The API server's validation of a pod template, or of a SidecarSet's containers, before the object is stored.
//!
//! The webhook creates a `PodTemplate` as a dry run with strict field validation. The API server validates it like the
//! template of a native workload, and also refuses unknown fields. Quotas, limit ranges and pod security do not apply
//! to a PodTemplate, and need not: their verdict on a pod may change at any time, so it is no reason to refuse a
//! workload.
//!
//! If there is no clear verdict in time, the object is admitted: the operator tries a pod in a dry run before it
//! updates the first running pod.

mod sidecar_set;

use std::time::Duration;

use http::{Request as HttpRequest, header};
use kube::Client;
use kube::core::Status;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::metrics::{AdmissionMetrics, RequestLabels};
use super::review::{AdmissionRequest, concerns_spec};
use crate::runtime::fair::{Capacity, NamespaceLimiter};
use crate::runtime::log_limiter::log_limited;
use gamekeeper_core::admission::{Finding, is_dns_label};
use gamekeeper_core::api::names::{MAX_NAME, claim_template_name};

/// The timeout of all dry runs for one object, well below the webhook's timeout in the chart.
const DRY_RUN_TIMEOUT: Duration = Duration::from_secs(2);
/// The limits on concurrent dry runs of one address; others wait until the timeout. Whatever other addresses send, an API
/// server has some of its own.
const PER_CALLER: Capacity = Capacity { shared: 32, per_namespace: 16, reserved: 2 };
/// The limits on concurrent dry runs for one namespace by one address: the templates of one tenant must not make an API
/// server wait with those of the others.
const PER_NAMESPACE: Capacity = Capacity { shared: 1_024, per_namespace: 4, reserved: 0 };

/// The API server's findings about the pod templates of a request.
#[derive(Debug, Default)]
pub(super) struct DryRunFindings {
    pub object: Vec<Finding>,
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
    /// The namespace for dry runs of SidecarSets, which have none.
    namespace: String,
    by_caller: NamespaceLimiter,
    by_namespace: NamespaceLimiter,
    metrics: AdmissionMetrics,
}

impl DryRun {
    pub(super) fn new(client: Client, namespace: String, metrics: AdmissionMetrics) -> Self {
        DryRun {
            client,
            namespace,
            by_caller: NamespaceLimiter::new(PER_CALLER),
            by_namespace: NamespaceLimiter::new(PER_NAMESPACE),
            metrics,
        }
    }

    /// Validates the template in a request, if the request changes the template.
    pub(super) async fn check(&self, request: &AdmissionRequest, caller: &str) -> DryRunFindings {
        if !changes_template(request) {
            return DryRunFindings::default();
        }
        let checked = timeout(DRY_RUN_TIMEOUT, self.check_both(request, caller)).await;
        let checked = checked.unwrap_or(Err(Undecided::Late));
        let outcome = match &checked {
            Ok(findings) if findings.object.is_empty() => "accepted",
            Ok(_) => "refused",
            Err(why) => why.outcome(),
        };
        self.metrics.dry_run(RequestLabels::of(request), outcome);
        checked.unwrap_or_else(|why| {
            log_undecided(request, &why);
            DryRunFindings::default()
        })
    }

    /// Validates the new template, and the old one if the new one is refused.
    async fn check_both(
        &self,
        request: &AdmissionRequest,
        caller: &str,
    ) -> Result<DryRunFindings, Undecided> {
        let tenant = format!("{caller} {}", cut(&request.namespace));
        let _own = self.by_namespace.take(&tenant).await;
        let _permit = self.by_caller.take(caller).await;
        let object = self.send(&request.namespace, &request.object).await?;
        let is_new = request.old_object.is_null();
        let old_object = match object.is_empty() || is_new {
            true => Vec::new(),
            false => self.send(&request.namespace, &request.old_object).await?,
        };
        Ok(DryRunFindings { object, old_object })
    }

    async fn send(&self, namespace: &str, object: &Value) -> Result<Vec<Finding>, Undecided> {
        if !sidecar_set::is_sidecar_set(object) {
            let template = pod_template(object);
            return self.create(namespace, &template, own_volumes(object).len()).await;
        }
        let template = wrap_template(sidecar_set::template(object));
        let findings = self.create(&self.namespace, &template, usize::MAX).await?;
        Ok(findings.iter().map(sidecar_set::finding_in_set).collect())
    }

    /// Creates a PodTemplate as a dry run. Of its volumes, the first `manifest_volume_count` are those of the manifest.
    async fn create(
        &self,
        namespace: &str,
        template: &Value,
        manifest_volume_count: usize,
    ) -> Result<Vec<Finding>, Undecided> {
        if !is_dns_label(namespace) {
            // The namespace becomes a part of the path, and any caller of the port may have written it.
            let namespace = cut(namespace);
            return Err(Undecided::Unclear(format!("{namespace:?} is not a namespace")));
        }
        let path = format!(
            "/api/v1/namespaces/{namespace}/podtemplates?dryRun=All&fieldValidation=Strict&timeout={}s",
            DRY_RUN_TIMEOUT.as_secs()
        );
        let request = HttpRequest::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(template.to_string().into_bytes())
            .map_err(|error| Undecided::Unclear(error.to_string()))?;
        match self.client.request::<IgnoredAny>(request).await {
            Ok(_) => Ok(Vec::new()),
            Err(kube::Error::Api(status)) => verdict(&status, manifest_volume_count),
            Err(error) => Err(Undecided::Unavailable(error.to_string())),
        }
    }
}

/// Logs that a template was not validated. Any caller of the port may have written the request.
fn log_undecided(request: &AdmissionRequest, why: &Undecided) {
    let text = |pointer| request.object.pointer(pointer).and_then(Value::as_str);
    let kind = cut(text("/kind").unwrap_or_default());
    let name = cut(text("/metadata/name").unwrap_or_default());
    let namespace = cut(&request.namespace);
    let why = why.to_string();
    let why = cut(&why);
    log_limited!(
        warn,
        kind,
        namespace,
        name,
        why,
        "admitting a pod template without the API server's verdict"
    );
}

/// Truncates a string to the maximum length of a name.
fn cut(text: &str) -> &str {
    match text.char_indices().nth(MAX_NAME) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Whether new pods of the object would differ from those created before the request.
fn changes_template(request: &AdmissionRequest) -> bool {
    if sidecar_set::is_sidecar_set(&request.object) {
        return sidecar_set::differs(&request.object, &request.old_object)
            && concerns_spec(request);
    }
    let is_workload = request.object["spec"]["template"].is_object();
    let differs = |field: &str| request.object["spec"][field] != request.old_object["spec"][field];
    let differs = ["template", "volumeClaimTemplates"].into_iter().any(differs);
    is_workload && differs && concerns_spec(request)
}

/// The PodTemplate of a workload. Its claims are volumes of each pod, and replace volumes of the same name; other
/// volumes keep their index, because findings contain it.
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
    wrap_template(template)
}

fn wrap_template(template: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"generateName": "gamekeeper-dry-run-"},
        "template": template,
    })
}

fn own_volumes(workload: &Value) -> &[Value] {
    let volumes = workload["spec"]["template"]["spec"]["volumes"].as_array();
    volumes.map_or(&[], Vec::as_slice)
}

/// The findings of an error response. Policies and other webhooks may refuse a PodTemplate too, but their responses
/// contain no causes for its fields.
fn verdict(status: &Status, manifest_volume_count: usize) -> Result<Vec<Finding>, Undecided> {
    const UNREADABLE: &str = "PodTemplate in version \"v1\" cannot be handled as a PodTemplate: ";
    let message = status.message.clone();
    match status.code {
        401 | 403 => Err(Undecided::Forbidden(message)),
        429 | 500.. => Err(Undecided::Unavailable(message)),
        400 => match message.strip_prefix(UNREADABLE) {
            Some(why) => Ok(decoding_findings(why)),
            None => Err(Undecided::Unclear(message)),
        },
        422 => cause_findings(status, manifest_volume_count).ok_or(Undecided::Unclear(message)),
        _ => Err(Undecided::Unclear(message)),
    }
}

/// One finding for each unknown field. For a field of a wrong type, the API server gives no path, so the finding is
/// about the whole template.
fn decoding_findings(why: &str) -> Vec<Finding> {
    let unknown = why.strip_prefix("strict decoding error: ");
    let fields = unknown.and_then(|list| {
        let mut fields = Vec::new();
        let mut rest = list;
        while !rest.is_empty() {
            rest = rest.strip_prefix("unknown field ")?;
            let mut quoted = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            fields.push(workload_path(&quoted.next()?.ok()?)?);
            rest = rest.get(quoted.byte_offset()..)?;
            rest = rest.strip_prefix(", ").unwrap_or(rest);
        }
        Some(fields)
    });
    match fields {
        Some(fields) => fields.iter().map(|it| Finding::unknown(it)).collect(),
        None => vec![Finding::error("spec.template", format!("Invalid value: {why}"))],
    }
}

/// One finding for each cause; None if a cause is not about the template.
fn cause_findings(status: &Status, manifest_volume_count: usize) -> Option<Vec<Finding>> {
    let details = status.details.as_ref()?;
    if details.kind != "PodTemplate" || details.causes.is_empty() {
        return None;
    }
    let mut findings = Vec::new();
    for cause in &details.causes {
        // The operator's own rules check the names of claims, and report them at the paths of the claims.
        if !is_about_claim(&cause.field, manifest_volume_count) {
            findings.push(Finding::error(workload_path(&cause.field)?, &cause.message));
        }
    }
    Some(findings)
}

fn is_about_claim(field: &str, manifest_volume_count: usize) -> bool {
    let rest = field.strip_prefix("template.spec.volumes[");
    let index = rest.and_then(|rest| rest.split(']').next()?.parse::<usize>().ok());
    index.is_some_and(|index| index >= manifest_volume_count)
}

/// Converts a path in the PodTemplate to one in the workload; None if it is outside the template.
fn workload_path(field: &str) -> Option<String> {
    let rest = field.strip_prefix("template")?;
    let metadata_fields = [".labels", ".annotations"];
    match rest {
        // The API server omits a part of these paths.
        _ if metadata_fields.contains(&rest) => Some(format!("spec.template.metadata{rest}")),
        "" => Some("spec.template".to_owned()),
        _ if rest.starts_with('.') => Some(format!("spec.template{rest}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

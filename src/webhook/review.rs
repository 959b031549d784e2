//! One review: from the API server's question to its answer. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::dry_run::DryRunFindings;
use gamekeeper_core::admission::{Finding, Templates, check, lies_in};
use gamekeeper_core::api::GROUP;

/// Longest warning: longer ones are cut, because the API server cuts all of them together.
const MAX_WARNING: usize = 500;
/// Most warnings.
const MAX_WARNINGS: usize = 8;

/// What the API server asks.
#[derive(Debug, Deserialize)]
pub(super) struct AdmissionReview {
    pub request: AdmissionRequest,
}

/// The request that is reviewed.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AdmissionRequest {
    pub uid: String,
    pub namespace: String,
    pub operation: String,
    pub sub_resource: String,
    pub object: Value,
    pub old_object: Value,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct AdmissionResponse {
    pub uid: String,
    pub allowed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
}

impl AdmissionResponse {
    /// The answer in its envelope.
    pub(super) fn into_review(self) -> Value {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": self})
    }
}

/// Reviews a request, with what the API server says of its pod templates.
pub(super) fn review(
    request: &AdmissionRequest,
    templates: &Templates,
    by_server: &DryRunFindings,
) -> AdmissionResponse {
    let mut findings = match concerns_a_spec(request) {
        true => found(&request.object, templates, &by_server.object),
        false => Vec::new(),
    };
    if request.operation == "UPDATE" && !findings.is_empty() {
        let before = match request.object["spec"] == request.old_object["spec"] {
            true => findings.clone(),
            false => found(&request.old_object, templates, &by_server.old_object),
        };
        spare_what_was_wrong_before(&mut findings, &before);
    }
    let (errors, warnings): (Vec<Finding>, Vec<Finding>) =
        findings.into_iter().partition(Finding::is_error);
    AdmissionResponse {
        uid: request.uid.clone(),
        allowed: errors.is_empty(),
        status: (!errors.is_empty()).then(|| refusal(&request.object, &errors)),
        warnings: warnings.iter().take(MAX_WARNINGS).map(shown).collect(),
    }
}

/// Whether the request is about what a user asks for. An object that is on its way out must lose its
/// finalizers, whatever its spec says.
pub(super) fn concerns_a_spec(request: &AdmissionRequest) -> bool {
    let is_written = matches!(request.operation.as_str(), "CREATE" | "UPDATE");
    let goes = !request.object["metadata"]["deletionTimestamp"].is_null();
    is_written && request.sub_resource.is_empty() && !goes
}

/// What is wrong with an object. Where our own rules speak of a field, or of one in it, they say what to
/// write instead, and the API server need not be heard.
fn found(object: &Value, templates: &Templates, by_server: &[Finding]) -> Vec<Finding> {
    let mut findings = check(object, templates);
    let is_said = |field: &str| findings.iter().any(|ours| lies_in(&ours.field, field));
    let more = by_server.iter().filter(|it| !is_said(&it.field)).cloned();
    let more: Vec<Finding> = more.collect();
    findings.extend(more);
    findings
}

/// What was stored may stay as it is: only what a change brings in is refused, and a change that
/// leaves the spec alone is never refused.
fn spare_what_was_wrong_before(findings: &mut [Finding], before: &[Finding]) {
    for finding in findings {
        if before.contains(finding) {
            *finding = finding.clone().as_warning();
        }
    }
}

/// A warning as kubectl shows it.
fn shown(finding: &Finding) -> String {
    let text = finding.to_string();
    match text.char_indices().nth(MAX_WARNING) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// A refusal in the form of the API server's own, so that kubectl shows both alike.
fn refusal(object: &Value, errors: &[Finding]) -> Value {
    let messages: Vec<String> = errors.iter().map(Finding::to_string).collect();
    let cause = |error: &Finding| json!({"reason": "FieldValueInvalid", "message": error.message, "field": error.field});
    json!({
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": messages.join("; "),
        "details": {
            "group": GROUP,
            "kind": object["kind"],
            "name": object["metadata"]["name"],
            "causes": errors.iter().map(cause).collect::<Vec<_>>(),
        },
    })
}

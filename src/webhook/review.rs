//! One review, from the request to the response. Pure.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::dry_run::DryRunFindings;
use super::neighbors::Neighbors;
use crate::kinds::Whole;
use gamekeeper_core::admission::{
    Finding, Templates, check, conflicts_of_sidecar_sets, conflicts_with_workloads,
    disabled_commands, lies_in, unknown_revision,
};
use gamekeeper_core::api::{GROUP, SidecarSet};
use gamekeeper_core::hook_run::ExecNamespaces;
use gamekeeper_core::text::truncate;

/// Longer warnings are cut: the API server limits their total length.
const MAX_WARNING: usize = 500;
const MAX_WARNINGS: usize = 8;
/// Errors quote what users wrote, which may be long, and there may be one for each of thousands of containers.
const MAX_ERROR: usize = 1_000;
const MAX_ERRORS: usize = 50;

#[derive(Debug, Deserialize)]
pub(super) struct AdmissionReview {
    pub request: AdmissionRequest,
}

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
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionResponse {
    pub uid: String,
    pub allowed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
    /// A JSON patch in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch_type: Option<&'static str>,
}

impl AdmissionResponse {
    pub(super) fn into_review(self) -> Value {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": self})
    }
}

/// Reviews a request, given the findings of the API server about its pod templates, the namespaces in which hooks may
/// run commands, the stored SidecarSets, and the workloads with which a SidecarSet conflicts.
pub(super) fn review(
    request: &AdmissionRequest,
    templates: &Templates,
    dry_run: &DryRunFindings,
    commands: &ExecNamespaces,
    sidecar_sets: &[Arc<Whole<SidecarSet>>],
    neighbors: &Neighbors,
) -> AdmissionResponse {
    let findings_of = |object: &Value, server_findings: &[Finding]| {
        let mut findings = findings(object, templates, server_findings);
        findings.extend(disabled_commands(object, &request.namespace, commands));
        let others = sidecar_sets.iter().map(|it| it.object.as_ref());
        findings.extend(conflicts_of_sidecar_sets(object, others));
        let Neighbors { workloads, namespaces, revisions } = neighbors;
        let revisions = revisions.iter();
        findings.extend(revisions.flat_map(|revisions| unknown_revision(object, revisions)));
        findings.extend(conflicts_with_workloads(object, workloads, namespaces));
        findings
    };
    let mut findings = match concerns_spec(request) {
        true => findings_of(&request.object, &dry_run.object),
        false => Vec::new(),
    };
    if request.operation == "UPDATE" && !findings.is_empty() {
        let mut old = findings_of(&request.old_object, &dry_run.old_object);
        if request.object["spec"] == request.old_object["spec"] {
            // An unchanged spec can only have become invalid because of another object or a newer operator.
            let is_about_spec = |finding: &&Finding| !lies_in(&finding.field, "metadata");
            old.extend(findings.iter().filter(is_about_spec).cloned());
        }
        downgrade_old(&mut findings, &old);
    }
    let (errors, warnings): (Vec<Finding>, Vec<Finding>) =
        findings.into_iter().partition(Finding::is_error);
    AdmissionResponse {
        uid: request.uid.clone(),
        allowed: errors.is_empty(),
        status: (!errors.is_empty()).then(|| refusal(&request.object, &errors)),
        warnings: warnings.iter().take(MAX_WARNINGS).map(warning).collect(),
        ..AdmissionResponse::default()
    }
}

/// Whether the request writes a spec that matters. The spec of an object that is being deleted does not, because
/// its finalizers must be removable.
pub(super) fn concerns_spec(request: &AdmissionRequest) -> bool {
    let is_written = matches!(request.operation.as_str(), "CREATE" | "UPDATE");
    let is_deleted = !request.object["metadata"]["deletionTimestamp"].is_null();
    is_written && request.sub_resource.is_empty() && !is_deleted
}

/// The findings of the operator's own rules, which also tell what to write instead, and the API server's errors about
/// other fields. If one of our warnings and an error of the API server concern the same field, only the error is kept.
fn findings(object: &Value, templates: &Templates, dry_run: &[Finding]) -> Vec<Finding> {
    let mut findings = check(object, templates);
    let errors = findings.iter().filter(|it| it.is_error());
    let known: Vec<String> = errors.map(|it| it.field.clone()).collect();
    let is_known = |field: &str| known.iter().any(|it| lies_in(it, field));
    let refused = dry_run.iter().filter(|it| !is_known(&it.field));
    let refused: Vec<&Finding> = refused.collect();
    findings.retain(|it| it.is_error() || refused.iter().all(|error| error.field != it.field));
    findings.extend(refused.into_iter().cloned());
    findings
}

/// Turns findings that the stored object already has into warnings.
fn downgrade_old(findings: &mut [Finding], old: &[Finding]) {
    let old: HashSet<&Finding> = old.iter().collect();
    for finding in findings {
        if old.contains(&*finding) {
            *finding = finding.clone().as_warning();
        }
    }
}

fn warning(finding: &Finding) -> String {
    truncate(&finding.to_string(), MAX_WARNING)
}

/// A refusal in the format of the API server, so that kubectl prints it like the API server's own refusals.
fn refusal(object: &Value, errors: &[Finding]) -> Value {
    let shown = &errors[..errors.len().min(MAX_ERRORS)];
    let cut = |text: &str| truncate(text, MAX_ERROR);
    let mut messages: Vec<String> = shown.iter().map(|error| cut(&error.to_string())).collect();
    if errors.len() > MAX_ERRORS {
        messages.push(format!("and {} more", errors.len() - MAX_ERRORS));
    }
    let cause = |error: &Finding| json!({"reason": "FieldValueInvalid", "message": cut(&error.message), "field": cut(&error.field)});
    json!({
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": messages.join("; "),
        "details": {
            "group": GROUP,
            "kind": object["kind"],
            "name": object["metadata"]["name"],
            "causes": shown.iter().map(cause).collect::<Vec<_>>(),
        },
    })
}

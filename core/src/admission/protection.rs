//! `spec.protection`: what has no effect, and what remains unprotected.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::{Selector, SelectorExt};
use serde_json::Value;

use super::Finding;
use crate::api::names::GUARDED_LABEL;
use crate::api::{GameWorkload, OnNodeGoing, PodProtection};

/// Findings about a workload's protection, and about the label that the operator sets for it.
pub(super) fn check_workload(workload: &impl GameWorkload) -> Vec<Finding> {
    let template = workload.pod_template().parse();
    let mut findings: Vec<Finding> = label_in_template(&template).into_iter().collect();
    let Some(protection) = workload.protection() else {
        return findings;
    };
    let warning = |field: &str, why: &str| {
        let field = format!("spec.protection.{field}");
        Finding::error(field, format!("Invalid value: {why}")).as_warning()
    };
    if protection.pods == PodProtection::None {
        let deadline = protection.deadline_seconds;
        findings.extend(deadline.map(|_| {
            warning(
                "deadlineSeconds",
                "has no effect with pods: None; remove it, or set pods to Guarded",
            )
        }));
        return findings;
    }
    let [pre_delete, ..] = workload.pod_hooks();
    if pre_delete.hook.is_none() {
        findings.push(warning(
            "pods",
            "Guarded has no effect without a PreDelete hook; set preDeleteUpdateStrategy.hook",
        ));
    }
    let containers = template.pointer("/spec/containers");
    if containers.and_then(Value::as_array).is_some_and(|all| all.len() > 1) {
        findings.push(warning(
            "pods",
            "a pod with several containers can be evicted while one runs and another waits for its image, because \
             evictions of Pending pods ignore budgets; use one container and native sidecars",
        ));
    }
    findings
}

/// Finds a workload with pods that should leave their nodes but cannot, because none may be unavailable and no
/// replacement is created first. `may_surge` is also true if maxSurge is ignored: maxUnavailable 0 then means 1.
pub(super) fn move_without_effect(
    workload: &impl GameWorkload,
    max_unavailable: Option<&IntOrString>,
    max_surge: Option<&IntOrString>,
    may_surge: bool,
) -> Option<Finding> {
    let is_zero = |it: &IntOrString| match it {
        IntOrString::Int(count) => *count == 0,
        IntOrString::String(text) => text == "0%",
    };
    let moves = workload.protection()?.on_node_going == OnNodeGoing::Move;
    // If maxSurge is 0, too, maxUnavailable 0 means 1.
    let is_stuck = max_unavailable.is_some_and(is_zero)
        && max_surge.is_some_and(|it| !is_zero(it))
        && !may_surge;
    (moves && is_stuck).then(|| {
        let why = "Invalid value: Move moves no pod with maxUnavailable 0, because no replacement is created \
                   first; set updateStrategy.maxUnavailable to at least 1";
        Finding::error("spec.protection.onNodeGoing", why).as_warning()
    })
}

/// Reports another PodDisruptionBudget that selects pods of a guarded workload: evictions of a pod with two budgets
/// fail.
pub fn another_budget(workload: &Value, name: &str, selector: &Selector) -> Option<Finding> {
    let is_guarded = workload["spec"]["protection"]["pods"] == "Guarded";
    let labels = &workload["spec"]["template"]["metadata"]["labels"];
    let labels: BTreeMap<String, String> = serde_json::from_value(labels.clone()).ok()?;
    let is_selected = is_guarded && selector.matches(&labels);
    is_selected.then(|| {
        let why = format!(
            "Invalid value: PodDisruptionBudget {name:?} also selects these pods, so their evictions fail with an \
             error instead of waiting; delete it"
        );
        Finding::error("spec.protection.pods", why).as_warning()
    })
}

/// Finds the label of guarded pods in a template. It belongs to the operator: a pod that gets it from its template
/// could not be deleted.
fn label_in_template(template: &Value) -> Option<Finding> {
    let labels = template.pointer("/metadata/labels")?;
    labels.get(GUARDED_LABEL)?;
    let field = format!("spec.template.metadata.labels[{GUARDED_LABEL}]");
    let why =
        "Invalid value: is set by the operator; remove it, and use spec.protection.pods: Guarded";
    Some(Finding::error(field, why))
}

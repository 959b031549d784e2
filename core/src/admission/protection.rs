//! `spec.protection`: what has no effect, and what is left open.

use std::collections::BTreeMap;

use kube::core::{Selector, SelectorExt};
use serde_json::Value;

use super::Finding;
use crate::api::names::GUARDED_LABEL;
use crate::api::{GameWorkload, PodProtection};

/// Findings about a workload's protection, and about the label that the operator sets for it.
pub(super) fn of_workload(workload: &impl GameWorkload) -> Vec<Finding> {
    let mut findings: Vec<Finding> = labelled(workload.pod_template()).into_iter().collect();
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
    let containers = workload.pod_template().pointer("/spec/containers");
    if containers
        .and_then(Value::as_array)
        .is_some_and(|all| all.len() > 1)
    {
        findings.push(warning(
            "pods",
            "a pod of several containers can be evicted while one runs and another waits for its image, because \
             evictions ignore budgets in phase Pending; use one container and native sidecars",
        ));
    }
    findings
}

/// A PodDisruptionBudget over the pods of a guarded workload, which makes their evictions fail.
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

/// The label belongs to the operator: a pod that has it from its template could not be deleted.
fn labelled(template: &Value) -> Option<Finding> {
    let labels = template.pointer("/metadata/labels")?;
    labels.get(GUARDED_LABEL)?;
    let field = format!("spec.template.metadata.labels[{GUARDED_LABEL}]");
    let why =
        "Invalid value: is set by the operator; remove it, and use spec.protection.pods: Guarded";
    Some(Finding::error(field, why))
}

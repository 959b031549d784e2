//! SidecarSets: their containers, and fields that are accepted but have no effect.

use kube::core::Selector;
use serde_json::Value;

use super::{Finding, pods};
use crate::api::SidecarSet;

pub(super) fn of_set(set: &SidecarSet, object: &Value) -> Vec<Finding> {
    let spec = &object["spec"];
    let mut findings = pods::of_spec("spec", spec, &[]);
    findings.extend(restarts_of_all(spec));
    let selectors = [
        ("spec.selector", Some(&set.spec.selector)),
        (
            "spec.namespaceSelector",
            set.spec.namespace_selector.as_ref(),
        ),
    ];
    for (field, selector) in selectors {
        let parsed = selector.map(|it| Selector::try_from(it.clone()));
        if let Some(Err(error)) = parsed {
            findings.push(Finding::error(field, format!("Invalid value: {error}")));
        }
    }
    findings.extend(without_effect(spec));
    findings
}

/// Finds restart rules with which a sidecar would restart the game.
fn restarts_of_all(spec: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let rules = container["restartPolicyRules"].as_array();
            for (number, rule) in rules.into_iter().flatten().enumerate() {
                if rule["action"] == "RestartAllContainers" {
                    let field = format!("spec.{list}[{index}].restartPolicyRules[{number}].action");
                    let fix = "would restart the game with its sidecar; write Restart";
                    findings.push(Finding::invalid(field, "RestartAllContainers", fix));
                }
            }
        }
    }
    findings
}

/// A warning about an update strategy: sidecars of running pods are not updated.
fn without_effect(spec: &Value) -> Option<Finding> {
    let strategy = spec["updateStrategy"].as_object()?;
    let is_known = |(field, value): (&String, &Value)| field == "type" && value == "NotUpdate";
    let has_effect = strategy.iter().all(is_known);
    let why = "Invalid value: has no effect: containers of running pods are not updated, and new pods get the newest; \
               write type: NotUpdate";
    (!has_effect).then(|| Finding::error("spec.updateStrategy", why).as_warning())
}

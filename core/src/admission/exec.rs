//! Commands in containers: the namespaces in which hooks may run them, and what they must not contain.

use std::collections::HashSet;

use serde_json::Value;

use super::Finding;
use super::labels::is_dns_label;
use super::metrics::MAX_FINDINGS;
use crate::api::{Argument, ExecMetric, Metric};
use crate::hook_run::{ExecNamespaces, SECRET_IN_COMMAND, arguments_in, visit_strings};

/// Finds the commands of an object if hooks may not run commands in its namespace.
///
/// Not part of [`check`](super::check): only a running operator knows in which namespaces commands are allowed.
pub fn disabled_commands(
    object: &Value,
    namespace: &str,
    allowed: &ExecNamespaces,
) -> Vec<Finding> {
    let Err(why) = allowed.check(namespace) else {
        return Vec::new();
    };
    let metrics = object["spec"]["metrics"].as_array().into_iter().flatten();
    let commands = metrics.enumerate();
    let commands = commands.filter(|(_, metric)| metric["provider"]["exec"].is_object());
    commands
        .map(|(index, _)| {
            let field = format!("spec.metrics[{index}].provider.exec");
            // A warning: an administrator may allow commands later, and until then the failing hook keeps its pod.
            Finding::error(field, format!("Forbidden: {why}")).as_warning()
        })
        .collect()
}

/// Finds arguments from Secrets in commands. The secret values would be readable in the audit log.
pub(super) fn secrets_in_commands(metrics: &[Metric], args: &[Argument]) -> Vec<Finding> {
    let secret_args = args.iter().filter(|argument| {
        let source = argument.value_from.as_ref();
        argument.value.is_none() && source.is_some_and(|it| it.secret_key_ref.is_some())
    });
    let secret_args: HashSet<&str> = secret_args.map(|it| it.name.as_str()).collect();
    let mut findings = Vec::new();
    for (index, metric) in metrics.iter().enumerate() {
        if metric.provider.exec.is_none() {
            continue;
        }
        visit_strings(metric, &mut |field, text| {
            let used = arguments_in(text).unwrap_or_default();
            if used.iter().any(|name| secret_args.contains(name)) && findings.len() < MAX_FINDINGS {
                let field = format!("spec.metrics[{index}].{field}");
                findings.push(Finding::invalid(field, text, SECRET_IN_COMMAND));
            }
        });
    }
    findings
}

/// Finds an invalid container name. A name with a placeholder such as `{{ args.NAME }}` cannot be checked before a run.
pub(super) fn check_container(at: &str, exec: &ExecMetric) -> Option<Finding> {
    let name = &exec.container;
    if name.contains("{{") || is_dns_label(name) {
        return None;
    }
    let fix = "must be the name of a container, such as game or {{ args.PodContainer[0] }}";
    Some(Finding::invalid(format!("{at}.container"), name, fix))
}

/// Finds the commands of a run that does not name its pod with the argument PodName.
pub(super) fn commands_without_pod(metrics: &[Metric], args: &[Argument]) -> Vec<Finding> {
    if args.iter().any(|argument| argument.name == "PodName") {
        return Vec::new();
    }
    let commands = metrics.iter().enumerate();
    let commands = commands.filter(|(_, metric)| metric.provider.exec.is_some());
    commands
        .map(|(index, _)| {
            let message =
                "Invalid value: the pod is not known: set the argument PodName in spec.args";
            Finding::error(format!("spec.metrics[{index}].provider.exec"), message)
        })
        .collect()
}

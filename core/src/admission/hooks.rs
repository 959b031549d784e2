//! The hooks of workloads, checked against their HookTemplates.

use std::collections::HashSet;

use super::metrics::is_set_by_operator;
use super::{Finding, Templates};
use crate::api::names::HookPoint;
use crate::api::{Argument, CanaryStep, GameWorkload, HookStep, HookTemplate};
use crate::hook_run::{STEP_HAS_NO_POD, check_can_succeed, missing_arguments, used_arguments};
use crate::workload::CannotMake;

struct Hook<'a> {
    field: String,
    step: &'a HookStep,
    /// Whether the hook is for a pod. The hook of a canary step is not.
    is_for_pod: bool,
}

pub(super) fn check_workload(workload: &impl GameWorkload, templates: &Templates) -> Vec<Finding> {
    let pod_hooks = HookPoint::OF_PODS.into_iter().zip(workload.pod_hooks());
    let pod_hooks = pod_hooks.filter_map(|(point, strategy)| {
        Some(Hook {
            field: format!("spec.{}.hook", point.strategy_field()?),
            step: strategy.hook.as_ref()?,
            is_for_pod: true,
        })
    });
    let steps = workload.canary().map_or(&[][..], |canary| &canary.steps);
    let step_hooks = steps.iter().enumerate().filter_map(step_hook);
    pod_hooks.chain(step_hooks).flat_map(|hook| check_hook(&hook, templates)).collect()
}

fn step_hook((index, step): (usize, &CanaryStep)) -> Option<Hook<'_>> {
    Some(Hook {
        field: format!("spec.updateStrategy.canary.steps[{index}].hook"),
        step: step.hook.as_ref()?,
        is_for_pod: false,
    })
}

fn check_hook(hook: &Hook, templates: &Templates) -> Vec<Finding> {
    let at_name = format!("{}.templateName", hook.field);
    let name = &hook.step.template_name;
    let invalid = |why: String| Finding::error(&at_name, format!("Invalid value: {why}"));
    let Some(template) = (templates.find)(name) else {
        // A warning, because manifests may be applied in any order.
        let why = format!(
            "HookTemplate {name:?} does not exist in {}; create it, or name another one",
            templates.place
        );
        return vec![invalid(why).as_warning()];
    };
    let mut findings = unknown_arguments(hook, &template);
    if let Err(why) = check_can_succeed(&template.spec) {
        let template = name.clone();
        let why = CannotMake::CannotSucceed { template, why };
        findings.push(invalid(why.to_string()));
    }
    let metrics = template.spec.metrics.iter();
    let mut commands = metrics.filter(|metric| metric.provider.exec.is_some());
    if let Some(metric) = commands.next().filter(|_| !hook.is_for_pod) {
        let metric = &metric.name;
        let why = format!(
            "metric {metric} of HookTemplate {name:?} runs a command, but {STEP_HAS_NO_POD}"
        );
        findings.push(invalid(why));
    }
    let no_value_message = |names: Vec<String>| {
        let (template, names) = (name.clone(), names.join(", "));
        CannotMake::NoValue { template, names }.to_string()
    };
    let (set_by_operator, missing): (Vec<_>, Vec<_>) =
        missing(hook, &template).into_iter().partition(|name| is_set_by_operator(name));
    if !missing.is_empty() {
        findings.push(invalid(no_value_message(missing)));
    }
    if !set_by_operator.is_empty() {
        // A warning, so that bk-bcs manifests with such steps can be applied unchanged.
        let why = no_value_message(set_by_operator);
        let why =
            format!("{why}: a canary step concerns no pod, so the operator cannot supply a value");
        findings.push(invalid(why).as_warning());
    }
    findings
}

/// The names of the arguments that have no value.
fn missing(hook: &Hook, template: &HookTemplate) -> Vec<String> {
    let given: Vec<Argument> = hook
        .step
        .args
        .iter()
        .map(|argument| Argument {
            name: argument.name.clone(),
            value: Some(argument.value.clone()),
            value_from: None,
        })
        .collect();
    let mut missing = missing_arguments(&template.spec, &given);
    if hook.is_for_pod {
        missing.retain(|name| !is_set_by_operator(name));
    }
    missing
}

/// Finds arguments that the template does not use, usually because they are misspelled.
fn unknown_arguments(hook: &Hook, template: &HookTemplate) -> Vec<Finding> {
    let declared = template.spec.args.iter().map(|argument| argument.name.clone());
    let used = template.spec.metrics.iter().flat_map(used_arguments);
    let known: HashSet<String> = declared.chain(used).collect();
    let args = hook.step.args.iter().enumerate();
    let unknown = args.filter(|(_, argument)| !known.contains(&argument.name));
    unknown
        .map(|(index, argument)| {
            let field = format!("{}.args[{index}].name", hook.field);
            let template = &hook.step.template_name;
            let fix = format!("HookTemplate {template:?} has no such argument; check its spelling");
            Finding::invalid(field, &argument.name, fix).as_warning()
        })
        .collect()
}

//! Workloads: their hooks, canary steps, labels and pods.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Finding, Templates, hooks, labels, pods};
use crate::api::{GameDeployment, GameStatefulSet, GameStatefulSetUpdateType, GameWorkload};

/// What is wrong with a GameDeployment.
pub(super) fn of_deployment(workload: &GameDeployment, templates: &Templates) -> Vec<Finding> {
    let type_ = workload.spec.update_strategy.type_.into();
    of_workload(workload, type_, templates)
}

/// What is wrong with a GameStatefulSet.
pub(super) fn of_set(workload: &GameStatefulSet, templates: &Templates) -> Vec<Finding> {
    let type_ = workload.spec.update_strategy.type_;
    let mut findings = of_workload(workload, type_, templates);
    findings.extend(pods::of_claims(&workload.spec.volume_claim_templates));
    findings
}

fn of_workload<K: GameWorkload>(
    workload: &K,
    type_: GameStatefulSetUpdateType,
    templates: &Templates,
) -> Vec<Finding> {
    let metadata = workload.meta();
    let of_labels = metadata.labels.as_ref();
    let mut findings = labels::of_workload(of_labels, metadata.annotations.as_ref());
    let selector = workload.label_selector();
    let selected = selector
        .match_labels
        .iter()
        .flat_map(|labels| labels.keys());
    findings.extend(labels::keys("spec.selector.matchLabels", selected));
    findings.extend(pods::of_template(
        "spec.template",
        workload.pod_template(),
        workload.claim_templates(),
    ));
    findings.extend(hooks::of_workload(workload, templates));
    findings.extend(hooks_without_effect(workload, type_));
    findings.extend(steps_without_effect(workload));
    findings
}

/// Hooks on in-place updates, where there are none.
fn hooks_without_effect(
    workload: &impl GameWorkload,
    type_: GameStatefulSetUpdateType,
) -> Vec<Finding> {
    if type_ == GameStatefulSetUpdateType::InplaceUpdate {
        return Vec::new();
    }
    let [_, pre_inplace, post_inplace] = workload.pod_hooks();
    let points = [
        ("preInplaceUpdateStrategy", pre_inplace),
        ("postInplaceUpdateStrategy", post_inplace),
    ];
    let without_effect = points
        .into_iter()
        .filter(|(_, strategy)| strategy.hook.is_some());
    without_effect
        .map(|(point, _)| {
            let message = format!(
                "Invalid value: is not run with updateStrategy.type {type_:?}, which changes no pod in \
                 place behind hooks; leave it out, or write InplaceUpdate"
            );
            Finding::error(format!("spec.{point}.hook"), message).as_warning()
        })
        .collect()
}

/// Steps that keep more pods at the old revision than one before them.
fn steps_without_effect(workload: &impl GameWorkload) -> Vec<Finding> {
    let steps = workload.canary().map_or(&[][..], |canary| &canary.steps);
    let mut findings = Vec::new();
    let mut before: Option<&IntOrString> = None;
    for (index, step) in steps.iter().enumerate() {
        let Some(partition) = &step.partition else {
            continue;
        };
        if let Some(before) = before.filter(|before| is_more(partition, before)) {
            let message = format!(
                "Invalid value: {}: a step before it keeps only {}, and pods are never moved back; \
                 write partitions that fall",
                shown(partition),
                shown(before)
            );
            let field = format!("spec.updateStrategy.canary.steps[{index}].partition");
            findings.push(Finding::error(field, message).as_warning());
        }
        before = Some(partition);
    }
    findings
}

/// Whether a partition is more than another; a number and a percentage are not compared.
fn is_more(partition: &IntOrString, other: &IntOrString) -> bool {
    let percent = |text: &str| text.trim_end_matches('%').parse::<u32>().ok();
    match (partition, other) {
        (IntOrString::Int(one), IntOrString::Int(other)) => one > other,
        (IntOrString::String(one), IntOrString::String(other)) => percent(one) > percent(other),
        _ => false,
    }
}

fn shown(partition: &IntOrString) -> String {
    match partition {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => format!("{text:?}"),
    }
}

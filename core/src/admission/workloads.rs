//! Workloads: their hooks, canary steps, labels and pods.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use serde_json::Value;

use super::{Finding, Templates, hooks, indexes, labels, pods, protection};
use crate::api::{
    ContainerOrder, GameDeployment, GameStatefulSet, GameStatefulSetSpec, GameWorkload,
    InPlaceUpdateStrategy, JsonText, PodManagementPolicy, UpdateStrategyType, WhenImpossible,
};

/// The settings of updates that both kinds of workload have.
#[derive(Clone, Copy)]
struct Update {
    type_: UpdateStrategyType,
    order: ContainerOrder,
    when_impossible: WhenImpossible,
    grace_seconds: i32,
    without_gate: bool,
}

impl Update {
    fn of(
        type_: UpdateStrategyType,
        in_place: &InPlaceUpdateStrategy,
        disable_readiness_gate: bool,
    ) -> Self {
        Self {
            type_,
            order: in_place.policy,
            when_impossible: in_place.when_impossible,
            grace_seconds: in_place.grace_period_seconds,
            without_gate: disable_readiness_gate,
        }
    }

    fn is_in_place(self) -> bool {
        self.type_ == UpdateStrategyType::InplaceUpdate
    }

    /// Whether an update may recreate pods.
    fn may_recreate(self) -> bool {
        match self.type_ {
            UpdateStrategyType::RollingUpdate => true,
            UpdateStrategyType::OnDelete => false,
            UpdateStrategyType::InplaceUpdate | UpdateStrategyType::HotPatchUpdate => {
                self.when_impossible == WhenImpossible::Recreate
            }
        }
    }
}

pub(super) fn check_game_deployment(
    workload: &GameDeployment,
    templates: &Templates,
) -> Vec<Finding> {
    let strategy = &workload.spec.update_strategy;
    let without_gate = workload.spec.disable_readiness_gate;
    let in_place = &strategy.in_place_update_strategy;
    let update = Update::of(strategy.type_, in_place, without_gate);
    let mut findings = check_workload(workload, update, templates);
    if !workload.spec.service_name.is_empty() {
        findings.push(without_effect(
            "spec.serviceName",
            "on a GameDeployment, whose pods have no stable host names; remove it, or use a GameStatefulSet",
        ));
    }
    let surge = [("", strategy.max_surge.as_ref())];
    let max_unavailable = strategy.max_unavailable.as_ref();
    findings.extend(surge_without_effect(strategy.type_, max_unavailable, false, surge));
    findings.extend(indexes::check_deployment(workload));
    findings.extend(protection::move_without_effect(
        workload,
        strategy.max_unavailable.as_ref(),
        strategy.max_surge.as_ref(),
        matches!(
            strategy.type_,
            UpdateStrategyType::RollingUpdate | UpdateStrategyType::InplaceUpdate
        ),
    ));
    let partition = strategy.partition.as_ref();
    findings.extend(partition_without_effect(workload, "partition", partition));
    findings
}

pub(super) fn check_game_stateful_set(
    workload: &GameStatefulSet,
    templates: &Templates,
) -> Vec<Finding> {
    let strategy = &workload.spec.update_strategy;
    let without_gate = workload.spec.disable_readiness_gate;
    let in_place = &strategy.in_place_update_strategy;
    let update = Update::of(strategy.type_, in_place, without_gate);
    let mut findings = check_workload(workload, update, templates);
    findings.extend(pods::check_claims(&parsed(&workload.spec.volume_claim_templates)));
    findings.extend(reserved_without_effect(&workload.spec));
    findings.extend(batch_without_effect(workload));
    let rolling = strategy.rolling_update.as_ref();
    let is_ordered = workload.spec.pod_management_policy == PodManagementPolicy::OrderedReady;
    let max_unavailable =
        rolling.and_then(|it| it.max_unavailable.as_ref()).or(strategy.max_unavailable.as_ref());
    let surge = [
        ("", strategy.max_surge.as_ref()),
        ("rollingUpdate.", rolling.and_then(|it| it.max_surge.as_ref())),
    ];
    findings.extend(surge_without_effect(strategy.type_, max_unavailable, is_ordered, surge));
    findings.extend(protection::move_without_effect(
        workload,
        max_unavailable,
        rolling.and_then(|it| it.max_surge.as_ref()).or(strategy.max_surge.as_ref()),
        is_ordered,
    ));
    let inner = rolling.and_then(|it| it.partition.as_ref());
    let partitions =
        [("partition", strategy.partition.as_ref()), ("rollingUpdate.partition", inner)];
    let check = |(place, partition)| partition_without_effect(workload, place, partition);
    findings.extend(partitions.into_iter().filter_map(check));
    findings
}

/// Finds reserved ordinals below ordinals.start, which have no pod anyway.
fn reserved_without_effect(spec: &GameStatefulSetSpec) -> impl Iterator<Item = Finding> {
    let start = spec.ordinals.start;
    let reserved = spec.reserve_orders.iter().enumerate();
    let too_low = reserved.filter(move |(_, ordinal)| **ordinal < start);
    too_low.map(move |(index, _)| {
        let why = format!("below ordinals.start, which is {start}; remove it");
        without_effect(&format!("spec.reserveOrders[{index}]"), &why)
    })
}

/// A warning about a field that has no effect here.
fn without_effect(field: &str, why: &str) -> Finding {
    Finding::error(field, format!("Invalid value: has no effect {why}")).as_warning()
}

/// Finds a maxSurge with which no surge pod is ever created. `places` are the fields in which it may be.
fn surge_without_effect<'a>(
    type_: UpdateStrategyType,
    max_unavailable: Option<&IntOrString>,
    is_ordered: bool,
    places: impl IntoIterator<Item = (&'a str, Option<&'a IntOrString>)>,
) -> Option<Finding> {
    let why = match type_ {
        _ if is_ordered => {
            "with podManagementPolicy OrderedReady; remove it, or use Parallel".to_owned()
        }
        UpdateStrategyType::HotPatchUpdate | UpdateStrategyType::OnDelete => {
            format!("with updateStrategy.type {type_:?}; remove it")
        }
        UpdateStrategyType::InplaceUpdate if !max_unavailable.is_some_and(is_zero) => {
            "with updateStrategy.type InplaceUpdate, unless maxUnavailable is 0; remove it, or set maxUnavailable to 0"
                .to_owned()
        }
        UpdateStrategyType::InplaceUpdate | UpdateStrategyType::RollingUpdate => return None,
    };
    let mut places = places.into_iter();
    let (place, _) = places.find(|(_, surge)| surge.is_some_and(|surge| !is_zero(surge)))?;
    Some(without_effect(&format!("spec.updateStrategy.{place}maxSurge"), &why))
}

fn is_zero(limit: &IntOrString) -> bool {
    match limit {
        IntOrString::Int(count) => *count == 0,
        IntOrString::String(text) => text == "0%",
    }
}

fn check_workload<K: GameWorkload>(
    workload: &K,
    update: Update,
    templates: &Templates,
) -> Vec<Finding> {
    let metadata = workload.meta();
    let workload_labels = metadata.labels.as_ref();
    let mut findings = labels::check_workload(workload_labels, metadata.annotations.as_ref());
    let selector = workload.label_selector();
    let selected = selector.match_labels.iter().flat_map(|labels| labels.keys());
    findings.extend(labels::invalid_keys("spec.selector.matchLabels", selected));
    findings.extend(pods::check_template(
        "spec.template",
        &workload.pod_template().parse(),
        &parsed(workload.claim_templates()),
    ));
    findings.extend(hooks::check_workload(workload, templates));
    findings.extend(protection::check_workload(workload));
    findings.extend(hooks_without_effect(workload, update));
    findings.extend(missing_readiness_gate(workload, update));
    findings.extend(order_without_effect(update));
    findings.extend(steps_without_effect(workload));
    findings
}

fn parsed(templates: &[JsonText]) -> Vec<Value> {
    templates.iter().map(JsonText::parse).collect()
}

/// Finds in-place hooks that the update strategy never runs.
fn hooks_without_effect(workload: &impl GameWorkload, update: Update) -> Vec<Finding> {
    if update.is_in_place() {
        return Vec::new();
    }
    let type_ = update.type_;
    let [pre_delete, pre_inplace, post_inplace] = workload.pod_hooks();
    let never_runs = |point: &str| {
        format!(
            "Invalid value: has no effect with updateStrategy.type {type_:?}, which runs no {point} hooks; \
             remove it, or use InplaceUpdate"
        )
    };
    let recreates = match type_ {
        UpdateStrategyType::HotPatchUpdate => "hot-patches pods without hooks, or recreates them",
        _ => "recreates pods",
    };
    let recreating = format!(
        "Invalid value: has no effect with updateStrategy.type {type_:?}, which {recreates} after \
         their PreDelete hook; remove it, or use InplaceUpdate"
    );
    let pre_inplace_message = match (update.may_recreate(), pre_delete.hook.is_some()) {
        (true, false) => None,
        (true, true) => Some(recreating),
        (false, _) => Some(never_runs("PreInplace")),
    };
    let points = [
        ("preInplaceUpdateStrategy", pre_inplace, pre_inplace_message),
        ("postInplaceUpdateStrategy", post_inplace, Some(never_runs("PostInplace"))),
    ];
    let configured = points.into_iter().filter(|(_, strategy, _)| strategy.hook.is_some());
    configured
        .filter_map(|(point, _, message)| {
            let field = format!("spec.{point}.hook");
            Some(Finding::error(field, message?).as_warning())
        })
        .collect()
}

/// Finds a createBatch with OrderedReady, which creates one pod at a time anyway.
fn batch_without_effect(workload: &GameStatefulSet) -> Option<Finding> {
    let spec = &workload.spec;
    let is_ordered = spec.pod_management_policy == PodManagementPolicy::OrderedReady;
    spec.scale_strategy.create_batch.as_ref().filter(|_| is_ordered)?;
    Some(without_effect(
        "spec.scaleStrategy.createBatch",
        "with podManagementPolicy OrderedReady, which creates one pod at a time; remove it, or use Parallel",
    ))
}

/// Finds fields that need a readiness gate to keep traffic away from pods, if new pods get none.
fn missing_readiness_gate(workload: &impl GameWorkload, update: Update) -> Vec<Finding> {
    let [_, _, post_inplace] = workload.pod_hooks();
    let fields = [
        (update.grace_seconds > 0, "spec.updateStrategy.inPlaceUpdateStrategy.gracePeriodSeconds"),
        (post_inplace.hook.is_some(), "spec.postInplaceUpdateStrategy.hook"),
    ];
    let is_ungated = update.is_in_place() && update.without_gate;
    let fields = fields.into_iter().filter(|(is_set, _)| is_ungated && *is_set);
    let message = "Invalid value: cannot keep traffic away from pods without a readiness gate \
                   (spec.disableReadinessGate); remove one of these two fields";
    fields.map(|(_, field)| Finding::error(field, message).as_warning()).collect()
}

/// Finds a container order that is ignored because the update type is not InplaceUpdate.
fn order_without_effect(update: Update) -> Option<Finding> {
    if update.is_in_place() || update.order == ContainerOrder::DisOrdered {
        return None;
    }
    let message = format!(
        "Invalid value: \"{:?}\": has no effect with updateStrategy.type {:?}; remove it, or use InplaceUpdate",
        update.order, update.type_
    );
    let field = "spec.updateStrategy.inPlaceUpdateStrategy.policy";
    Some(Finding::error(field, message).as_warning())
}

/// Finds steps with a larger partition than an earlier step.
fn steps_without_effect(workload: &impl GameWorkload) -> Vec<Finding> {
    let steps = workload.canary().map_or(&[][..], |canary| &canary.steps);
    let mut findings = Vec::new();
    let mut earlier: Option<&IntOrString> = None;
    for (index, step) in steps.iter().enumerate() {
        let Some(partition) = &step.partition else {
            continue;
        };
        if let Some(earlier) = earlier.filter(|earlier| is_larger(partition, earlier)) {
            let message = format!(
                "Invalid value: {}: an earlier step keeps only {}, and pods are never moved back; \
                 use decreasing partitions",
                shown(partition),
                shown(earlier)
            );
            let field = format!("spec.updateStrategy.canary.steps[{index}].partition");
            findings.push(Finding::error(field, message).as_warning());
            continue;
        }
        earlier = Some(partition);
    }
    findings
}

/// Finds a partition that has no effect because canary steps set the partition.
fn partition_without_effect(
    workload: &impl GameWorkload,
    place: &str,
    partition: Option<&IntOrString>,
) -> Option<Finding> {
    let has_steps = workload.canary().is_some_and(|canary| !canary.steps.is_empty());
    let keeps_pods = |it: &&IntOrString| !matches!(shown(it).as_str(), "0" | "\"0%\"");
    let partition = partition.filter(keeps_pods).filter(|_| has_steps)?;
    let message = format!(
        "Invalid value: {}: has no effect with canary.steps, after which all pods are updated; remove it",
        shown(partition)
    );
    let field = format!("spec.updateStrategy.{place}");
    Some(Finding::error(field, message).as_warning())
}

/// Whether a partition is larger than another. A number and a percentage are not compared.
fn is_larger(partition: &IntOrString, other: &IntOrString) -> bool {
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

//! The objects that a scope determines: workload, templates and steps.

use gamekeeper_core::api::names;
use gamekeeper_core::api::{
    GameDeployment, GameStatefulSet, GameStatefulSetScaleStrategy, GameStatefulSetSpec,
    GameStatefulSetStatus, GameStatefulSetUpdateStrategy, PodManagementPolicy,
};
use serde_json::{Value, json};

use super::naming::*;
use super::objects::{NAMESPACE, PRIORITY_CLASS, TOLERATED, UID};
use crate::scope::{Quota, QuotaKind, Scope, Step};
use crate::state::Rev;

/// The GameStatefulSet that is equivalent to a GameDeployment, with these ordinals reserved.
pub fn as_stateful_set(
    gd: &GameDeployment,
    policy: PodManagementPolicy,
    reserved: &[i32],
) -> GameStatefulSet {
    let spec = gd.spec.clone();
    let strategy = spec.update_strategy;
    GameStatefulSet {
        metadata: gd.metadata.clone(),
        spec: GameStatefulSetSpec {
            replicas: spec.replicas,
            selector: spec.selector,
            template: spec.template,
            pod_management_policy: policy,
            reserve_orders: reserved.to_vec(),
            min_ready_seconds: spec.min_ready_seconds,
            scale_strategy: GameStatefulSetScaleStrategy {
                create_batch: spec.scale_strategy.create_batch,
            },
            update_strategy: GameStatefulSetUpdateStrategy {
                type_: strategy.type_,
                partition: strategy.partition,
                max_unavailable: strategy.max_unavailable,
                max_surge: strategy.max_surge,
                paused: strategy.paused,
                in_place_update_strategy: strategy.in_place_update_strategy,
                canary: strategy.canary,
                ..GameStatefulSetUpdateStrategy::default()
            },
            pre_delete_update_strategy: spec.pre_delete_update_strategy,
            pre_inplace_update_strategy: spec.pre_inplace_update_strategy,
            post_inplace_update_strategy: spec.post_inplace_update_strategy,
            protection: spec.protection,
            ..GameStatefulSetSpec::default()
        },
        status: gd
            .status
            .clone()
            .map(|workload| GameStatefulSetStatus { workload, ..GameStatefulSetStatus::default() }),
    }
}

pub(super) fn template(scope: &Scope, rev: Rev) -> Value {
    let names = CONTAINERS.into_iter().take(scope.containers).enumerate();
    let image = |index| image(scope.image(rev, index));
    let resources = resources(scope.quota, rev);
    let containers = names
        .map(|(index, name)| json!({"name": name, "image": image(index), "resources": resources}));
    let mut template = json!({
        "metadata": {"labels": {"app": "game"}},
        "spec": {
            "containers": containers.collect::<Vec<_>>(),
            "tolerations": [{"key": TOLERATED, "operator": "Exists"}],
        },
    });
    if scope.quota.is_some_and(|it| it.rev == rev && it.kind == QuotaKind::Scoped) {
        template["spec"]["priorityClassName"] = json!(PRIORITY_CLASS);
    }
    template
}

/// The resources of a container. They matter only for a quota that counts them.
pub(super) fn resources(quota: Option<Quota>, rev: Rev) -> Value {
    match quota.filter(|it| it.kind == QuotaKind::Twice) {
        Some(quota) => json!({"requests": {"cpu": quota.amount(rev).to_string()}}),
        None => json!({}),
    }
}

pub(super) fn step_list(steps: &[Step]) -> Value {
    let step = |step: &Step| match step {
        Step::Partition(kept) => json!({"partition": kept.to_int_or_string()}),
        Step::Pause(None) => json!({"pause": {}}),
        Step::Pause(Some(length)) => {
            json!({"pause": {"duration": TICK_SECONDS * i64::from(*length)}})
        }
        Step::Hook => json!({"hook": hook_step(0)}),
    };
    steps.iter().map(step).collect()
}

pub(super) fn base(scope: &Scope) -> GameDeployment {
    let hook = |is_configured: bool| match is_configured {
        true => json!({"hook": hook_step(0)}),
        false => json!({}),
    };
    let range = json!({"podStartIndex": 0, "podEndIndex": scope.indexes}).to_string();
    let annotations = match scope.indexes {
        0 => json!({}),
        _ => json!({names::INDEX_ON: "true", names::INDEX_RANGE: range}),
    };
    let scale_strategy = match scope.batch {
        0 => json!({}),
        batch => json!({"createBatch": batch}),
    };
    serde_json::from_value(json!({
        "metadata": {
            "name": WORKLOAD, "namespace": NAMESPACE, "uid": UID, "annotations": annotations,
        },
        "spec": {
            "selector": {"matchLabels": {"app": "game"}},
            "template": template(scope, 0),
            "minReadySeconds": TICK_SECONDS * i64::from(scope.min_ready),
            "scaleStrategy": scale_strategy,
            "updateStrategy": {
                "type": scope.strategy,
                "maxUnavailable": scope.max_unavailable.to_int_or_string(),
                "maxSurge": scope.max_surge.to_int_or_string(),
                "inPlaceUpdateStrategy": {
                    "gracePeriodSeconds": TICK_SECONDS * i64::from(scope.grace),
                    "policy": scope.order,
                },
            },
            "preDeleteUpdateStrategy": hook(scope.pre_delete),
            "preInplaceUpdateStrategy": hook(scope.pre_inplace),
            "postInplaceUpdateStrategy": hook(scope.post_inplace),
        },
    }))
    .expect("a GameDeployment")
}

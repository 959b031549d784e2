//! A workload as the planner reads it: percentages resolved, defaults filled in, hooks by point.
//!
//! Everything is worked out once, here at the edge, so that no rule further in has to know what
//! "20%" of how many is or which of two fields holds a limit.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::core::Selector;
use serde_json::Value;

use super::duration::parse_duration;
use super::manifest_resume::paused_came_with_an_apply;
use crate::api::names::{self, HookPoint, WorkloadKind};
use crate::api::{
    CanaryStatus, CanaryStep, GameDeployment, HookStep, InPlacePolicy, PauseCondition,
    PodHookStrategy, UpdateStrategyType,
};

/// A workload, resolved.
pub struct Workload<'a> {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// metadata.generation.
    pub generation: i64,
    /// Annotations.
    pub annotations: &'a BTreeMap<String, String>,
    /// Pods wanted (R).
    pub replicas: i64,
    /// Which pods are its own.
    pub selector: Selector,
    /// The pod template.
    pub template: &'a Value,
    /// How long a pod must be ready to be available.
    pub min_ready: SignedDuration,
    /// Old revisions to keep.
    pub history_limit: usize,
    /// Pods that go first.
    pub pods_to_delete: &'a [String],
    /// How pods are updated.
    pub update: UpdateStrategyType,
    /// Pods to keep at the old revision once the steps are over.
    pub partition: i64,
    /// Pods that may be unavailable.
    pub max_unavailable: i64,
    /// Pods that may exist above replicas.
    pub max_surge: i64,
    /// spec.updateStrategy.paused.
    pub paused: bool,
    /// Whether `paused: false` came with an apply, which does not resume a pause of ours.
    pub resume_by_apply: bool,
    /// Time between closing the gate and changing the pod.
    pub grace: SignedDuration,
    /// What to do with a change that cannot be made in place.
    pub policy: InPlacePolicy,
    /// Canary steps.
    pub steps: &'a [CanaryStep],
    /// Hook of each point in a pod's life.
    pub hooks: PodHooks<'a>,
    /// Where the rollout stood at the last status write.
    pub progress: Progress,
}

/// The hooks in a pod's life.
#[derive(Clone, Copy)]
pub struct PodHooks<'a> {
    pre_delete: &'a PodHookStrategy,
    pre_inplace: &'a PodHookStrategy,
    post_inplace: &'a PodHookStrategy,
}

/// The part of a status that decisions rest on; the same for both kinds of workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Name of the revision that the template stands for.
    pub update_revision: String,
    /// Times that a revision's name was taken by another template.
    pub collision_count: i32,
    /// Index of the canary step; None without steps.
    pub step_index: Option<i32>,
    /// Hash of the step list.
    pub step_hash: Option<String>,
    /// Stable revision, pause, hook run, held replicas.
    pub canary: CanaryStatus,
    /// Why the operator paused.
    pub pause_conditions: Vec<PauseCondition>,
}

impl<'a> PodHooks<'a> {
    /// The strategy of a point; the canary's steps have theirs in the step list.
    fn strategy(&self, point: HookPoint) -> Option<&'a PodHookStrategy> {
        match point {
            HookPoint::PreDelete => Some(self.pre_delete),
            HookPoint::PreInplace => Some(self.pre_inplace),
            HookPoint::PostInplace => Some(self.post_inplace),
            HookPoint::Step => None,
        }
    }

    /// The hook of a point, if one is configured.
    pub fn hook(&self, point: HookPoint) -> Option<&'a HookStep> {
        self.strategy(point)?.hook.as_ref()
    }

    /// Points whose `retry` is set.
    pub fn retries(&self) -> Vec<HookPoint> {
        HookPoint::OF_PODS
            .into_iter()
            .filter(|point| self.strategy(*point).is_some_and(|strategy| strategy.retry))
            .collect()
    }
}

/// Why a workload cannot be planned for.
#[derive(Debug, thiserror::Error)]
pub enum InvalidWorkload {
    /// The selector is empty or cannot be read: it would take over every pod.
    #[error("spec.selector: {0}; name at least one label of the pods")]
    Selector(String),
}

impl<'a> Workload<'a> {
    /// Resolves a GameDeployment.
    pub fn of_game_deployment(gd: &'a GameDeployment) -> Result<Self, InvalidWorkload> {
        let spec = &gd.spec;
        let strategy = &spec.update_strategy;
        let replicas = i64::from(spec.replicas.unwrap_or(1)).max(0);
        let (max_unavailable, max_surge) = limits(
            strategy.max_unavailable.as_ref(),
            strategy.max_surge.as_ref(),
            replicas,
        );
        let status = gd.status.clone().unwrap_or_default();
        let own_selector = &spec.selector;
        let is_empty = own_selector
            .match_labels
            .as_ref()
            .is_none_or(BTreeMap::is_empty)
            && own_selector
                .match_expressions
                .as_ref()
                .is_none_or(Vec::is_empty);
        if is_empty {
            return Err(InvalidWorkload::Selector("is empty".to_owned()));
        }
        let selector = Selector::try_from(own_selector.clone())
            .map_err(|error| InvalidWorkload::Selector(error.to_string()))?;
        Ok(Self {
            kind: WorkloadKind::GameDeployment,
            namespace: gd.namespace().unwrap_or_default(),
            name: gd.name_any(),
            uid: gd.uid().unwrap_or_default(),
            generation: gd.metadata.generation.unwrap_or_default(),
            annotations: gd.annotations(),
            replicas,
            selector,
            template: &spec.template,
            min_ready: SignedDuration::from_secs(i64::from(spec.min_ready_seconds.max(0))),
            history_limit: usize::try_from(spec.revision_history_limit.unwrap_or(10)).unwrap_or(0),
            pods_to_delete: &spec.scale_strategy.pods_to_delete,
            update: strategy.type_,
            partition: partition(strategy.partition.as_ref(), replicas),
            max_unavailable,
            max_surge,
            paused: strategy.paused,
            resume_by_apply: !strategy.paused && paused_came_with_an_apply(&gd.metadata),
            grace: SignedDuration::from_secs(i64::from(
                strategy
                    .in_place_update_strategy
                    .grace_period_seconds
                    .max(0),
            )),
            policy: strategy.in_place_update_strategy.policy,
            steps: strategy
                .canary
                .as_ref()
                .map_or(&[], |canary| canary.steps.as_slice()),
            hooks: PodHooks {
                pre_delete: &spec.pre_delete_update_strategy,
                pre_inplace: &spec.pre_inplace_update_strategy,
                post_inplace: &spec.post_inplace_update_strategy,
            },
            progress: Progress {
                update_revision: status.update_revision,
                collision_count: status.collision_count,
                step_index: status.current_step_index,
                step_hash: status.current_step_hash,
                canary: status.canary,
                pause_conditions: status.pause_conditions,
            },
        })
    }

    /// The step list's hash; None without steps.
    pub fn step_hash(&self) -> Option<String> {
        if self.steps.is_empty() {
            return None;
        }
        let text = serde_json::to_vec(self.steps).unwrap_or_default();
        Some(names::safe_hash(&text))
    }

    /// The owner reference on everything that the workload controls.
    pub fn owner_reference(&self) -> Value {
        serde_json::json!({
            "apiVersion": crate::api::API_VERSION,
            "kind": self.kind.as_str(),
            "name": self.name,
            "uid": self.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }

    /// Whether higher node deletion costs go first.
    pub fn node_cost_descends(&self) -> bool {
        self.annotations
            .get(names::COST_SORT_METHOD)
            .is_some_and(|method| method == "descend")
    }
}

/// Pods of `replicas` that a partition keeps at the old revision.
///
/// A percentage is rounded up, but one below 100% updates at least one pod: who writes 90% of
/// three pods wants to see the new build somewhere.
pub fn partition(partition: Option<&IntOrString>, replicas: i64) -> i64 {
    match partition {
        None => 0,
        Some(IntOrString::Int(count)) => i64::from(*count).clamp(0, replicas),
        Some(text @ IntOrString::String(_)) => {
            let kept = resolve(text, replicas, true).clamp(0, replicas);
            let all = percent(text).is_none_or(|percent| percent >= 100);
            if all || kept < replicas {
                kept
            } else {
                (replicas - 1).max(0)
            }
        }
    }
}

/// maxUnavailable and maxSurge of `replicas`, never both 0 (as in a native Deployment).
fn limits(
    unavailable: Option<&IntOrString>,
    surge: Option<&IntOrString>,
    replicas: i64,
) -> (i64, i64) {
    let default = IntOrString::String("20%".to_owned());
    let surge = surge
        .map_or(0, |surge| resolve(surge, replicas, true))
        .max(0);
    let unavailable = resolve(unavailable.unwrap_or(&default), replicas, surge == 0).max(0);
    if surge == 0 && unavailable == 0 {
        (1, 0)
    } else {
        (unavailable, surge)
    }
}

fn percent(value: &IntOrString) -> Option<i64> {
    match value {
        IntOrString::String(text) => text.strip_suffix('%')?.trim().parse().ok(),
        IntOrString::Int(_) => None,
    }
}

/// A number, or a percentage of `total`. What is neither counts as 0; the schema refuses it.
fn resolve(value: &IntOrString, total: i64, round_up: bool) -> i64 {
    match value {
        IntOrString::Int(count) => i64::from(*count),
        IntOrString::String(text) => match percent(value) {
            Some(percent) if round_up => (percent * total + 99) / 100,
            Some(percent) => percent * total / 100,
            None => text.trim().parse().unwrap_or(0),
        },
    }
}

/// A duration: seconds as a number (also as text), or text such as 90s, 5m, 1h30m. None when it is
/// neither; the schema refuses it.
pub fn duration(value: &IntOrString) -> Option<SignedDuration> {
    match value {
        IntOrString::Int(seconds) => Some(SignedDuration::from_secs(i64::from(*seconds))),
        IntOrString::String(text) => match text.trim().parse::<i64>() {
            Ok(seconds) => Some(SignedDuration::from_secs(seconds)),
            Err(_) => parse_duration(text.trim()).ok(),
        },
    }
}

/// The earlier of two moments to wake at.
pub fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> IntOrString {
        IntOrString::String(value.to_owned())
    }

    #[test]
    fn partitions_are_resolved_as_users_expect() {
        for (value, replicas, kept) in [
            (IntOrString::Int(2), 5, 2),
            (IntOrString::Int(9), 5, 5),
            (text("50%"), 5, 3),
            (text("90%"), 3, 2),
            (text("100%"), 3, 3),
            (text("0%"), 3, 0),
            (text("99%"), 1, 0),
        ] {
            assert_eq!(
                partition(Some(&value), replicas),
                kept,
                "{value:?} of {replicas}"
            );
        }
        assert_eq!(partition(None, 5), 0);
    }

    #[test]
    fn limits_round_up_but_down_with_surge_and_are_never_both_zero() {
        for (unavailable, surge, replicas, expected) in [
            (None, None, 4, (1, 0)),
            (None, None, 10, (2, 0)),
            (None, None, 0, (1, 0)),
            (Some(text("25%")), Some(text("25%")), 5, (1, 2)),
            (
                Some(IntOrString::Int(0)),
                Some(IntOrString::Int(1)),
                5,
                (0, 1),
            ),
            (
                Some(IntOrString::Int(0)),
                Some(IntOrString::Int(0)),
                5,
                (1, 0),
            ),
        ] {
            assert_eq!(
                limits(unavailable.as_ref(), surge.as_ref(), replicas),
                expected,
                "{unavailable:?} {surge:?} of {replicas}"
            );
        }
    }

    #[test]
    fn durations_are_seconds_or_text() {
        for (value, seconds) in [
            (IntOrString::Int(60), Some(60)),
            (text("90s"), Some(90)),
            (text("5m"), Some(300)),
            (text("1h30m"), Some(5400)),
            (text("60"), Some(60)),
            (text("soon"), None),
        ] {
            assert_eq!(
                duration(&value).map(|it| it.as_secs()),
                seconds,
                "{value:?}"
            );
        }
    }
}

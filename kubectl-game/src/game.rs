//! A workload of either kind, in the form that `view` and `change` use. Defaults and percentages are resolved by the
//! operator's own code.

use std::collections::BTreeSet;

use gamekeeper_core::advice::Subject;
use gamekeeper_core::api::names::{self, HookPoint, WorkloadKind};
use gamekeeper_core::api::{
    CanaryStep, ContainerOrder, GameDeployment, GameStatefulSet, GameWorkload, PodHookStrategy,
    UpdateStrategyType, WhenImpossible, WorkloadStatus,
};
use gamekeeper_core::workload::{InvalidWorkload, OwnPause, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::Value;

use crate::kind::{full_name, short_name};

/// A workload.
#[derive(Clone, Debug)]
pub struct Game {
    pub kind: WorkloadKind,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub created: Option<Time>,
    pub deleting: bool,
    pub generation: i64,
    pub replicas: i64,
    pub paused: bool,
    /// The operator's own pause, unless it has ended. It holds the rollout although an apply has set `paused` to false.
    pub own_pause: Option<OwnPause>,
    pub update: UpdateStrategyType,
    pub order: ContainerOrder,
    pub when_impossible: WhenImpossible,
    /// The number of pods to keep at the stable revision; 0 if there are canary steps.
    pub partition: i64,
    /// Reserved ordinals.
    pub reserved: BTreeSet<i64>,
    pub steps: Vec<CanaryStep>,
    pub hooks: Vec<(HookPoint, PodHookStrategy)>,
    /// The pod template.
    pub template: Value,
    /// Selector of the pods.
    pub selector: String,
    /// Selector of the revisions.
    pub revision_selector: String,
    pub status: WorkloadStatus,
    /// The options of commands that reach it: its namespace, and how the user reached the cluster.
    pub options: String,
    /// The object as kubectl prints it.
    pub object: Value,
}

/// Why an object cannot be read as a workload.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("the object is not a valid object of {API}: {0}", API = gamekeeper_core::api::API_VERSION)]
    Form(#[from] serde_json::Error),
    #[error(transparent)]
    Invalid(#[from] InvalidWorkload),
}

impl Game {
    pub fn read(kind: WorkloadKind, object: Value) -> Result<Self, Unreadable> {
        match kind {
            WorkloadKind::GameDeployment => {
                let typed: GameDeployment = serde_json::from_value(object.clone())?;
                let resolved = Workload::of_game_deployment(&typed)?;
                Ok(Self::collect(&typed, &resolved, object))
            }
            WorkloadKind::GameStatefulSet => {
                let typed: GameStatefulSet = serde_json::from_value(object.clone())?;
                let resolved = Workload::of_game_stateful_set(&typed)?;
                Ok(Self::collect(&typed, &resolved, object))
            }
        }
    }

    fn collect<K: GameWorkload>(typed: &K, resolved: &Workload, object: Value) -> Self {
        let meta = typed.meta();
        let labels = resolved.match_labels.iter();
        let labels: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        let hooks = HookPoint::OF_PODS.into_iter().zip(typed.pod_hooks());
        Game {
            kind: K::KIND,
            namespace: resolved.namespace.clone(),
            name: resolved.name.clone(),
            uid: resolved.uid.clone(),
            created: typed.creation_timestamp(),
            deleting: meta.deletion_timestamp.is_some(),
            generation: resolved.generation,
            replicas: resolved.replicas,
            paused: resolved.paused,
            own_pause: OwnPause::of(resolved.annotations).filter(|pause| !pause.over),
            update: resolved.update,
            order: resolved.order,
            when_impossible: resolved.when_impossible,
            partition: resolved.partition,
            reserved: resolved.reserved.clone(),
            steps: resolved.steps.to_vec(),
            hooks: hooks.map(|(point, strategy)| (point, strategy.clone())).collect(),
            template: resolved.template.clone(),
            selector: resolved.selector.to_string(),
            revision_selector: labels.join(","),
            status: typed.status().map(|status| status.as_ref().clone()).unwrap_or_default(),
            options: format!(" -n {}", resolved.namespace),
            object,
        }
    }

    /// The workload, for commands about it.
    pub fn subject(&self) -> Subject {
        Subject {
            workload: self.short_name(),
            options: self.options.clone(),
            is_rolling: self.is_rolling() && !self.status.canary.revision.is_empty(),
            is_guarded: self.status.protection.is_some(),
        }
    }

    /// A command of the plugin about this workload, as it is typed.
    pub fn command(&self, verb: &str) -> String {
        let (verb, option) = verb.split_once(' ').unwrap_or((verb, ""));
        let option = if option.is_empty() { String::new() } else { format!(" {option}") };
        format!("kubectl game {verb} {}{option}{}", self.short_name(), self.options)
    }

    /// The workload's name as kubectl prints it.
    pub fn full_name(&self) -> String {
        full_name(self.kind, &self.name)
    }

    /// The workload's name as users type it.
    pub fn short_name(&self) -> String {
        short_name(self.kind, &self.name)
    }

    /// Whether the status describes the latest spec.
    pub fn is_observed(&self) -> bool {
        self.status.observed_generation >= self.generation && self.status.observed_generation > 0
    }

    /// Whether the ordinal of this pod is reserved.
    pub fn is_reserved(&self, pod: &str) -> bool {
        let ordinal = names::ordinal_after(&format!("{}-", self.name), pod);
        ordinal.is_some_and(|ordinal| self.reserved.contains(&ordinal))
    }

    /// The first few reserved ordinals as text, and how many more there are; None if there are none.
    pub fn reserved_ordinals(&self) -> Option<String> {
        const SHOWN: usize = 10;
        let shown = self.reserved.iter().take(SHOWN).map(i64::to_string);
        let shown = shown.collect::<Vec<_>>().join(", ");
        match self.reserved.len() {
            0 => None,
            all if all > SHOWN => Some(format!("{shown} and {} more", all - SHOWN)),
            _ => Some(shown),
        }
    }

    /// The number of completed canary steps; None if there are no steps.
    pub fn step_index(&self) -> Option<usize> {
        let index = self.status.current_step_index;
        let index = index.filter(|_| !self.steps.is_empty())?;
        usize::try_from(index).ok()
    }

    /// The current canary step; None after the last one.
    pub fn step(&self) -> Option<(usize, &CanaryStep)> {
        let index = self.step_index()?;
        Some((index, self.steps.get(index)?))
    }

    /// Whether a rollout is in progress. Until a pod of the first revision has been available, there is none.
    pub fn is_rolling(&self) -> bool {
        let stable = &self.status.canary.revision;
        !stable.is_empty() && *stable != self.status.update_revision
    }

    /// Whether the rollout is paused, whatever an apply has set.
    pub fn is_paused(&self) -> bool {
        self.paused || self.own_pause.is_some() && !self.status.pause_conditions.is_empty()
    }

    /// Whether the workload was paused by a user, not by a canary step. While the operator begins or ends its own pause,
    /// the annotation may be there without a pause condition.
    pub fn is_paused_by_user(&self) -> bool {
        self.paused && self.own_pause.is_none() && self.status.pause_conditions.is_empty()
    }

    pub fn has_hook(&self, point: HookPoint) -> bool {
        let mut hooks = self.hooks.iter();
        hooks.any(|(other, strategy)| *other == point && strategy.hook.is_some())
    }

    /// The images of a pod template. Those of init containers come last.
    pub fn images_of(template: &Value) -> Vec<&str> {
        let lists = ["/spec/containers", "/spec/initContainers"].into_iter();
        let containers = lists.filter_map(|list| template.pointer(list)?.as_array());
        let images = containers.flatten().filter_map(|it| it.get("image")?.as_str());
        images.collect()
    }
}

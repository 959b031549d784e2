//! A workload of either kind as views and changes read it, resolved by the operator's own code: what
//! "20%" of how many pods is, is decided in one place.

use gamekeeper_core::api::names::{HookPoint, WorkloadKind};
use gamekeeper_core::api::{
    CanaryStep, GameDeployment, GameStatefulSet, GameStatefulSetUpdateType, GameWorkload,
    InPlacePolicy, PodHookStrategy, WorkloadStatus,
};
use gamekeeper_core::plan::{InvalidWorkload, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::Value;

use crate::kind::{full_name, short_name};

/// A workload.
#[derive(Clone, Debug)]
pub struct Game {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// When it was made.
    pub created: Option<Time>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// metadata.generation.
    pub generation: i64,
    /// Pods wanted.
    pub replicas: i64,
    /// spec.updateStrategy.paused.
    pub paused: bool,
    /// How pods are updated.
    pub update: GameStatefulSetUpdateType,
    /// What becomes of a change that cannot be made in place.
    pub policy: InPlacePolicy,
    /// Pods that stay at the old revision once the steps are over.
    pub partition: i64,
    /// Canary steps.
    pub steps: Vec<CanaryStep>,
    /// Hooks in a pod's life.
    pub hooks: Vec<(HookPoint, PodHookStrategy)>,
    /// The pod template.
    pub template: Value,
    /// Selector of its pods.
    pub selector: String,
    /// Selector of its revisions.
    pub revision_selector: String,
    /// Status, as far as both kinds have it.
    pub status: WorkloadStatus,
    /// The object as the API server gave it.
    pub object: Value,
}

/// Why an object cannot be read as a workload.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Its form is not that of this version.
    #[error("the object is not a valid object of {API}: {0}", API = gamekeeper_core::api::API_VERSION)]
    Form(#[from] serde_json::Error),
    /// The operator refuses it too.
    #[error(transparent)]
    Invalid(#[from] InvalidWorkload),
}

impl Game {
    /// Reads an object of that kind.
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
        let labels: Vec<String> = labels
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
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
            update: resolved.update,
            policy: resolved.policy,
            partition: resolved.partition,
            steps: resolved.steps.to_vec(),
            hooks: hooks
                .map(|(point, strategy)| (point, strategy.clone()))
                .collect(),
            template: resolved.template.clone(),
            selector: resolved.selector.to_string(),
            revision_selector: labels.join(","),
            status: typed
                .status()
                .map(|status| status.as_ref().clone())
                .unwrap_or_default(),
            object,
        }
    }

    /// As kubectl names it.
    pub fn full_name(&self) -> String {
        full_name(self.kind, &self.name)
    }

    /// As one types it.
    pub fn short_name(&self) -> String {
        short_name(self.kind, &self.name)
    }

    /// The resourceVersion that it was read at.
    pub fn version(&self) -> &str {
        let version = self.object.pointer("/metadata/resourceVersion");
        version.and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether the status is about the newest spec.
    pub fn is_observed(&self) -> bool {
        self.status.observed_generation >= self.generation && self.status.observed_generation > 0
    }

    /// Index of the canary step where it stands; None without steps.
    pub fn step_index(&self) -> Option<usize> {
        let index = self
            .status
            .current_step_index
            .filter(|_| !self.steps.is_empty())?;
        usize::try_from(index).ok()
    }

    /// The canary step where it stands; None when they are over.
    pub fn step(&self) -> Option<(usize, &CanaryStep)> {
        let index = self.step_index()?;
        Some((index, self.steps.get(index)?))
    }

    /// Whether the update revision is not the stable one yet.
    pub fn is_rolling(&self) -> bool {
        self.status.update_revision != self.status.canary.revision
    }

    /// Whether a user paused it, and not the operator at a canary step.
    pub fn is_paused_by_user(&self) -> bool {
        self.paused && self.status.pause_conditions.is_empty()
    }

    /// Whether there is a hook at this point of a pod's life.
    pub fn has_hook(&self, at: HookPoint) -> bool {
        let mut hooks = self.hooks.iter();
        hooks.any(|(point, strategy)| *point == at && strategy.hook.is_some())
    }

    /// Images of a pod template, by container, those of init containers last.
    pub fn images_of(template: &Value) -> Vec<&str> {
        let lists = ["/spec/containers", "/spec/initContainers"].into_iter();
        let containers = lists.filter_map(|list| template.pointer(list)?.as_array());
        let images = containers
            .flatten()
            .filter_map(|it| it.get("image")?.as_str());
        images.collect()
    }
}

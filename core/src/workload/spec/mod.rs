//! A workload as the planner reads it: percentages resolved, defaults filled in, hooks by hook point.
//!
//! Everything is resolved once, here, so that no rule has to know what a percentage refers to, or in which of two
//! fields a limit is set.

pub(super) mod guarded;
pub(super) mod identity;
mod manifest_resume;
mod waits;

pub use manifest_resume::managed_fields_to_keep;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use serde_json::Value;

use crate::api::names::{self, HookPoint, WorkloadKind};
use crate::api::{
    CanaryStatus, CanaryStep, ContainerOrder, GameDeployment, GameStatefulSet, GameWorkload,
    HookStep, InPlaceUpdateStrategy, IndexRange, InvalidIndexRange, MAX_REVISION_HISTORY,
    OnNodeGoing, PauseCondition, PodHookStrategy, UpdateStrategyType, VacatedName, WhenImpossible,
    WorkloadStatus,
};
use crate::observed::limits::{batch, limits, partition};
use crate::observed::{Pod, RevisionName};
use crate::workload::decision::{Blocked, Failures};
use crate::workload::spec::guarded::{GuardMarks, Guarded};
use crate::workload::spec::identity::Identity;
use crate::workload::spec::manifest_resume::paused_came_with_an_apply;
use crate::write::Attempt;
pub(super) use waits::Waits;

/// The default of spec.progressDeadlineSeconds, as of a Deployment.
const PROGRESS_DEADLINE: i32 = 600;

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
    /// Desired number of pods.
    pub replicas: i64,
    /// Selects its pods.
    pub selector: Selector,
    /// The selector's matchLabels.
    pub match_labels: BTreeMap<String, String>,
    /// The pod template, without nulls.
    pub template: Value,
    /// The length of the pod template, in bytes of JSON.
    pub template_bytes: usize,
    /// How long a pod must be ready to be available.
    pub min_ready: SignedDuration,
    /// How long a pod may be unready.
    pub progress_deadline: SignedDuration,
    /// Old revisions to keep.
    pub history_limit: usize,
    /// spec.scaleStrategy.podsToDelete.
    pub pods_to_delete: &'a [String],
    /// The same names as a set, for fast lookups: the list may name every pod.
    named: HashSet<&'a str>,
    /// How many of the first pods may exist without being available yet; None if unlimited. Applies only to the initial
    /// creation of the workload's pods.
    pub create_batch: Option<i64>,
    /// How pods are updated.
    pub update: UpdateType,
    /// Pods to keep at the stable revision; 0 if there are canary steps, which specify partitions themselves.
    pub partition: i64,
    /// Pods that may be unavailable.
    pub max_unavailable: i64,
    /// Pods that may exist above replicas.
    pub max_surge: i64,
    /// spec.updateStrategy.paused.
    pub paused: bool,
    /// Why updates are held: a write that the rollout depends on was refused, and is not attempted for a moment. The
    /// rollout is treated as paused meanwhile, so that scaling and replacements go on.
    pub held: Option<Blocked>,
    /// Whether `paused: false` came with an apply, which does not end a pause by the operator.
    pub resume_by_apply: bool,
    /// Time between closing the gate and changing the pod.
    pub grace: SignedDuration,
    /// The order in which the containers of a pod get their new images.
    pub order: ContainerOrder,
    /// What to do with a change that cannot be made in place.
    pub when_impossible: WhenImpossible,
    /// Whether new pods get the readiness gate of in-place updates.
    pub gated: bool,
    /// Canary steps.
    pub steps: &'a [CanaryStep],
    /// The hooks of its pods, by hook point.
    pub hooks: PodHooks<'a>,
    /// Whether its pods are replaced when their node is going to be removed.
    pub moves_off_nodes: bool,
    /// How its pods are guarded against other clients, if they are.
    pub guarded: Option<Guarded>,
    /// Whether its pods are unguarded although its spec requests the guard.
    pub lacks_guard: bool,
    /// What its metadata shows about the guard of its pods.
    pub guard_marks: GuardMarks,
    /// The progress of the rollout, as the last status recorded it.
    pub progress: Progress,
    /// Since when its pods have waited for their deletion, as the last status recorded it.
    pub waits: Waits,
    /// The identities of its pods; None if its pods are interchangeable.
    pub identity: Option<Identity<'a>>,
    /// Ordinals for which no pod is created.
    pub reserved: BTreeSet<i64>,
    /// The range of its pods' indexes; None if they have no indexes, an error if its annotation is invalid.
    pub indexes: Result<Option<IndexRange>, InvalidIndexRange>,
}

/// How pods are updated.
pub(super) type UpdateType = UpdateStrategyType;

/// The hooks of a workload's pods, by hook point.
#[derive(Clone, Copy)]
pub struct PodHooks<'a> {
    pre_delete: &'a PodHookStrategy,
    pre_inplace: &'a PodHookStrategy,
    post_inplace: &'a PodHookStrategy,
}

/// The part of a status that decisions depend on; the same for both kinds of workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Name of the revision of the template.
    pub update_revision: String,
    /// How often a new revision's name was already taken by another template.
    pub collision_count: i32,
    /// Index of the current canary step; None if there are no steps.
    pub step_index: Option<i32>,
    /// Hash of the step list.
    pub step_hash: Option<String>,
    /// Stable revision, pause, hook run, held replicas.
    pub canary: CanaryStatus,
    /// Why the operator paused the rollout.
    pub pause_conditions: Vec<PauseCondition>,
    /// Whether the first pods are still being created, in batches.
    pub creating_in_batches: bool,
    /// Number of surge pods that the update and requested replacements use now.
    pub surge: i64,
    /// Names of pods that left their nodes. These names stay free for some time.
    pub vacated: Vec<VacatedName>,
}

impl Progress {
    /// The part of a status that decisions depend on.
    pub fn of(status: &WorkloadStatus) -> Self {
        let vacated = status.protection.as_ref().map(|it| &it.vacated);
        Self {
            update_revision: status.update_revision.clone(),
            collision_count: status.collision_count,
            step_index: status.current_step_index,
            step_hash: status.current_step_hash.clone(),
            canary: status.canary.clone(),
            pause_conditions: status.pause_conditions.clone(),
            creating_in_batches: status.creating_in_batches,
            surge: i64::from(status.surge_replicas),
            vacated: vacated.cloned().unwrap_or_default(),
        }
    }

    /// The update revision.
    pub fn update(&self) -> RevisionName<'_> {
        RevisionName::of(&self.update_revision)
    }

    /// The stable revision; None when the status shows none.
    pub fn stable(&self) -> Option<RevisionName<'_>> {
        let name = self.canary.revision.as_str();
        (!name.is_empty()).then_some(RevisionName::of(name))
    }

    /// Whether all canary steps are completed; `steps` is their number.
    pub fn is_past(&self, steps: usize) -> bool {
        let is_past = |index| usize::try_from(index).is_ok_and(|index| index >= steps);
        self.step_index.map_or(steps == 0, is_past)
    }
}

impl<'a> PodHooks<'a> {
    /// The strategy of a hook point; None for canary steps, whose hooks are in the step list.
    fn strategy(&self, point: HookPoint) -> Option<&'a PodHookStrategy> {
        match point {
            HookPoint::PreDelete => Some(self.pre_delete),
            HookPoint::PreInplace => Some(self.pre_inplace),
            HookPoint::PostInplace => Some(self.post_inplace),
            HookPoint::Step => None,
        }
    }

    /// The hook of a hook point, if one is configured.
    pub fn hook(&self, point: HookPoint) -> Option<&'a HookStep> {
        self.strategy(point)?.hook.as_ref()
    }

    /// Hook points with `retry: true`.
    pub fn points_to_retry(&self) -> Vec<HookPoint> {
        HookPoint::OF_PODS
            .into_iter()
            .filter(|point| self.strategy(*point).is_some_and(|strategy| strategy.retry))
            .collect()
    }
}

/// Why no plan can be made for a workload.
#[derive(Debug, thiserror::Error)]
pub enum InvalidWorkload {
    /// The selector is invalid, or is empty and would adopt every pod.
    #[error("spec.selector: {0}; name at least one label of the pods")]
    Selector(String),
}

/// Fields whose location in the spec differs between the two kinds.
struct Spec<'a> {
    replicas: Option<i32>,
    min_ready_seconds: i32,
    progress_deadline_seconds: Option<i32>,
    history_limit: Option<i32>,
    pods_to_delete: &'a [String],
    create_batch: Option<&'a IntOrString>,
    update: UpdateType,
    partition: Option<&'a IntOrString>,
    max_unavailable: Option<&'a IntOrString>,
    /// The default of maxUnavailable.
    default_unavailable: IntOrString,
    max_surge: Option<&'a IntOrString>,
    paused: bool,
    in_place: &'a InPlaceUpdateStrategy,
    disable_readiness_gate: bool,
    identity: Option<Identity<'a>>,
    reserved: &'a [i32],
    indexes: Result<Option<IndexRange>, InvalidIndexRange>,
}

/// A template without its nulls, which mean the same as absent fields: server-side apply stores the empty fields of a
/// manifest as nulls, and no rule should have to know that. Nulls in lists keep their places.
fn without_nulls(template: Value) -> Value {
    match template {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// The number of old revisions to keep. A workload that was stored before there was a maximum may exceed it.
fn history_limit(limit: Option<i32>) -> usize {
    let limit = limit.unwrap_or(10).min(MAX_REVISION_HISTORY);
    usize::try_from(limit).unwrap_or(0)
}

/// Whether maxSurge has an effect with this update type.
fn has_surge(update: UpdateType) -> bool {
    match update {
        UpdateType::RollingUpdate | UpdateType::InplaceUpdate => true,
        UpdateType::HotPatchUpdate | UpdateType::OnDelete => false,
    }
}

impl<'a> Workload<'a> {
    /// A command of the plugin about this workload, complete, for messages: a verb, and what follows the name.
    pub fn command(&self, verb: &str, options: &str) -> String {
        let Self { kind, name, namespace, .. } = self;
        format!("kubectl game {verb} {}/{name}{options} -n {namespace}", kind.short())
    }

    /// Resolves a GameDeployment.
    pub fn of_game_deployment(gd: &'a GameDeployment) -> Result<Self, InvalidWorkload> {
        let spec = &gd.spec;
        let strategy = &spec.update_strategy;
        let fields = Spec {
            replicas: spec.replicas,
            min_ready_seconds: spec.min_ready_seconds,
            progress_deadline_seconds: spec.progress_deadline_seconds,
            history_limit: spec.revision_history_limit,
            pods_to_delete: &spec.scale_strategy.pods_to_delete,
            create_batch: spec.scale_strategy.create_batch.as_ref(),
            update: strategy.type_,
            partition: strategy.partition.as_ref(),
            max_unavailable: strategy.max_unavailable.as_ref(),
            default_unavailable: IntOrString::String("20%".to_owned()),
            max_surge: strategy.max_surge.as_ref(),
            paused: strategy.paused,
            in_place: &strategy.in_place_update_strategy,
            disable_readiness_gate: spec.disable_readiness_gate,
            identity: None,
            reserved: &[],
            indexes: IndexRange::of(gd.annotations()),
        };
        Self::resolve(gd, fields)
    }

    /// Resolves a GameStatefulSet. Its limits may be in `updateStrategy.rollingUpdate`, which takes precedence, or in
    /// `updateStrategy` itself.
    pub fn of_game_stateful_set(gsts: &'a GameStatefulSet) -> Result<Self, InvalidWorkload> {
        let spec = &gsts.spec;
        let strategy = &spec.update_strategy;
        let rolling = strategy.rolling_update.as_ref();
        let identity = Identity::of(gsts);
        let fields = Spec {
            replicas: spec.replicas,
            min_ready_seconds: spec.min_ready_seconds,
            progress_deadline_seconds: spec.progress_deadline_seconds,
            history_limit: spec.revision_history_limit,
            pods_to_delete: &[],
            create_batch: spec.scale_strategy.create_batch.as_ref().filter(|_| !identity.ordered),
            update: strategy.type_,
            partition: rolling.and_then(|it| it.partition.as_ref()).or(strategy.partition.as_ref()),
            max_unavailable: rolling
                .and_then(|it| it.max_unavailable.as_ref())
                .or(strategy.max_unavailable.as_ref()),
            default_unavailable: match identity.ordered {
                true => IntOrString::Int(1),
                false => IntOrString::String("25%".to_owned()),
            },
            max_surge: rolling
                .and_then(|it| it.max_surge.as_ref())
                .or(strategy.max_surge.as_ref())
                .filter(|_| !identity.ordered),
            paused: strategy.paused,
            in_place: &strategy.in_place_update_strategy,
            disable_readiness_gate: spec.disable_readiness_gate,
            identity: Some(identity),
            reserved: &spec.reserve_orders,
            indexes: Ok(None),
        };
        Self::resolve(gsts, fields)
    }

    /// The workload as this plan treats it, given the writes that were refused.
    pub fn held_by(mut self, failures: &Failures, now: Timestamp) -> Self {
        let depends_on = [Attempt::SteerRollout, Attempt::RecordRevision].into_iter();
        self.held = depends_on.filter_map(|attempt| failures.holds(attempt, now)).next();
        self.paused |= self.held.is_some();
        self
    }

    fn resolve<K: GameWorkload>(object: &'a K, spec: Spec<'a>) -> Result<Self, InvalidWorkload> {
        let replicas = i64::from(spec.replicas.unwrap_or(1)).max(0);
        let (max_unavailable, max_surge) = limits(
            spec.max_unavailable.unwrap_or(&spec.default_unavailable),
            spec.max_surge.filter(|_| has_surge(spec.update)),
            replicas,
        );
        let [pre_delete, pre_inplace, post_inplace] = object.pod_hooks();
        let steps = object.canary().map_or(&[][..], |canary| &canary.steps);
        Ok(Self {
            kind: K::KIND,
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            generation: object.meta().generation.unwrap_or_default(),
            annotations: object.annotations(),
            replicas,
            selector: selector(object.label_selector())?,
            match_labels: object.label_selector().match_labels.clone().unwrap_or_default(),
            template: without_nulls(object.pod_template().parse()),
            template_bytes: object.pod_template().text().len(),
            min_ready: seconds(spec.min_ready_seconds),
            progress_deadline: seconds(spec.progress_deadline_seconds.unwrap_or(PROGRESS_DEADLINE)),
            history_limit: history_limit(spec.history_limit),
            pods_to_delete: spec.pods_to_delete,
            named: spec.pods_to_delete.iter().map(String::as_str).collect(),
            create_batch: spec.create_batch.map(|size| batch(size, replicas)),
            update: spec.update,
            partition: partition(spec.partition.filter(|_| steps.is_empty()), replicas),
            max_unavailable,
            max_surge,
            paused: spec.paused,
            held: None,
            resume_by_apply: !spec.paused && paused_came_with_an_apply(object.meta()),
            grace: seconds(spec.in_place.grace_period_seconds),
            order: spec.in_place.policy,
            when_impossible: spec.in_place.when_impossible,
            gated: spec.update == UpdateType::InplaceUpdate && !spec.disable_readiness_gate,
            steps,
            hooks: PodHooks { pre_delete, pre_inplace, post_inplace },
            moves_off_nodes: object
                .protection()
                .is_some_and(|it| it.on_node_going == OnNodeGoing::Move),
            guarded: Guarded::of(object),
            lacks_guard: false,
            guard_marks: GuardMarks::of(object.meta()),
            progress: object
                .status()
                .map(|status| Progress::of(status.as_ref()))
                .unwrap_or_default(),
            waits: object.status().map(|status| Waits::of(status.as_ref())).unwrap_or_default(),
            identity: spec.identity,
            reserved: spec.reserved.iter().copied().map(i64::from).collect(),
            indexes: spec.indexes,
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
    pub fn owner_reference(&self) -> OwnerReference {
        self.kind.owner_reference(&self.name, &self.uid)
    }

    /// The owner reference on its HookRuns. A foreground deletion of the workload must not delete runs that are
    /// created while it is in progress, because they decide when its pods may be deleted.
    pub fn owner_of_runs(&self) -> OwnerReference {
        OwnerReference {
            block_owner_deletion: Some(!self.guard_marks.deleting),
            ..self.owner_reference()
        }
    }

    /// Whether this workload should control a pod: the selector matches the pod and, if the workload's pods have
    /// ordinals, the pod's name contains one.
    pub fn is_member(&self, pod: &Pod) -> bool {
        let name_fits = self.identity.is_none() || self.ordinal(pod).is_some();
        name_fits && self.selector.matches(&pod.labels)
    }

    /// Whether a pod's ordinal is reserved.
    pub fn is_reserved(&self, pod: &Pod) -> bool {
        let ordinal = self.ordinal(pod);
        ordinal.is_some_and(|ordinal| self.reserved.contains(&ordinal))
    }

    /// Whether the replacement of a pod was requested: podsToDelete names it, or a move was requested.
    pub fn replacement_requested(&self, pod: &Pod) -> bool {
        self.is_in_pods_to_delete(pod) || pod.move_requested.is_some()
    }

    /// Whether podsToDelete names a pod.
    pub fn is_in_pods_to_delete(&self, pod: &Pod) -> bool {
        self.named.contains(pod.name.as_str())
    }

    /// Whether pods with a higher deletion cost are deleted first.
    pub fn pod_cost_descends(&self) -> bool {
        self.annotations.get(names::COST_SORT_METHOD).is_some_and(|method| method == "descend")
    }
}

fn selector(label_selector: &LabelSelector) -> Result<Selector, InvalidWorkload> {
    let selector = Selector::try_from(label_selector.clone())
        .map_err(|error| InvalidWorkload::Selector(error.to_string()))?;
    if selector.selects_all() {
        return Err(InvalidWorkload::Selector("is empty".to_owned()));
    }
    Ok(selector)
}

/// A number of seconds from the spec. The schema refuses negative numbers; one that is stored nevertheless is treated
/// as 0.
fn seconds(seconds: i32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(seconds.max(0)))
}

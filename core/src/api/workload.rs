//! The common interface of GameDeployment and GameStatefulSet.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;
use kube::core::Selector;
use kube::core::object::HasStatus;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::names::{FORCE_DELETE_ON_LOST_NODES, WorkloadKind};
use super::{
    CanaryStrategy, GameDeployment, GameStatefulSet, JsonText, PodHookStrategy, Protection,
    UpdateStrategyType, WorkloadStatus,
};

/// The largest `revisionHistoryLimit`. Every replica keeps all revisions of all workloads.
pub(crate) const MAX_REVISION_HISTORY: i32 = 100;

/// A workload of either kind.
pub trait GameWorkload:
    Resource<DynamicType = ()>
    + HasStatus<
        Status: Serialize
                    + Clone
                    + Debug
                    + Default
                    + PartialEq
                    + AsRef<WorkloadStatus>
                    + Send
                    + Sync,
    > + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// The kind.
    const KIND: WorkloadKind;

    /// The selector of its pods, unparsed.
    fn label_selector(&self) -> &LabelSelector;

    /// The pod template.
    fn pod_template(&self) -> &JsonText;

    /// The claim templates of its pods.
    fn claim_templates(&self) -> &[JsonText];

    /// The hooks of [`HookPoint::OF_PODS`](super::names::HookPoint::OF_PODS), in that order.
    fn pod_hooks(&self) -> [&PodHookStrategy; 3];

    /// How its pods are protected.
    fn protection(&self) -> Option<&Protection>;

    /// The canary steps.
    fn canary(&self) -> Option<&CanaryStrategy>;

    /// How its pods are updated.
    fn update_type(&self) -> UpdateStrategyType;

    /// Whether spec.updateStrategy.paused is true.
    fn is_paused(&self) -> bool;

    /// The selector of its pods. None if it is invalid or empty; an empty selector would select all pods.
    fn selector(&self) -> Option<Selector> {
        let selector = Selector::try_from(self.label_selector().clone()).ok()?;
        (!selector.selects_all()).then_some(selector)
    }

    /// The names of its claim templates, which are also those of the pods' volumes.
    fn claim_template_names(&self) -> impl Iterator<Item = String> {
        let templates = self.claim_templates().iter();
        let heads = templates.map(|template| template.read::<TemplateHead>().metadata);
        heads.map(|metadata| metadata.and_then(|it| it.name).unwrap_or_default())
    }

    /// The prefixes of its claims' names; the ordinal follows.
    fn claim_prefixes(&self) -> impl Iterator<Item = String> {
        let workload = self.meta().name.as_deref().unwrap_or_default();
        let names = self.claim_template_names();
        names.map(move |name| format!("{name}-{workload}-"))
    }

    /// Whether the workload's pods on lost nodes are force-deleted.
    fn forces_pods_off_lost_nodes(&self) -> bool {
        let template: TemplateHead = self.pod_template().read();
        let annotations = template.metadata.and_then(|it| it.annotations).unwrap_or_default();
        let annotation = annotations.get(FORCE_DELETE_ON_LOST_NODES);
        annotation.is_some_and(|it| it.as_deref() == Some("true"))
    }

    /// The names of its HookTemplates.
    fn hook_templates(&self) -> BTreeSet<&str> {
        let pod_hooks = self.pod_hooks().into_iter();
        let pod_hooks = pod_hooks.filter_map(|strategy| strategy.hook.as_ref());
        let steps = self.canary().map_or(&[][..], |canary| &canary.steps);
        let step_hooks = steps.iter().filter_map(|step| step.hook.as_ref());
        pod_hooks.chain(step_hooks).map(|hook| hook.template_name.as_str()).collect()
    }
}

/// The metadata of a template. Each field and annotation may be null.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TemplateHead {
    metadata: Option<TemplateMetadata>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TemplateMetadata {
    name: Option<String>,
    annotations: Option<BTreeMap<String, Option<String>>>,
}

/// Implements [`GameWorkload`] for a kind. The fields have the same names in both kinds, except that only a
/// GameStatefulSet has claim templates.
macro_rules! game_workload {
    ($kind:ident, $spec:ident => $claim_templates:expr) => {
        impl GameWorkload for $kind {
            const KIND: WorkloadKind = WorkloadKind::$kind;

            fn label_selector(&self) -> &LabelSelector {
                &self.spec.selector
            }

            fn pod_template(&self) -> &JsonText {
                &self.spec.template
            }

            fn claim_templates(&self) -> &[JsonText] {
                let $spec = &self.spec;
                $claim_templates
            }

            fn pod_hooks(&self) -> [&PodHookStrategy; 3] {
                let spec = &self.spec;
                [
                    &spec.pre_delete_update_strategy,
                    &spec.pre_inplace_update_strategy,
                    &spec.post_inplace_update_strategy,
                ]
            }

            fn protection(&self) -> Option<&Protection> {
                self.spec.protection.as_ref()
            }

            fn canary(&self) -> Option<&CanaryStrategy> {
                self.spec.update_strategy.canary.as_ref()
            }

            fn update_type(&self) -> UpdateStrategyType {
                self.spec.update_strategy.type_
            }

            fn is_paused(&self) -> bool {
                self.spec.update_strategy.paused
            }
        }
    };
}

game_workload!(GameDeployment, _spec => &[]);
game_workload!(GameStatefulSet, spec => &spec.volume_claim_templates);

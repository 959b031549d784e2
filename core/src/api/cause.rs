//! The causes in a workload's status: why it is not yet, or no longer, what its spec describes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::HookPoint;

/// One cause for a workload not being what its spec describes. Pods that wait for the same thing have one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// What is waited for, in CamelCase. docs/status.md lists all reasons.
    pub reason: String,
    /// The cause as a sentence. Of several pods, it names the one that has waited longest.
    pub message: String,
    /// Who can change it.
    pub actor: Actor,
    /// Since when.
    pub since: Time,
    /// When it ends, or is tried again, without anyone acting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The pods: the ten that have waited longest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub pods: Vec<String>,
    /// The number of pods.
    #[serde(default, skip_serializing_if = "super::hook_run::is_zero")]
    pub pod_count: i32,
    /// The container of the first pod, if the cause concerns a container.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// The node, if the cause is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The hook point, if the cause is a hook.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hook_point: String,
}

/// Who can change a cause.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Actor {
    /// A person who applies the workload's manifest, or administers the cluster.
    User,
    /// The game: its hook, or its probe.
    Game,
    /// The node, its kubelet, or what adds nodes.
    Node,
    /// Nobody: it goes on by itself.
    Nobody,
}

impl Cause {
    /// The largest number of pods that a cause names.
    pub const MAX_PODS: usize = 10;

    /// The hook point, if the cause is a hook.
    pub fn point(&self) -> Option<HookPoint> {
        let mut points = HookPoint::OF_PODS.into_iter().chain([HookPoint::Step]);
        points.find(|point| point.as_str() == self.hook_point)
    }

    /// The message, with the number of pods that it does not name.
    pub fn sentence(&self) -> String {
        match self.pod_count {
            count if count > 1 => {
                let more = usize::try_from(count - 1).unwrap_or(0);
                let more = crate::text::counted(more, "more pod", "more pods");
                format!("{} ({more} too)", self.message)
            }
            _ => self.message.clone(),
        }
    }
}

//! What all histories of a run share: the policy of the chart, the operator's account and two PriorityClasses.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::addons::policy::{install_where, release, uninstall};
use crate::case::Case;
use crate::cluster::control_plane::ControlPlane;
use crate::wait::eventually;

/// How long to wait for a condition.
const LIMIT: Duration = Duration::from_secs(60);
/// The PriorityClass of pods that need a whole node.
pub(super) const RIVAL_CLASS: &str = "campaign-rival";
/// The PriorityClass of guarded pods.
pub(super) const GUARDED_CLASS: &str = "campaign-guarded";
/// The label of the namespaces in which the policy is in force.
const LABEL: &str = "guard-campaign";

/// A namespace with the operator's account, and the policy for the namespaces of histories.
pub struct Stage {
    system: Case,
    label: String,
}

impl Stage {
    /// Installs what all histories share. The operator's account has a separate namespace, because a history may delete
    /// the namespace that it is played in.
    pub async fn install(plane: &'static ControlPlane, name: &str, folder: &Path) -> Result<Self> {
        let system = Case::prepare(plane, name, folder).await?;
        let label = release(&system);
        let class = |name: &str, value: i32, preempts: &str| {
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name}, "value": value, "preemptionPolicy": preempts,
            })
        };
        let classes = [
            class(RIVAL_CLASS, 1_000, "PreemptLowerPriority"),
            class(GUARDED_CLASS, 2_000, "Never"),
        ];
        // Another test may create the classes at the same time.
        let apply = async || plane.apply(&classes).await;
        eventually("the classes exist", LIMIT, apply).await?;
        let selector = json!({"matchLabels": {LABEL: label}});
        install_where(&system, "admission.guardedPods=true", "guard", &selector).await?;
        Ok(Stage { system, label })
    }

    /// The control plane.
    pub(super) fn plane(&self) -> &'static ControlPlane {
        self.system.plane()
    }

    /// The namespace of the operator's account.
    pub(super) fn namespace(&self) -> &str {
        &self.system.namespace
    }

    /// Puts the policy in force in a namespace.
    pub(super) async fn include(&self, namespace: &str) -> Result<()> {
        let label = format!("{LABEL}={}", self.label);
        let args = ["label", "namespace", namespace, &label];
        self.plane().kubectl(&args, "").await?;
        Ok(())
    }

    /// Removes the policy.
    pub async fn remove_policy(&self) -> Result<()> {
        uninstall(&self.system, "guard").await
    }
}

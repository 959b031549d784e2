//! The PodDisruptionBudget that guards the pods of a workload against evictions.

use serde_json::json;

use crate::api::names::{GUARDED_LABEL, budget_name};
use crate::workload::spec::Workload;
use crate::write::Budget;

/// The budget of a workload.
///
/// It selects by the label alone, so that a pod that a user released can be evicted. Its minAvailable is greater than
/// any number of pods. It does not use maxUnavailable 0, because that would allow the eviction of any one pod while a
/// pod waits to be scaled in. The policy is IfHealthyBudget, because a pod that is not ready may be full of players.
/// The budget has no owner, because a foreground deletion of the owner would delete the budget immediately.
pub(super) fn budget(workload: &Workload) -> Budget {
    let Workload { namespace, name, uid, .. } = workload;
    let name = budget_name(name, uid);
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace, "labels": {GUARDED_LABEL: uid}},
        "spec": {
            "minAvailable": i32::MAX,
            "unhealthyPodEvictionPolicy": "IfHealthyBudget",
            "selector": {"matchLabels": {GUARDED_LABEL: uid}},
        },
    });
    Budget { name, budget }
}

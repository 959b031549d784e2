//! The PodDisruptionBudget that guards the pods of a workload against evictions.

use serde_json::json;

use crate::api::names::{GUARDED_LABEL, budget_name};
use crate::plan::decision::Budget;
use crate::plan::workload::Workload;

/// The budget of a workload.
///
/// It selects by the label alone, so that a pod that a user released can be evicted. minAvailable is more than there
/// can be pods: maxUnavailable 0 would let one eviction of any pod pass while a pod waits to be scaled in. A pod that
/// is not ready may be full of players, so IfHealthyBudget. And it has no owner: deleted in the foreground, the
/// workload would lose it immediately.
pub fn budget(workload: &Workload) -> Budget {
    let Workload {
        namespace,
        name,
        uid,
        ..
    } = workload;
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

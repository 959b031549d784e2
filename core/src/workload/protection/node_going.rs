//! `spec.protection.onNodeGoing: Move`: when a node is going to be removed, the operator requests the replacement of
//! its pods, as `kubectl game move` does, and withdraws the request if the node stays after all. The pods are
//! replaced as soon as their hooks and the budget allow it.

use serde_json::Value;

use crate::api::names::MOVE_NODE_GOING;
use crate::guard::may_have_players;
use crate::observed::{MoveRequest, Pod, PodRef, Taint};
use crate::workload::spec::Workload;
use crate::workload::world::World;
use crate::write::Write;

/// Requests the replacement of pods whose node is going to be removed, and withdraws outdated requests.
pub(crate) fn move_off_nodes(workload: &Workload, world: &World, own: &[&Pod]) -> Vec<Write> {
    let living = own.iter().filter(|pod| !pod.terminating && !pod.ended());
    let changes = living.filter_map(|pod| {
        let requested = match pod.move_requested {
            None if should_leave(workload, world, pod) => true,
            Some(_) if is_request_outdated(workload, world, pod) => false,
            _ => return None,
        };
        Some(Write::request_move(PodRef::of(pod), requested.then(|| MOVE_NODE_GOING.to_owned())))
    });
    changes.collect()
}

/// Whether the operator has requested the replacement of a pod whose node stays after all.
pub(crate) fn is_request_outdated(workload: &Workload, world: &World, pod: &Pod) -> bool {
    pod.move_requested == Some(MoveRequest::NodeGoing) && !should_leave(workload, world, pod)
}

/// Whether a pod should leave its node.
fn should_leave(workload: &Workload, world: &World, pod: &Pod) -> bool {
    workload.moves_off_nodes && is_going(workload, world, pod)
}

/// Whether the pod's node is going to be removed. A taint that the pod template tolerates never counts, because the
/// replacement might start on the same node.
pub(super) fn is_going(workload: &Workload, world: &World, pod: &Pod) -> bool {
    let taints = pod.node.as_ref().and_then(|it| world.going_nodes.get(it));
    taints.is_some_and(|taints| drives_away(taints, &workload.template))
}

/// Whether the removal of a pod's node, which has these taints, waits for the pod. It does if the workload with this uid
/// guards the pod and the pod may have players. This does not depend on `onNodeGoing`. `template` is the workload's.
pub fn delays_removal(uid: &str, template: &Value, taints: &[Taint], pod: &Pod) -> bool {
    pod.guarded_by() == Some(uid)
        && !pod.terminating
        && may_have_players(pod)
        && drives_away(taints, template)
}

fn drives_away(taints: &[Taint], template: &Value) -> bool {
    taints.iter().any(|taint| !is_tolerated(template, taint))
}

fn is_tolerated(template: &Value, taint: &Taint) -> bool {
    let tolerations = template.pointer("/spec/tolerations");
    let mut tolerations = tolerations.and_then(Value::as_array).into_iter().flatten();
    tolerations.any(|toleration| taint.is_matched_by(toleration))
}

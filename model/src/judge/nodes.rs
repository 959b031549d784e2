//! `onNodeGoing: Move`: pods leave nodes that are about to be removed, and no other nodes.

use gamekeeper_core::write::DeletionReason;

use super::violation;
use crate::model::{Model, Violation};
use crate::operator::Planned;
use crate::state::*;
use crate::translate::View;

/// Checks a plan against what the operator knew about the node.
pub(super) fn plan(model: &Model, view: &View, planned: &Planned) -> Result<(), Violation> {
    let is_going = model.scope.moves_off_nodes && view.node.is_going();
    let pod = |uid: Uid| view.pods.iter().find(|pod| pod.uid == uid);
    for write in planned.before.iter().chain(&planned.after) {
        let wrong = match write {
            Write::RequestMove(uid, true) => {
                pod(*uid).filter(|pod| !is_going || !pod.on_node || pod.move_requested.is_some())
            }
            Write::RequestMove(uid, false) => {
                let is_by_operator = |pod: &&Pod| pod.move_requested == Some(Requester::Operator);
                pod(*uid).filter(|pod| is_going || !is_by_operator(pod))
            }
            Write::DeletePod(uid, DeletionReason::Replace, _) => pod(*uid).filter(|pod| {
                let is_to_delete = view.workload.pods_to_delete.contains(&pod.name);
                pod.move_requested == Some(Requester::Operator) && !is_going && !is_to_delete
            }),
            Write::DeletePod(uid, DeletionReason::NodeLost, _) => {
                let is_lost = view.node == Node::Lost;
                pod(*uid).filter(|pod| !is_lost || !pod.on_node)
            }
            _ => None,
        };
        if let Some(pod) = wrong {
            let node = view.node;
            return violation("nodes", format!("{write:?} of {pod:?} on a node that is {node:?}"));
        }
    }
    Ok(())
}

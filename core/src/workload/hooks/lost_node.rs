//! Guarded pods on lost nodes, which neither hooks nor players can reach.
//!
//! Kubernetes tries to delete such pods once the node no longer exists or tolerationSeconds have passed, and the
//! guard refuses the deletion. But Kubernetes first sets the condition DisruptionTarget, so this condition shows that
//! the pod can be given up. It may be left over from an earlier outage of the node, so the end of tolerationSeconds
//! is also computed here.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::observed::{Disruption, Pod, Taint};
use crate::workload::spec::Workload;
use crate::workload::world::World;

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// What Kubernetes sets on pods that do not specify how long they tolerate an unreachable node.
const DEFAULT_TOLERATION: SignedDuration = SignedDuration::from_secs(300);

/// When a guarded pod is given up because its node is lost; None if the node is not lost, or the template
/// tolerates that forever.
pub(super) fn given_up_at(workload: &Workload, world: &World, pod: &Pod) -> Option<Timestamp> {
    let disruption = pod.disruption?;
    if workload.guarded.is_none() || !workload.guards(pod) {
        return None;
    }
    match disruption {
        // The node was deleted. The pod garbage collector has also set the pod's phase to Failed.
        Disruption::LostNode => pod.ended().then_some(Timestamp::MIN),
        Disruption::Taint => {
            let node = world.lost_nodes.get(pod.node.as_ref()?)?;
            if node.out_of_service {
                return Some(Timestamp::MIN);
            }
            let since = node.since.filter(|_| node.unreachable)?;
            since.checked_add(toleration(workload, world, pod)?).ok()
        }
        _ => None,
    }
}

/// How long a pod stays on an unreachable node; None if there is no limit.
fn toleration(workload: &Workload, world: &World, pod: &Pod) -> Option<SignedDuration> {
    let mut revisions = world.revisions.iter();
    let revision = revisions.find(|it| it.name() == pod.revision());
    let template = revision.map(|it| it.template.parse());
    let template = template.as_ref().unwrap_or(&workload.template);
    let tolerations = template.pointer("/spec/tolerations");
    let tolerations = tolerations.and_then(Value::as_array).into_iter().flatten();
    let taint =
        Taint { key: UNREACHABLE.to_owned(), value: String::new(), effect: "NoExecute".to_owned() };
    let mut tolerations = tolerations.filter(|it| taint.is_matched_by(it)).peekable();
    if tolerations.peek().is_none() {
        return Some(DEFAULT_TOLERATION);
    }
    let seconds = tolerations.filter_map(|it| it["tolerationSeconds"].as_i64());
    seconds.min().map(|seconds| SignedDuration::from_secs(seconds.max(0)))
}

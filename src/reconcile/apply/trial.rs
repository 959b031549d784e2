//! What must be true before a script starts: a dry run accepts its pod, its node is drained according to the API server,
//! and its Cluster is unchanged after that.

use serde::Deserialize;
use tokio::time::Instant;

use super::proof::{AdaptiveTimeout, valid_until};
use super::{Applier, Stop, Target};
use crate::runtime::control::Control;
use crate::runtime::fair::TooLate;
use crate::runtime::objects::Kind;
use crate::runtime::request::{Reads, Refusal, Requests, to_bytes};
use gamekeeper_core::api::names::HOOKS_NAMESPACE;
use gamekeeper_core::write::Trial;

#[derive(Deserialize)]
struct PodList {
    items: Vec<ListedPod>,
}

#[derive(Deserialize)]
struct ListedPod {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    name: String,
    #[serde(default)]
    owner_references: Control,
}

impl ListedPod {
    fn is_game_pod(&self) -> bool {
        matches!(self.metadata.owner_references, Control::Ours(_))
    }
}

/// Passes a trial, and returns until when the write that depends on it may be sent.
pub(super) async fn pass(
    applier: &Applier,
    target: &Target,
    trial: &Trial,
    timeout: &mut AdaptiveTimeout,
) -> Result<Instant, Refusal> {
    let pods = Kind::Pod.collection(Some(HOOKS_NAMESPACE));
    // Any other failure does not show that the pod is refused.
    if let Err(
        Refusal::Rejected(why) | Refusal::NamespaceTerminating(why) | Refusal::NotFound(why),
    ) = applier.requests.dry_run_create(&pods, to_bytes(&trial.pod), Reads::Metadata).await
    {
        return Err(Refusal::Rejected(why));
    }
    let requested = Instant::now();
    let current = applier.requests.get(&target.owner.path()).await?;
    if !current.is_still(&target.owner.uid, target.generation, target.deleting) {
        return Err(Refusal::Conflict("the object has changed".to_owned()));
    }
    if let Some(node) = &trial.drained_node {
        is_drained(&applier.requests, node).await?;
    }
    valid_until(requested, timeout).ok_or(Refusal::Late(TooLate))
}

/// Checks that no game pod is left on a node whose script needs a drained node: the script may end matches, and the
/// cache may not show every pod yet.
pub(super) async fn check_drained(applier: &Applier, node: &str) -> Result<(), Stop> {
    is_drained(&applier.requests, node).await.map_err(Stop::from)
}

async fn is_drained(requests: &Requests, node: &str) -> Result<(), Refusal> {
    match remaining_game_pod(requests, node).await? {
        None => Ok(()),
        Some(pod) => {
            Err(Refusal::Conflict(format!("pod {pod} is on node {node}, but not in the cache")))
        }
    }
}

/// The namespace and name of a game pod that is still on the node and has not ended, read with a quorum LIST.
async fn remaining_game_pod(requests: &Requests, node: &str) -> Result<Option<String>, Refusal> {
    let pods = Kind::Pod.collection(None);
    let not_ended = "status.phase!%3DSucceeded%2Cstatus.phase!%3DFailed";
    let path = format!("{pods}?fieldSelector=spec.nodeName%3D{node}%2C{not_ended}");
    let list: PodList = requests.read(&path).await?;
    let pod = list.items.into_iter().find(ListedPod::is_game_pod);
    Ok(pod.map(|ListedPod { metadata }| format!("{}/{}", metadata.namespace, metadata.name)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_pods_of_workloads_are_game_pods() {
        let is_game_pod = |owners: Value| {
            let mut pod = json!({"metadata": {"namespace": "default", "name": "game-1"}});
            pod["metadata"]["ownerReferences"] = owners;
            let pod: ListedPod = serde_json::from_slice(pod.to_string().as_bytes()).unwrap();
            pod.is_game_pod()
        };
        let owner = |api_version: &str, kind: &str| json!([{"apiVersion": api_version, "kind": kind, "uid": "u", "controller": true}]);
        assert!(is_game_pod(owner("tkex.tencent.com/v1alpha1", "GameStatefulSet")));
        assert!(!is_game_pod(owner("apps/v1", "DaemonSet")));
        assert!(!is_game_pod(Value::Null));
    }
}

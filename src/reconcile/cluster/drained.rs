//! Whether a node has been drained, according to the API server.

use serde::Deserialize;

use crate::runtime::control::Control;
use crate::runtime::objects::Kind;
use crate::runtime::request::{Refusal, Requests};

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

/// The namespace and name of a game pod that is still on the node and has not ended, read with a quorum LIST.
pub(super) async fn remaining_game_pod(
    requests: &Requests,
    node: &str,
) -> Result<Option<String>, Refusal> {
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

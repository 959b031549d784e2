//! What must be true before a script starts: a dry run accepts its pod, its node is drained according to the API server,
//! and its Cluster is unchanged after that.

use serde::Deserialize;
use tokio::time::Instant;

use super::proof::{AdaptiveTimeout, valid_until};
use super::{Applier, Target};
use crate::runtime::control::Control;
use crate::runtime::objects::Kind;
use crate::runtime::request::{Reads, Refusal, Requests, to_bytes};
use gamekeeper_core::api::names::HOOKS_NAMESPACE;
use gamekeeper_core::write::{Stop, Trial};

/// How many pods are read at a time. Their authors decide how long their metadata are.
const PAGE_SIZE: usize = 16;

#[derive(Deserialize)]
struct PodList {
    #[serde(default)]
    metadata: ListMetadata,
    /// `null` in an empty list of metadata.
    items: Option<Vec<ListedPod>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListMetadata {
    #[serde(rename = "continue")]
    next: String,
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
    valid_until(requested, timeout).ok_or(Refusal::Late)
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
    let selector = format!("fieldSelector=spec.nodeName%3D{node}%2C{not_ended}");
    let mut position = String::new();
    loop {
        let path = format!("{pods}?{selector}&limit={PAGE_SIZE}{position}");
        let list: PodList = requests.read_list_of_metadata(&path).await?;
        let found = list.items.into_iter().flatten().find(ListedPod::is_game_pod);
        if let Some(ListedPod { metadata }) = found {
            return Ok(Some(format!("{}/{}", metadata.namespace, metadata.name)));
        }
        if list.metadata.next.is_empty() {
            return Ok(None);
        }
        position = format!("&continue={}", list.metadata.next);
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    #[tokio::test]
    async fn the_pods_of_a_node_are_read_in_pages() {
        let page = |next: &str, owner: &str| {
            let pod = json!({"metadata": {"namespace": "games", "name": "a", "ownerReferences": [
                {"apiVersion": "tkex.tencent.com/v1alpha1", "kind": owner, "uid": "u", "controller": true},
            ]}});
            json!({"metadata": {"continue": next}, "items": [pod]})
        };
        let server = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            assert!(query.contains("&limit=16"), "{query}");
            let body = match query.split("&continue=").nth(1) {
                None => page("second", "Other"),
                Some("second") => page("third", "GameDeployment"),
                Some(_) => json!({"metadata": {}, "items": null}),
            };
            let body = Body::from(body.to_string().into_bytes());
            std::future::ready(Ok::<_, std::convert::Infallible>(Response::new(body)))
        });
        let requests = Requests::new(Client::new(server, "games"));
        let found = remaining_game_pod(&requests, "node-1").await;
        assert_eq!(found, Ok(Some("games/a".to_owned())));
    }

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

//! `move`: requests that a pod, or all pods on a node, be replaced as soon as their hooks allow it.
//!
//! The request is an annotation of the pod, so the workload's manifest does not change.

use std::collections::BTreeSet;
use std::time::Duration;

use gamekeeper_core::api::names::MOVE_ANNOTATION;
use gamekeeper_core::text::counted;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::cluster::Cluster;
use crate::command::put;
use crate::error::{Error, refuse};
use crate::kind::name_after;
use crate::options::{ClusterOptions, MoveOptions, limit};
use crate::pod_changes::{PodChanges, outcome};
use crate::scene::workload_of;

/// What the command moves.
#[derive(Debug, PartialEq, Eq)]
enum Moved {
    Pod(String),
    Node(String),
}

impl Moved {
    fn parse(words: &[String], all_namespaces: bool) -> Result<Self, Error> {
        let pod = name_after(words, &["pod", "pods", "po"]);
        let node = name_after(words, &["node", "nodes", "no"]);
        match (pod, node) {
            (Some(name), _) if !name.is_empty() && all_namespaces => Err(Error::Usage(format!(
                "cannot look up \"pod/{name}\" in all namespaces: set its namespace with -n"
            ))),
            (Some(name), _) if !name.is_empty() => Ok(Self::Pod(name.to_owned())),
            (_, Some(name)) if !name.is_empty() => Ok(Self::Node(name.to_owned())),
            _ => Err(Error::Usage("name a pod or a node: pod/NAME or node/NAME".to_owned())),
        }
    }
}

/// Requests the replacement of pods, or withdraws the request.
pub async fn move_pods(target: &ClusterOptions, options: &MoveOptions) -> Result<(), Error> {
    let moved = Moved::parse(&options.words, options.all_namespaces)?;
    let cluster = Cluster::connect(target).await?;
    let pods = match &moved {
        Moved::Pod(name) => vec![movable(cluster.pod(name).await?)?],
        Moved::Node(name) => movable_pods_on(&cluster, name, options.all_namespaces).await?,
    };
    let must_change = |pod: &&Pod| is_requested(pod) == options.cancel;
    let to_change: Vec<&Pod> = pods.iter().filter(must_change).collect();
    let (outcome, done, refusal) = match options.cancel {
        false => ("will be moved", "will be moved", "is already marked to be moved"),
        true => ("will not be moved", "will no longer be moved", "is not marked to be moved"),
    };
    if let (Moved::Pod(name), true) = (&moved, to_change.is_empty() && !options.wait) {
        return refuse(format!("pod/{name} {refusal}"));
    }
    let changes = PodChanges { cluster: &cluster, done, dry_run: options.dry_run };
    let requested_at = || (!options.cancel).then(Timestamp::now);
    let changed = changes.apply(&to_change, |pod| patch(pod, requested_at())).await?;
    if let Moved::Node(name) = &moved {
        let unchanged = pods.len() - to_change.len();
        let count = counted(unchanged + changed.count, "pod", "pods");
        let suffix = changes.suffix();
        put(&format!("node/{name}: {count} {outcome}{suffix}\n"))?;
        if !options.cancel && cluster.is_schedulable(name).await {
            eprintln!(
                "note: node/{name} accepts new pods, so replacements may start on it: kubectl cordon {name}"
            );
        }
    }
    changed.into_result()?;
    match options.wait && !options.dry_run {
        true => wait_until_gone(&cluster, &pods, limit(options.timeout)).await,
        false => Ok(()),
    }
}

/// How often pods are read while the command waits until they are gone.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Waits until none of these pods exists, and says which ones are left, each time their number changes.
async fn wait_until_gone(
    cluster: &Cluster,
    pods: &[Pod],
    limit: Option<Duration>,
) -> Result<(), Error> {
    let mut left: Vec<&Pod> = pods.iter().collect();
    let waiting = async {
        loop {
            let mut remaining = Vec::new();
            for pod in &left {
                let cluster = cluster.in_namespace(pod.namespace().unwrap_or_default());
                match cluster.pod(&pod.name_any()).await {
                    Ok(found) if found.uid() == pod.uid() => remaining.push(*pod),
                    Ok(_) => {}
                    Err(error) if error.is_404() => {}
                    Err(error) if error.is_final() => return Err(error),
                    Err(_) => remaining.push(*pod),
                }
            }
            if remaining.len() != left.len() || remaining.is_empty() {
                let count = counted(remaining.len(), "pod is", "pods are");
                put(&format!("{count} left\n"))?;
            }
            if remaining.is_empty() {
                return Ok(());
            }
            left = remaining;
            sleep(POLL_INTERVAL).await;
        }
    };
    match limit {
        None => waiting.await,
        Some(limit) => match timeout(limit, waiting).await {
            Ok(ended) => ended,
            Err(_) => refuse("timed out waiting: the pods are still to be moved"),
        },
    }
}

/// Requests the replacement of one pod, and returns the outcome.
pub async fn request(cluster: &Cluster, name: &str) -> Result<String, Error> {
    let pod = movable(cluster.pod(name).await?)?;
    if is_requested(&pod) {
        return refuse(format!("pod/{name} is already marked to be moved"));
    }
    let now = Timestamp::now();
    let changed = cluster.change_pod(&pod, |pod| patch(pod, Some(now)), false).await?;
    Ok(outcome(name, "will be moved", changed))
}

/// The pods on a node that the operator can replace.
async fn movable_pods_on(
    cluster: &Cluster,
    node: &str,
    everywhere: bool,
) -> Result<Vec<Pod>, Error> {
    let place = match everywhere {
        true => "the cluster".to_owned(),
        false => format!("namespace {} (use -A for all)", cluster.namespace),
    };
    let mut pods = cluster.pods_on(node, everywhere).await?;
    pods.retain(|pod| workload_of(pod).is_some());
    if pods.is_empty() {
        return refuse(format!(
            "no pod of a GameDeployment or GameStatefulSet in {place} is on node/{node}"
        ));
    }
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    if pods.is_empty() {
        return refuse(format!(
            "all pods of GameDeployments and GameStatefulSets in {place} on node/{node} are already being deleted"
        ));
    }
    Ok(pods)
}

/// The completions of a word: these pods, if the operator can replace them, and their nodes.
pub fn completions(word: &str, pods: Vec<Pod>) -> Vec<String> {
    let pods = pods.into_iter().filter_map(|pod| movable(pod).ok());
    let pods: Vec<Pod> = pods.collect();
    let nodes = pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref());
    let nodes: BTreeSet<&str> = nodes.collect();
    let pods = pods.iter().map(|pod| format!("pod/{}", pod.name_any()));
    let names = pods.chain(nodes.iter().map(|node| format!("node/{node}")));
    names.filter(|name| name.starts_with(word)).collect()
}

/// Returns the pod, if the operator can replace it.
fn movable(pod: Pod) -> Result<Pod, Error> {
    let name = pod.name_any();
    if workload_of(&pod).is_none() {
        return refuse(format!(
            "pod/{name} is not controlled by a GameDeployment or GameStatefulSet"
        ));
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return refuse(format!("pod/{name} is already being deleted"));
    }
    Ok(pod)
}

fn is_requested(pod: &Pod) -> bool {
    pod.annotations().contains_key(MOVE_ANNOTATION)
}

/// The patch that requests the replacement of a pod, or withdraws the request if `at` is None. The uid is a
/// precondition: another pod may have the name by now.
fn patch(pod: &Pod, at: Option<Timestamp>) -> Value {
    json!({"metadata": {
        "uid": pod.metadata.uid,
        "annotations": {MOVE_ANNOTATION: at.map(|at| at.to_string())},
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Moved, Error> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Moved::parse(&words, false)
    }

    #[test]
    fn words_refer_to_a_pod_or_a_node() {
        for line in ["pod/game-x", "po game-x"] {
            let moved = parsed(line).expect("words");
            assert_eq!(moved, Moved::Pod("game-x".to_owned()), "{line}");
        }
        for line in ["node/n1", "nodes n1"] {
            let moved = parsed(line).expect("words");
            assert_eq!(moved, Moved::Node("n1".to_owned()), "{line}");
        }
        for line in ["game", "pod/", "gd/game"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn only_pods_of_workloads_are_moved() {
        let pod = |api: &str| -> Pod {
            let owner = json!({
                "apiVersion": api, "kind": "Any", "name": "game", "uid": "w", "controller": true,
            });
            let metadata = json!({"name": "game-x", "uid": "u", "ownerReferences": [owner]});
            serde_json::from_value(json!({"metadata": metadata})).expect("a pod")
        };
        let ours = movable(pod("tkex.tencent.com/v1alpha1")).expect("ours");
        assert!(movable(pod("apps/v1")).is_err());
        let requested = patch(&ours, Some(Timestamp::UNIX_EPOCH));
        assert_eq!(requested["metadata"]["uid"], "u");
        assert!(requested["metadata"]["annotations"][MOVE_ANNOTATION].is_string());
        assert!(patch(&ours, None)["metadata"]["annotations"][MOVE_ANNOTATION].is_null());
    }
}

//! What clients other than the operator do, through kubectl.

use std::time::Duration;

use anyhow::{Context, Result};
use judge::object::{annotation, controller, is_running, is_terminating, text};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::history::Kind;
use super::stage::RIVAL_CLASS;
use super::variant::{SAFE_TO_EVICT, Variant};
use crate::case::Case;

/// The prefix of the users that kubectl impersonates. The audit log shows them.
const USER: &str = "others:";
/// How long a drain may last.
const DRAIN_TIMEOUT: &str = "--timeout=150s";
/// How long the administrator waits before retrying a drain.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// A client other than the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// kubectl drain.
    Drain,
    /// kubectl drain --disable-eviction, repeated until it succeeds.
    DrainByDeletion,
    /// An eviction through the API.
    Evict,
    /// kubectl delete pod.
    Delete,
    /// kubectl delete pod --force.
    ForceDelete,
    /// kubectl delete pods --all.
    DeleteAll,
    /// A taint with the effect NoExecute.
    Taint,
    /// A cluster autoscaler: taints a node, and evicts the pods that it may evict.
    Autoscaler,
    /// A pod with a higher priority that needs a whole node.
    Preempt,
    /// Deletes the workload.
    DeleteWorkload(Cascade),
    /// Deletes the namespace.
    DeleteNamespace,
}

/// How a workload is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cascade {
    /// The garbage collector deletes the pods after the workload.
    Background,
    /// The garbage collector deletes the pods before the workload.
    Foreground,
}

/// Where a client acts.
pub(super) struct Scene<'a> {
    pub(super) case: &'a Case,
    pub(super) variant: Variant,
    pub(super) kind: Kind,
    /// The workload's own nodes. Nothing happens to the last one.
    pub(super) nodes: &'a [String],
}

impl Actor {
    /// The clients that act on pods and nodes.
    pub(super) const ON_PODS: [Actor; 9] = [
        Actor::Drain,
        Actor::DrainByDeletion,
        Actor::Evict,
        Actor::Delete,
        Actor::ForceDelete,
        Actor::DeleteAll,
        Actor::Taint,
        Actor::Autoscaler,
        Actor::Preempt,
    ];

    /// All clients.
    pub fn all() -> impl Iterator<Item = Actor> {
        let deletions = [
            Actor::DeleteWorkload(Cascade::Background),
            Actor::DeleteWorkload(Cascade::Foreground),
            Actor::DeleteNamespace,
        ];
        Actor::ON_PODS.into_iter().chain(deletions)
    }

    /// The client's name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Actor::Drain => "`kubectl drain`",
            Actor::DrainByDeletion => "`kubectl drain --disable-eviction`",
            Actor::Evict => "eviction through the API",
            Actor::Delete => "`kubectl delete pod`",
            Actor::ForceDelete => "`kubectl delete pod --force`",
            Actor::DeleteAll => "`kubectl delete pods --all`",
            Actor::Taint => "a NoExecute taint",
            Actor::Autoscaler => "a cluster autoscaler",
            Actor::Preempt => "preemption by a pod of priority 1000",
            Actor::DeleteWorkload(Cascade::Background) => "deletion of the workload",
            Actor::DeleteWorkload(Cascade::Foreground) => {
                "deletion of the workload, `--cascade=foreground`"
            }
            Actor::DeleteNamespace => "deletion of the namespace",
        }
    }

    /// The user that kubectl impersonates for this client.
    pub(super) fn user(self) -> String {
        let name = format!("{self:?}");
        let is_special = |letter: char| !letter.is_ascii_alphabetic();
        format!("{USER}{}", name.replace(is_special, ""))
    }

    /// Performs the client's action. A refused eviction or deletion of a pod is not an error.
    pub(super) async fn act(self, scene: &Scene<'_>, number: usize) -> Result<()> {
        let case = scene.case;
        let node = scene.nodes[number % 2].as_str();
        match self {
            Actor::Drain => {
                self.kubectl(
                    case,
                    &["drain", node, "--ignore-daemonsets", "--force", DRAIN_TIMEOUT],
                )
                .await?;
            }
            Actor::DrainByDeletion => self.drain_by_deletion(case, node).await,
            Actor::Evict => {
                if let Some(pod) = some_pod(case, number).await? {
                    let _ = self.evict(case, &pod).await;
                }
            }
            Actor::Delete => self.delete(case, number, &[]).await?,
            Actor::ForceDelete => {
                let force = ["--force", "--grace-period=0"];
                self.delete(case, number, &force).await?;
            }
            Actor::DeleteAll => {
                let all = ["delete", "pods", "--all", "--wait=false"];
                let _ = self.kubectl(case, &all).await;
            }
            Actor::Taint => self.taint(case, node, "maintenance=1:NoExecute").await?,
            Actor::Autoscaler => self.scale_down(case, node).await?,
            Actor::Preempt => {
                let rival = rival(case, node).to_string();
                // A namespace that is being deleted accepts no pods.
                let _ = self.kubectl_with(case, &["create", "-f", "-"], &rival).await;
            }
            Actor::DeleteWorkload(cascade) => {
                let cascade = match cascade {
                    Cascade::Background => "--cascade=background",
                    Cascade::Foreground => "--cascade=foreground",
                };
                let workload = scene.variant.workload(scene.kind);
                self.kubectl(case, &["delete", &workload, cascade, "--wait=false"]).await?;
            }
            Actor::DeleteNamespace => {
                let delete = ["delete", "namespace", &case.namespace, "--wait=false"];
                self.kubectl(case, &delete).await?;
            }
        }
        Ok(())
    }

    async fn kubectl(self, case: &Case, args: &[&str]) -> Result<String> {
        self.kubectl_with(case, args, "").await
    }

    async fn kubectl_with(self, case: &Case, args: &[&str], stdin: &str) -> Result<String> {
        let user = format!("--as={}", self.user());
        let impersonation = [user.as_str(), "--as-group=system:masters"];
        case.kubectl_with(&[args, &impersonation].concat(), stdin).await
    }

    async fn drain_by_deletion(self, case: &Case, node: &str) {
        let options = ["--ignore-daemonsets", "--force", "--disable-eviction", DRAIN_TIMEOUT];
        let drain = [&["drain", node][..], &options].concat();
        while self.kubectl(case, &drain).await.is_err() {
            sleep(RETRY_AFTER).await;
        }
    }

    async fn delete(self, case: &Case, number: usize, options: &[&str]) -> Result<()> {
        if let Some(pod) = some_pod(case, number).await? {
            let delete = ["delete", "pod", &pod, "--wait=false"];
            let _ = self.kubectl(case, &[&delete, options].concat()).await;
        }
        Ok(())
    }

    async fn evict(self, case: &Case, pod: &str) -> Result<String> {
        let namespace = &case.namespace;
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/eviction");
        let create = ["create", "--raw", &path, "-f", "-"];
        self.kubectl_with(case, &create, &eviction.to_string()).await
    }

    async fn taint(self, case: &Case, node: &str, taint: &str) -> Result<()> {
        let taint = ["taint", "node", node, taint, "--overwrite"];
        self.kubectl(case, &taint).await?;
        Ok(())
    }

    /// A cluster autoscaler does not choose a node with pods that it may not evict. So this acts as if the node had
    /// been chosen before such pods were scheduled onto it.
    async fn scale_down(self, case: &Case, node: &str) -> Result<()> {
        let taint = "ToBeDeletedByClusterAutoscaler=1:NoSchedule";
        self.taint(case, node, taint).await?;
        for pod in running(case).await? {
            let is_on_node = text(&pod, "/spec/nodeName") == node;
            if is_on_node && annotation(&pod, SAFE_TO_EVICT) != Some("false") {
                let _ = self.evict(case, text(&pod, "/metadata/name")).await;
            }
        }
        Ok(())
    }
}

/// The workload's running pods, sorted by name.
pub(super) async fn running(case: &Case) -> Result<Vec<Value>> {
    let mut pods = case.list("pods").await?;
    pods.retain(|pod| controller(pod).is_some() && is_running(pod) && !is_terminating(pod));
    Ok(pods)
}

/// The name of the running pod with this number, modulo the number of running pods. None if no pod runs.
async fn some_pod(case: &Case, number: usize) -> Result<Option<String>> {
    let pods = running(case).await.context("pods")?;
    let found = pods.get(number % pods.len().max(1));
    Ok(found.map(|pod| text(pod, "/metadata/name").to_owned()))
}

/// A pod that fits on a node only if no other pod is there.
fn rival(case: &Case, node: &str) -> Value {
    let needs = json!({"requests": {"cpu": "950"}});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "rival"},
        "spec": {
            "priorityClassName": RIVAL_CLASS,
            "containers": [{"name": "game", "image": "game:v1", "resources": needs}],
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"key": "only", "operator": "Equal", "value": case.namespace}],
        },
    })
}

//! The cached form of nodes: which are lost, which are going to be removed, and which have old kubelets.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;

use super::Settings;
use super::slim::cost;
use crate::runtime::store::{Cached, Head};
use crate::runtime::watch::version_number;
use gamekeeper_core::api::names::{NODE_DELETION_COST, NODE_RECORD, NOT_INSTALLED_TAINT};
use gamekeeper_core::lifecycle::ClusterNode;
use gamekeeper_core::observed::{LostNode, OldKubelet, Taint};

/// The parts of a node that the cache reads.
#[derive(Debug, Deserialize)]
pub(crate) struct NodeHead {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Default, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    taints: Vec<NodeTaint>,
    #[serde(default)]
    unschedulable: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeTaint {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    effect: String,
    #[serde(default)]
    time_added: Option<Time>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeStatus {
    node_info: NodeInfo,
    addresses: Vec<NodeAddress>,
    conditions: Vec<NodeCondition>,
}

#[derive(Debug, Deserialize)]
struct NodeAddress {
    address: String,
}

#[derive(Debug, Deserialize)]
struct NodeCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeInfo {
    kubelet_version: String,
}

/// The taint that the node lifecycle controller sets on an unreachable node.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The taint that an administrator sets on a node that was shut down.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// NoExecute taints that do not announce the removal of a node, but show that it no longer responds. The node may come
/// back at any moment, or it is shut down and no pod can be moved.
const LOST_NODE_TAINTS: [&str; 3] = ["node.kubernetes.io/not-ready", UNREACHABLE, OUT_OF_SERVICE];

/// The taint that the node lifecycle controller sets on a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Whether a taint announces the removal of its node: it ends pods and is none of LOST_NODE_TAINTS, or it has one of
/// these keys.
fn announces_removal(taint: &NodeTaint, keys: &[String]) -> bool {
    let ends_pods = taint.effect == "NoExecute" && !LOST_NODE_TAINTS.contains(&taint.key.as_str());
    ends_pods || keys.contains(&taint.key)
}

/// When the removal of a node was announced, if its taints show that; those set by `kubectl taint` have no time.
fn going_since(node: &NodeSpec, keys: &[String]) -> Option<Timestamp> {
    let announces = |it: &&NodeTaint| {
        let is_cordon = node.unschedulable && it.key == UNSCHEDULABLE;
        is_cordon || announces_removal(it, keys)
    };
    let taints = node.taints.iter().filter(announces);
    let times = taints.filter_map(|it| it.time_added.as_ref());
    times.map(|time| time.0).min()
}

/// The taints that announce the removal of a node. A cordon counts even before its taint is set.
fn going(node: NodeSpec, keys: &[String]) -> Vec<Taint> {
    let cordon = node.unschedulable.then(|| Taint {
        key: UNSCHEDULABLE.to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
    });
    let taints = node.taints.into_iter();
    let taints = taints.filter(|it| announces_removal(it, keys));
    let taints = taints.map(|it| Taint { key: it.key, value: it.value, effect: it.effect });
    cordon.into_iter().chain(taints).collect()
}

fn lost(taints: &[NodeTaint]) -> Option<LostNode> {
    let unreachable = || taints.iter().filter(|it| it.key == UNREACHABLE);
    let times = unreachable().filter_map(|it| it.time_added.as_ref());
    let lost = LostNode {
        unreachable: unreachable().next().is_some(),
        since: times.map(|time| time.0).min(),
        out_of_service: taints.iter().any(|it| it.key == OUT_OF_SERVICE),
    };
    (lost != LostNode::default()).then_some(lost)
}

/// The cached form of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeState {
    name: String,
    uid: String,
    version: u64,
    /// The node's deletion cost, in millionths.
    pub cost: Option<i64>,
    /// Whether and how the node is lost.
    pub lost: Option<LostNode>,
    /// The kubelet, if it cannot make every change in a running pod.
    pub old_kubelet: Option<OldKubelet>,
    /// What plans for Clusters read, if lifecycle hooks are enabled.
    pub for_clusters: Option<Arc<ClusterNode>>,
    /// The taints that announce the node's removal.
    pub going: Arc<[Taint]>,
    /// When the first of these taints was added, if they record that.
    pub going_since: Option<Timestamp>,
}

impl NodeState {
    /// The cached form of a node; None if no plan depends on it.
    pub(crate) fn new(node: NodeHead, settings: &Settings) -> Option<Self> {
        let with_clusters = settings.kinds.clusters;
        let for_clusters = with_clusters.then(|| Arc::new(node.for_clusters()));
        let meta = node.metadata;
        let annotations = meta.annotations.unwrap_or_default();
        let annotation = annotations.get(NODE_DELETION_COST);
        let lost = lost(&node.spec.taints);
        let old_kubelet = OldKubelet::of(&node.status.node_info.kubelet_version);
        let going_since = going_since(&node.spec, &settings.going_taints);
        let going = going(node.spec, &settings.going_taints);
        let is_needed = lost.is_some()
            || annotation.is_some()
            || old_kubelet.is_some()
            || !going.is_empty()
            || with_clusters;
        is_needed.then(|| Self {
            cost: annotation.map(|annotation| cost(Some(annotation))),
            lost,
            old_kubelet,
            for_clusters,
            going: going.into(),
            going_since,
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            version: version_number(&meta.resource_version.unwrap_or_default()),
        })
    }
}

impl NodeHead {
    fn for_clusters(&self) -> ClusterNode {
        let meta = &self.metadata;
        let annotations = meta.annotations.as_ref();
        let mut conditions = self.status.conditions.iter();
        let ready = conditions.find(|it| it.type_ == "Ready");
        let ready = ready.map(|it| it.status.as_str());
        let taints = &self.spec.taints;
        let created = meta.creation_timestamp.as_ref();
        ClusterNode {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            created: created.map(|it| -> Timestamp { it.0 }),
            labels: meta.labels.clone().unwrap_or_default(),
            addresses: {
                let addresses = self.status.addresses.iter();
                addresses.map(|it| it.address.clone()).collect()
            },
            ready: ready == Some("True"),
            version: self.status.node_info.kubelet_version.clone(),
            lost: ready == Some("Unknown") || taints.iter().any(|it| it.key == UNREACHABLE),
            record: annotations.and_then(|it| it.get(NODE_RECORD)).cloned(),
            unschedulable: self.spec.unschedulable,
            not_installed_taint_index: taints.iter().position(|it| it.key == NOT_INSTALLED_TAINT),
        }
    }
}

impl Cached for NodeState {
    fn head(&self) -> Head<'_> {
        Head {
            namespace: "",
            name: &self.name,
            uid: &self.uid,
            version: self.version,
            terminating: false,
            controller: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(spec: Value, keys: &[&str]) -> Option<NodeState> {
        let node = json!({"metadata": {"name": "node"}, "spec": spec});
        let node: NodeHead = serde_json::from_value(node).expect("a node");
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let settings = Settings { going_taints: keys.into(), ..Settings::default() };
        NodeState::new(node, &settings)
    }

    /// The keys of the taints that announce the removal of a node.
    fn going_keys(spec: Value) -> Vec<String> {
        let node = node(spec, &["karpenter.sh/disrupted"]);
        let going = node.map(|node| node.going);
        let going = going.iter().flat_map(|going| going.iter());
        going.map(|taint| taint.key.clone()).collect()
    }

    #[test]
    fn a_cordon_and_taints_announce_the_removal_of_a_node() {
        let taint = |key: &str, effect: &str| {
            let taint = json!({"key": key, "effect": effect});
            going_keys(json!({"taints": [taint]}))
        };
        let none: [&str; 0] = [];
        assert_eq!(going_keys(json!({})), none);
        let cordon = json!({"unschedulable": true});
        assert_eq!(going_keys(cordon), [UNSCHEDULABLE]);
        assert_eq!(taint("any", "NoExecute"), ["any"]);
        assert_eq!(taint("any", "NoSchedule"), none);
        let configured = "karpenter.sh/disrupted";
        assert_eq!(taint(configured, "NoSchedule"), [configured]);
        // These taints only show that the node does not respond.
        for key in LOST_NODE_TAINTS {
            assert_eq!(taint(key, "NoExecute"), none);
        }
        // The cordon was lifted, and its taint is about to be removed.
        assert_eq!(taint(UNSCHEDULABLE, "NoSchedule"), none);
    }

    #[test]
    fn a_removal_is_announced_when_the_first_taint_is_added() {
        let at = |minute: i64| format!("2026-01-01T00:{minute:02}:00Z");
        let taint = |key: &str, effect: &str, minute: i64| {
            let added = at(minute);
            json!({"key": key, "effect": effect, "timeAdded": added})
        };
        let since = |spec| {
            let since = node(spec, &["configured"]).and_then(|node| node.going_since);
            since.map(|since| since.to_string())
        };
        let taints = json!([
            taint("dedicated", "NoSchedule", 1),
            taint("node.kubernetes.io/not-ready", "NoExecute", 2),
            taint(UNSCHEDULABLE, "NoSchedule", 3),
            taint("configured", "NoSchedule", 4),
            taint("any", "NoExecute", 5),
        ]);
        let cordoned = json!({"unschedulable": true, "taints": taints});
        assert_eq!(since(cordoned), Some(at(3)));
        assert_eq!(since(json!({"taints": taints})), Some(at(4)));
        let unknown = json!({"taints": [{"key": "any", "effect": "NoExecute"}]});
        assert_eq!(since(unknown), None);
    }
}

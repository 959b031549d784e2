//! The same workload, protected in four ways.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::history::{History, Kind};
use crate::case::Case;
use crate::workload::manifest::{Game, hook_template, retrying_hook_template};
use crate::workload::{GAME, SET};

/// Name of the HookTemplate.
const TEMPLATE: &str = "nobody-plays";
/// The annotation that the cluster autoscaler respects.
pub(super) const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// How pods are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Variant {
    /// A GameDeployment or GameStatefulSet with a PreDelete hook and `protection.pods: Guarded`.
    Guarded,
    /// Like Guarded, but with `protection.pods: None`.
    Unguarded,
    /// A Deployment with a PodDisruptionBudget that allows no eviction.
    Budget,
    /// A Deployment with the annotation `safe-to-evict: "false"`.
    SafeToEvict,
}

impl Variant {
    /// All variants.
    pub const ALL: [Variant; 4] =
        [Variant::Guarded, Variant::Unguarded, Variant::Budget, Variant::SafeToEvict];

    /// Whether the operator manages the workload.
    pub(super) fn has_operator(self) -> bool {
        matches!(self, Variant::Guarded | Variant::Unguarded)
    }

    /// A short name for namespaces and files.
    pub fn short(self) -> &'static str {
        match self {
            Variant::Guarded => "guarded",
            Variant::Unguarded => "none",
            Variant::Budget => "budget",
            Variant::SafeToEvict => "annotation",
        }
    }

    /// The workload as kubectl names it: KIND/NAME.
    pub(super) fn workload(self, kind: Kind) -> String {
        match (self.has_operator(), kind.is_stateful_set()) {
            (true, true) => format!("gamestatefulset/{SET}"),
            (true, false) => format!("gamedeployment/{GAME}"),
            (false, _) => format!("deployment/{GAME}"),
        }
    }

    /// The API path of the workload.
    pub(super) fn path(self, case: &Case) -> String {
        let namespace = &case.namespace;
        match self.has_operator() {
            true => case.path(),
            false => format!("/apis/apps/v1/namespaces/{namespace}/deployments/{GAME}"),
        }
    }

    /// The objects that users apply.
    pub(super) fn objects(self, history: &History, case: &Case, nodes: &[String]) -> Vec<Value> {
        let game = on_nodes(history.game(TEMPLATE), &case.namespace, nodes);
        if self.has_operator() {
            let protection = json!({
                "pods": "Guarded", "onNodeGoing": "Move", "askAgainSeconds": 1,
            });
            let game = match self {
                Variant::Guarded => game.set("/spec/protection", protection),
                _ => game.set("/spec/protection/pods", "None"),
            };
            return vec![template(history, case), game.into()];
        }
        let game = match self {
            Variant::SafeToEvict => game.annotated(SAFE_TO_EVICT, "false"),
            _ => game,
        };
        let mut objects = vec![native(&game.into())];
        if self == Variant::Budget {
            objects.push(json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": GAME},
                "spec": {"maxUnavailable": 0, "selector": {"matchLabels": objects[0]["spec"]["selector"]["matchLabels"]}},
            }));
        }
        objects
    }
}

/// A hook that asks about the match on a pod. It identifies the pod by its uid, because pod names are reused.
fn template(history: &History, case: &Case) -> Value {
    let url = case.hooks.url("/{{ args.uid }}");
    let mut template = match history.retries {
        true => retrying_hook_template(TEMPLATE, &url),
        false => hook_template(TEMPLATE, &url),
    };
    let path = "metadata.annotations['gamekeeper.tkex.tencent.com/pod-uid']";
    let uid = json!({"name": "uid", "valueFrom": {"fieldRef": {"fieldPath": path}}});
    template["spec"]["args"] = json!([uid]);
    template
}

/// Schedules pods onto the first two nodes as long as these accept them, and otherwise onto the last one.
fn on_nodes(game: Game, namespace: &str, nodes: &[String]) -> Game {
    let among = |nodes: &[String]| json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]});
    let affinity = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [among(nodes)]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": among(&nodes[..2])}],
    });
    let tolerations = json!([{"key": "only", "operator": "Equal", "value": namespace}]);
    let pod = "/spec/template/spec";
    game.set(&format!("{pod}/affinity/nodeAffinity"), affinity)
        .set(&format!("{pod}/tolerations"), tolerations)
        .set(&format!("{pod}/containers/0/resources/requests/cpu"), "100")
}

/// A Deployment with the same pods.
fn native(game: &Value) -> Value {
    let spec = &game["spec"];
    let mut template = spec["template"].clone();
    // There is no operator to set the gate's condition.
    template["spec"]["readinessGates"] = Value::Null;
    let labels = json!({"app": GAME});
    template["metadata"]["labels"] = labels.clone();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": GAME},
        "spec": {
            "replicas": spec["replicas"], "selector": {"matchLabels": labels}, "template": template,
        },
    })
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Variant::Guarded => "`protection.pods: Guarded`",
            Variant::Unguarded => "`None`: the hook alone",
            Variant::Budget => "Deployment with a PodDisruptionBudget",
            Variant::SafeToEvict => "Deployment with `safe-to-evict: \"false\"`",
        })
    }
}

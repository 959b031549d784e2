//! Reads the fields of Clusters and nodes that the rules need.

use serde_json::Value;

use super::step::{Phase, Step, Work};
use crate::names;
use crate::object::{annotation, is_terminating, is_true, label, text, uid};

/// A version of a Cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster<'a>(pub(crate) &'a Value);

impl<'a> Cluster<'a> {
    /// Whether a step has something to do, and is not skipped.
    pub(crate) fn includes(&self, step: &Step) -> bool {
        let skipped = self.0.pointer("/spec/features/skipConditions");
        let mut skipped = skipped.and_then(Value::as_array).into_iter().flatten();
        let is_configured = match step.work {
            Work::Hook(hook) => !text(self.0, &format!("/spec/features/hooks/{hook}")).is_empty(),
            Work::Files => {
                let files = self.0.pointer("/spec/features/files");
                files.and_then(Value::as_array).is_some_and(|it| !it.is_empty())
            }
            Work::Ready | Work::Version => true,
        };
        is_configured && !skipped.any(|it| it == step.name)
    }

    /// Whether a step that runs on the first master has passed.
    pub(crate) fn has_passed(&self, step: &Step) -> bool {
        self.passed().any(|it| it == step.name)
            || (step.phase == Phase::Install && self.is_installed())
    }

    /// The steps that have passed on the first master.
    pub(crate) fn passed(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let passed = self.0.pointer("/status/passedSteps");
        let passed = passed.and_then(Value::as_array).into_iter().flatten();
        passed.filter_map(Value::as_str)
    }

    /// Whether the install is complete: hooks that are added later do not run.
    pub(crate) fn is_installed(&self) -> bool {
        ["Running", "Upgrading"].contains(&text(self.0, "/status/phase"))
    }

    /// Whether an upgrade is recorded, and still wanted.
    pub(crate) fn is_upgrading(&self) -> bool {
        let [wanted, version] = ["/spec/version", "/status/version"].map(|it| text(self.0, it));
        text(self.0, "/status/phase") == "Upgrading" && !is_same_version(wanted, version)
    }

    /// The number of the upgrade in progress, or of the last one.
    pub(crate) fn upgrade(&self) -> Option<i64> {
        self.0.pointer("/status/upgrade/number")?.as_i64()
    }

    /// Whether the Cluster is paused, so that no script may start.
    pub(crate) fn is_paused(&self) -> bool {
        self.0.pointer("/spec/paused") == Some(&Value::Bool(true))
    }

    /// Whether the Cluster is being deleted.
    pub(crate) fn is_being_deleted(&self) -> bool {
        is_terminating(self.0)
    }

    /// Whether nodes are drained before their upgrade.
    pub(crate) fn drains(&self) -> bool {
        let field = "/spec/features/upgrade/strategy/drainNodeBeforeUpgrade";
        self.0.pointer(field) == Some(&Value::Bool(true))
    }

    /// The number of nodes on which scripts may run at the same time.
    pub(crate) fn parallelism(&self) -> usize {
        let number = self.0.pointer("/spec/features/parallelism");
        let number = number.and_then(Value::as_u64).unwrap_or(1);
        usize::try_from(number).unwrap_or(usize::MAX)
    }

    /// Whether a node is one of the Cluster's nodes.
    pub(crate) fn selects(&self, node: &Value) -> bool {
        match self.0.pointer("/spec/features/nodeSelector").and_then(Value::as_object) {
            Some(labels) => labels.iter().all(|(key, value)| label(node, key) == value.as_str()),
            None => label(node, "kubernetes.io/os") == Some("linux"),
        }
    }

    /// Whether a step has passed on a node, in this version of the node.
    pub(crate) fn has_passed_on(&self, step: &Step, node: &Value) -> bool {
        let record = Record::of_cluster(node, uid(self.0));
        let version = text(node, "/status/nodeInfo/kubeletVersion");
        let has_version = || is_same_version(version, text(self.0, "/spec/version"));
        let is_upgraded =
            || record.upgrade == self.upgrade() && record.upgraded.iter().any(|it| it == step.name);
        match (step.work, step.phase) {
            (Work::Version, _) => has_version(),
            (Work::Ready, _) => is_true(node, "Ready") || record.is_installed,
            // A node whose kubelet was upgraded before its turn gets PostUpgrade only.
            (Work::Hook("PreUpgrade"), _) => is_upgraded() || has_version(),
            (_, Phase::Upgrade) => is_upgraded(),
            _ => record.is_installed || record.passed.iter().any(|it| it == step.name),
        }
    }
}

/// Whether two versions are equal apart from a leading v and a suffix.
fn is_same_version(one: &str, other: &str) -> bool {
    let core = |version: &str| {
        let version = version.trim_start_matches('v');
        version.split(['-', '+']).next().unwrap_or_default().to_owned()
    };
    core(one) == core(other)
}

/// What has passed on a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// Uid of the Cluster.
    pub(crate) cluster_uid: String,
    /// Uid of the node.
    pub(crate) node_uid: String,
    /// The steps of the install that have passed.
    pub(crate) passed: Vec<String>,
    /// Whether the install is complete.
    pub(crate) is_installed: bool,
    /// The number of the upgrade that `upgraded` refers to.
    pub(crate) upgrade: Option<i64>,
    /// The steps of this upgrade that have passed.
    pub(crate) upgraded: Vec<String>,
}

impl Record {
    /// The record of a Cluster on a node; empty if there is none.
    pub(crate) fn of_cluster(node: &Value, cluster_uid: &str) -> Self {
        let record = Self::on(node).unwrap_or_default();
        match record.cluster_uid == cluster_uid && record.node_uid == uid(node) {
            true => record,
            false => Self::default(),
        }
    }

    /// The record on a node, whichever Cluster it belongs to.
    pub(crate) fn on(node: &Value) -> Option<Self> {
        let record: Value = serde_json::from_str(annotation(node, names::NODE_RECORD)?).ok()?;
        let list = |field: &str| -> Vec<String> {
            let items = record[field].as_array().into_iter().flatten();
            items.filter_map(|it| Some(it.as_str()?.to_owned())).collect()
        };
        Some(Record {
            cluster_uid: text(&record, "/cluster").to_owned(),
            node_uid: text(&record, "/node").to_owned(),
            passed: list("passed"),
            is_installed: record["installed"] == true,
            upgrade: record["upgrade"].as_i64(),
            upgraded: list("upgraded"),
        })
    }
}

/// Whether a node is unschedulable.
pub(crate) fn is_cordoned(node: &Value) -> bool {
    node.pointer("/spec/unschedulable") == Some(&Value::Bool(true))
}

/// Whether a node has a taint with this key.
pub(crate) fn is_tainted(node: &Value, key: &str) -> bool {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    taints.into_iter().flatten().any(|it| text(it, "/key") == key)
}

/// The uid of the owner of this kind.
pub(crate) fn owner<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|it| text(it, "/kind") == kind)?;
    owner.get("uid")?.as_str()
}

//! The steps of a Cluster's install, upgrade and deletion. Each has a condition.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClusterHooks;

/// A step of a Cluster's install, upgrade or deletion; its name is the type of its condition.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum LifecycleStep {
    /// The files are on every node.
    EnsureCopyFiles,
    /// On the first master, before the scripts of the nodes.
    EnsurePreClusterInstallHook,
    /// On every node, which need not be ready yet.
    EnsurePreInstallHook,
    /// Every node is ready.
    EnsureNodesReady,
    /// On every node, once it is ready.
    EnsurePostInstallHook,
    /// On the first master, after the scripts of the nodes.
    EnsurePostClusterInstallHook,
    /// Before the first node is upgraded, on the first master.
    EnsurePreClusterUpgradeHook,
    /// On every node, before its kubelet is upgraded.
    EnsurePreUpgradeHook,
    /// The kubelet of every node has the new version.
    EnsureUpgrade,
    /// On every node, once its kubelet has the new version.
    EnsurePostUpgradeHook,
    /// After the last node has been upgraded, on the first master.
    EnsurePostClusterUpgradeHook,
    /// When the Cluster is deleted, on the first master.
    EnsurePreClusterDeleteHook,
    /// Before the Cluster is removed, on the first master.
    EnsurePostClusterDeleteHook,
}

/// Where a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepScope {
    /// On every node.
    Nodes,
    /// On the first master.
    FirstMaster,
}

impl LifecycleStep {
    /// The steps of an install, in order. A node that joins later goes through the steps that run on every node.
    pub const INSTALL: [Self; 6] = [
        Self::EnsureCopyFiles,
        Self::EnsurePreClusterInstallHook,
        Self::EnsurePreInstallHook,
        Self::EnsureNodesReady,
        Self::EnsurePostInstallHook,
        Self::EnsurePostClusterInstallHook,
    ];

    /// The steps of an upgrade, in order. Up to `parallelism` nodes are upgraded at the same time. Another node begins
    /// when one of them has completed the steps that run on every node.
    pub const UPGRADE: [Self; 5] = [
        Self::EnsurePreClusterUpgradeHook,
        Self::EnsurePreUpgradeHook,
        Self::EnsureUpgrade,
        Self::EnsurePostUpgradeHook,
        Self::EnsurePostClusterUpgradeHook,
    ];

    /// The steps of a deletion, in order.
    pub const DELETE: [Self; 2] =
        [Self::EnsurePreClusterDeleteHook, Self::EnsurePostClusterDeleteHook];

    /// Where the step runs.
    pub fn scope(self) -> StepScope {
        match self {
            Self::EnsureCopyFiles
            | Self::EnsurePreInstallHook
            | Self::EnsureNodesReady
            | Self::EnsurePostInstallHook
            | Self::EnsurePreUpgradeHook
            | Self::EnsureUpgrade
            | Self::EnsurePostUpgradeHook => StepScope::Nodes,
            Self::EnsurePreClusterUpgradeHook
            | Self::EnsurePostClusterUpgradeHook
            | Self::EnsurePreClusterInstallHook
            | Self::EnsurePostClusterInstallHook
            | Self::EnsurePreClusterDeleteHook
            | Self::EnsurePostClusterDeleteHook => StepScope::FirstMaster,
        }
    }

    /// The command line of the step's script, if the user has set one. Three steps have no script.
    pub fn command(self, hooks: &ClusterHooks) -> Option<&str> {
        let command = match self {
            Self::EnsureCopyFiles | Self::EnsureNodesReady | Self::EnsureUpgrade => return None,
            Self::EnsurePreClusterUpgradeHook => &hooks.pre_cluster_upgrade,
            Self::EnsurePreUpgradeHook => &hooks.pre_upgrade,
            Self::EnsurePostUpgradeHook => &hooks.post_upgrade,
            Self::EnsurePostClusterUpgradeHook => &hooks.post_cluster_upgrade,
            Self::EnsurePreClusterInstallHook => &hooks.pre_cluster_install,
            Self::EnsurePreInstallHook => &hooks.pre_install,
            Self::EnsurePostInstallHook => &hooks.post_install,
            Self::EnsurePostClusterInstallHook => &hooks.post_cluster_install,
            Self::EnsurePreClusterDeleteHook => &hooks.pre_cluster_delete,
            Self::EnsurePostClusterDeleteHook => &hooks.post_cluster_delete,
        };
        command.as_deref()
    }

    /// The step's name. Scripts get it in the environment variable HOOK. If users can set a script for the step, the
    /// name is also the key of that script in features.hooks.
    pub fn hook(self) -> &'static str {
        match self {
            Self::EnsureCopyFiles => "CopyFiles",
            Self::EnsureNodesReady => "NodesReady",
            Self::EnsureUpgrade => "Upgrade",
            Self::EnsurePreClusterUpgradeHook => "PreClusterUpgrade",
            Self::EnsurePreUpgradeHook => "PreUpgrade",
            Self::EnsurePostUpgradeHook => "PostUpgrade",
            Self::EnsurePostClusterUpgradeHook => "PostClusterUpgrade",
            Self::EnsurePreClusterInstallHook => "PreClusterInstall",
            Self::EnsurePreInstallHook => "PreInstall",
            Self::EnsurePostInstallHook => "PostInstall",
            Self::EnsurePostClusterInstallHook => "PostClusterInstall",
            Self::EnsurePreClusterDeleteHook => "PreClusterDelete",
            Self::EnsurePostClusterDeleteHook => "PostClusterDelete",
        }
    }

    /// The prefix of the names of the step's HookRuns.
    pub fn run_prefix(self) -> &'static str {
        match self {
            Self::EnsureCopyFiles => "copy-files",
            Self::EnsureNodesReady => "nodes-ready",
            Self::EnsureUpgrade => "upgrade",
            Self::EnsurePreClusterUpgradeHook => "pre-cluster-upgrade-hook",
            Self::EnsurePreUpgradeHook => "pre-upgrade-hook",
            Self::EnsurePostUpgradeHook => "post-upgrade-hook",
            Self::EnsurePostClusterUpgradeHook => "post-cluster-upgrade-hook",
            Self::EnsurePreClusterInstallHook => "pre-cluster-install-hook",
            Self::EnsurePreInstallHook => "pre-install-hook",
            Self::EnsurePostInstallHook => "post-install-hook",
            Self::EnsurePostClusterInstallHook => "post-cluster-install-hook",
            Self::EnsurePreClusterDeleteHook => "pre-cluster-delete-hook",
            Self::EnsurePostClusterDeleteHook => "post-cluster-delete-hook",
        }
    }

    /// All steps, phase by phase.
    pub fn all() -> impl Iterator<Item = Self> {
        let steps = Self::INSTALL.into_iter().chain(Self::UPGRADE);
        steps.chain(Self::DELETE)
    }

    /// The step with this name.
    pub fn parse(name: &str) -> Option<Self> {
        let mut steps = Self::all();
        steps.find(|step| step.to_string() == name)
    }
}

impl fmt::Display for LifecycleStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

//! The steps of a Cluster's install, upgrade and deletion, in order. This repeats the operator's list on purpose:
//! the judge shares no code with the operator.

/// When a step is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// During the install, and when a node joins.
    Install,
    /// When the version changes.
    Upgrade,
    /// When the Cluster is deleted.
    Delete,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Copies the files.
    Files,
    /// Runs the script of this hook.
    Hook(&'static str),
    /// Waits until the node is ready.
    Ready,
    /// Waits until the kubelet has the Cluster's version.
    Version,
}

/// A step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The type of its condition.
    pub(crate) name: &'static str,
    /// When it is due.
    pub(crate) phase: Phase,
    /// Whether it runs on every node, rather than on the first master.
    pub(crate) is_per_node: bool,
    /// What it does.
    pub(crate) work: Work,
}

const fn step(name: &'static str, phase: Phase, is_per_node: bool, work: Work) -> Step {
    Step { name, phase, is_per_node, work }
}

use Phase::{Delete, Install, Upgrade};
use Work::{Files, Hook, Ready, Version};

/// All steps.
static STEPS: [Step; 13] = [
    step("EnsureCopyFiles", Install, true, Files),
    step("EnsurePreClusterInstallHook", Install, false, Hook("PreClusterInstall")),
    step("EnsurePreInstallHook", Install, true, Hook("PreInstall")),
    step("EnsureNodesReady", Install, true, Ready),
    step("EnsurePostInstallHook", Install, true, Hook("PostInstall")),
    step("EnsurePostClusterInstallHook", Install, false, Hook("PostClusterInstall")),
    step("EnsurePreClusterUpgradeHook", Upgrade, false, Hook("PreClusterUpgrade")),
    step("EnsurePreUpgradeHook", Upgrade, true, Hook("PreUpgrade")),
    step("EnsureUpgrade", Upgrade, true, Version),
    step("EnsurePostUpgradeHook", Upgrade, true, Hook("PostUpgrade")),
    step("EnsurePostClusterUpgradeHook", Upgrade, false, Hook("PostClusterUpgrade")),
    step("EnsurePreClusterDeleteHook", Delete, false, Hook("PreClusterDelete")),
    step("EnsurePostClusterDeleteHook", Delete, false, Hook("PostClusterDelete")),
];

impl Step {
    /// The step with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Step> {
        STEPS.iter().find(|step| step.name == name)
    }

    /// The steps of a phase, in order.
    pub(crate) fn of_phase(phase: Phase) -> impl Iterator<Item = &'static Step> {
        STEPS.iter().filter(move |step| step.phase == phase)
    }

    /// The steps of the same phase that precede this one, in order.
    pub(crate) fn preceding(&'static self) -> impl Iterator<Item = &'static Step> {
        Self::of_phase(self.phase).take_while(move |step| *step != self)
    }
}

//! The rules that writes and settled states must satisfy: invariant 12.

use gamekeeper_core::api::names::{RUN_NODE, RUN_NODE_UID, RUN_STEP};
use gamekeeper_core::api::{Cluster, ClusterPhase, HookRun, LifecycleStep, StepScope};
use gamekeeper_core::lifecycle::{ClusterNode, NodeRecord, READY};
use gamekeeper_core::write::{Change, NodePatch, Write};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::state::{State, Step, annotation};

/// Checks a write before it is made.
pub fn check(state: &State, step: &Step) -> Result<(), String> {
    match step {
        Step::Status(cluster) => check_status(state, cluster),
        Step::Act(write) => check_write(state, write),
        Step::Get => Ok(()),
    }
}

fn check_write(state: &State, write: &Write) -> Result<(), String> {
    match write.change() {
        Change::CreateHookRun(run) => check_start(state, run),
        Change::PatchNode(NodePatch { uid, record: Some(record), .. }) => {
            check_node_record(state, uid, record)
        }
        Change::PatchWorkload(patch) if patch.finalizers.as_ref().is_some_and(Vec::is_empty) => {
            check_finalizer_removal(state)
        }
        Change::AdmitNode { name, uid, .. } => {
            let hook = LifecycleStep::EnsurePreInstallHook;
            match is_configured(state, hook) && !has_passed(state, hook, Some(uid), None) {
                true => Err(format!("{name} loses its taint before {hook}")),
                false => Ok(()),
            }
        }
        Change::PatchNode(_)
        | Change::PatchWorkload(_)
        | Change::Delete { .. }
        | Change::SetMetadata { .. } => Ok(()),
        change => panic!("no plan of a Cluster makes this write: {change:?}"),
    }
}

/// Whether the script of a step has passed: on the node with this uid, or on any node if there is no uid. A step of an
/// upgrade must have passed in the upgrade with this number. For other steps, the number is ignored.
fn has_passed(
    state: &State,
    step: LifecycleStep,
    node_uid: Option<&str>,
    upgrade: Option<i64>,
) -> bool {
    let upgrade = upgrade.filter(|_| LifecycleStep::UPGRADE.contains(&step));
    let mut passed = state.passed.iter();
    passed.any(|(passed_step, uid, number)| {
        *passed_step == step && *number == upgrade && node_uid.is_none_or(|it| it == uid)
    })
}

fn is_configured(state: &State, step: LifecycleStep) -> bool {
    let planned_for = state.planned_for.as_ref();
    planned_for.is_some_and(|it| step.command(&it.spec.features.hooks).is_some())
}

/// The number of the upgrade in a status.
fn upgrade_of(cluster: &Cluster) -> Option<i64> {
    let upgrade = cluster.status.as_ref()?.upgrade.as_ref();
    upgrade.map(|it| it.number)
}

fn version_of(cluster: &Cluster) -> Option<&str> {
    cluster.status.as_ref()?.version.as_deref()
}

/// Checks that the status records only steps that have passed, waits for the upgrade of a kubelet only after PreUpgrade
/// on its node, and ends an upgrade only after the last hook.
fn check_status(state: &State, cluster: &Cluster) -> Result<(), String> {
    let status = cluster.status.clone().unwrap_or_default();
    let upgrade = upgrade_of(cluster);
    let mut passed = status.passed_steps.iter();
    if let Some(step) = passed.find(|step| !has_passed(state, **step, None, upgrade)) {
        return Err(format!("{step} is recorded without a success"));
    }
    let hook = LifecycleStep::EnsurePreUpgradeHook;
    let is_awaited = |node: &&ClusterNode| {
        let mut conditions = status.conditions.iter();
        let words = format!("node {} has version", node.name);
        let waits_for_node = |it: &Condition| it.reason == "Waiting" && it.message.contains(&words);
        conditions
            .any(|it| it.type_ == LifecycleStep::EnsureUpgrade.to_string() && waits_for_node(it))
    };
    let mut nodes = state.planned_nodes.iter().filter(is_awaited);
    if let Some(node) = nodes.find(|it| !has_passed(state, hook, Some(&it.uid), upgrade)) {
        return Err(format!("{hook} was skipped on {}", node.name));
    }
    let old_version = state.planned_for.as_ref().and_then(version_of);
    let last_hook = LifecycleStep::EnsurePostClusterUpgradeHook;
    let is_over = old_version.is_some() && old_version != status.version.as_deref();
    match is_over && !has_passed(state, last_hook, None, upgrade) {
        true => Err(format!("the upgrade ends before {last_hook}")),
        false => Ok(()),
    }
}

fn check_node_record(state: &State, node_uid: &str, record: &str) -> Result<(), String> {
    let record: NodeRecord = serde_json::from_str(record).map_err(|it| it.to_string())?;
    let mut steps = record.passed.iter().chain(&record.upgraded);
    let unproven = steps.find(|step| !has_passed(state, **step, Some(node_uid), record.upgrade));
    unproven.map_or(Ok(()), |step| Err(format!("{step} is recorded without a success")))
}

fn check_finalizer_removal(state: &State) -> Result<(), String> {
    let mut steps = LifecycleStep::DELETE.into_iter();
    let unproven =
        |step: &LifecycleStep| is_configured(state, *step) && !has_passed(state, *step, None, None);
    if let Some(step) = steps.find(unproven) {
        return Err(format!("the finalizer is removed before {step}"));
    }
    let mut nodes = state.planned_nodes.iter();
    match nodes.any(|node| node.record.is_some()) {
        true => Err("the finalizer is removed before the records".to_owned()),
        false => Ok(()),
    }
}

/// Checks the start of a script against the Cluster that the last quorum GET returned.
fn check_start(state: &State, run: &HookRun) -> Result<(), String> {
    let [step, node, uid] = [RUN_STEP, RUN_NODE, RUN_NODE_UID].map(|key| annotation(run, key));
    let mut runs = state.stored.runs.iter();
    let is_other = |it: &HookRun| it.metadata.name != run.metadata.name;
    if runs.any(|it| !it.phase().is_completed() && annotation(it, RUN_NODE) == node && is_other(it))
    {
        return Err(format!("two scripts run on {node}"));
    }
    let step = LifecycleStep::parse(&step).ok_or("a run without a step")?;
    if step.scope() == StepScope::FirstMaster && node != "master" {
        return Err(format!("{step} starts on {node}, which is not the first master"));
    }
    let mut nodes = state.planned_nodes.iter();
    if nodes.any(|it| it.uid == uid && it.lost) {
        return Err(format!("{step} starts on {node}, which is lost"));
    }
    let cluster = state.confirmed.as_ref().or(state.stored.cluster.as_ref());
    let Some(cluster) = cluster else {
        return Err(format!("{step} starts without a Cluster"));
    };
    let is_deleted = cluster.metadata.deletion_timestamp.is_some();
    if is_deleted != LifecycleStep::DELETE.contains(&step) {
        return Err(format!("{step} starts in the wrong phase"));
    }
    if cluster.spec.paused {
        return Err(format!("{step} starts while paused"));
    }
    if LifecycleStep::UPGRADE.contains(&step) {
        check_upgrade(state, cluster, step, &uid)?;
    } else if !is_due(state, step) {
        return Err(format!("{step} starts on {node} too early"));
    }
    let upgrade = upgrade_of(cluster);
    let is_repeated = match step.scope() {
        StepScope::Nodes => has_passed(state, step, Some(&uid), upgrade),
        StepScope::FirstMaster => has_passed(state, step, None, upgrade),
    };
    // A script that was edited before its success was recorded may run again. In upgrades, users edit only the version,
    // and each upgrade has a number of its own.
    let is_same_script =
        cluster.metadata.generation == Some(1) || LifecycleStep::UPGRADE.contains(&step);
    match is_repeated && is_same_script {
        true => Err(format!("{step} is repeated on {node}")),
        false => Ok(()),
    }
}

/// Whether the steps before this step of an install or a deletion have passed.
fn is_due(state: &State, step: LifecycleStep) -> bool {
    let is_done =
        |step: LifecycleStep| !is_configured(state, step) || has_passed(state, step, None, None);
    match step {
        LifecycleStep::EnsurePreInstallHook => is_done(LifecycleStep::EnsurePreClusterInstallHook),
        LifecycleStep::EnsurePostClusterInstallHook => {
            let hook = LifecycleStep::EnsurePreInstallHook;
            let mut nodes = state.planned_nodes.iter();
            nodes.all(|node| has_passed(state, hook, Some(&node.uid), None))
        }
        LifecycleStep::EnsurePostClusterDeleteHook => {
            is_done(LifecycleStep::EnsurePreClusterDeleteHook)
        }
        _ => true,
    }
}

/// Checks the start of a script of an upgrade: the user still wants it, the steps before it have passed, and no other
/// node is being upgraded.
fn check_upgrade(
    state: &State,
    cluster: &Cluster,
    step: LifecycleStep,
    uid: &str,
) -> Result<(), String> {
    let wanted = cluster.spec.version.as_deref();
    if wanted == version_of(cluster) {
        return Err(format!("{step} starts although the version was set back"));
    }
    let upgrade = upgrade_of(cluster);
    let passed =
        |step: LifecycleStep, node: &ClusterNode| has_passed(state, step, Some(&node.uid), upgrade);
    let (pre_hook, post_hook) =
        (LifecycleStep::EnsurePreUpgradeHook, LifecycleStep::EnsurePostUpgradeHook);
    let mut nodes = state.planned_nodes.iter();
    let node = nodes.find(|node| node.uid == uid);
    let has_version = node.is_some_and(|node| Some(node.version.as_str()) == wanted);
    if step == pre_hook && node.is_some_and(|node| !node.unschedulable) {
        return Err(format!("{step} starts before its node is cordoned"));
    }
    let first_hook = LifecycleStep::EnsurePreClusterUpgradeHook;
    let is_due = match step {
        LifecycleStep::EnsurePreClusterUpgradeHook => true,
        LifecycleStep::EnsurePostUpgradeHook => {
            has_version && has_passed(state, first_hook, None, upgrade)
        }
        LifecycleStep::EnsurePostClusterUpgradeHook => {
            let mut nodes = state.planned_nodes.iter();
            nodes.all(|node| passed(post_hook, node))
        }
        _ => has_passed(state, first_hook, None, upgrade),
    };
    if !is_due {
        return Err(format!("{step} starts too early"));
    }
    let mut others = state.planned_nodes.iter().filter(|node| node.uid != uid);
    let is_being_upgraded = |node: &ClusterNode| passed(pre_hook, node) && !passed(post_hook, node);
    match step == pre_hook && others.any(is_being_upgraded) {
        true => Err(format!("{step} starts while another node is being upgraded")),
        false => Ok(()),
    }
}

/// Checks a state in which nothing is left to do.
pub fn check_settled(state: &State) -> Result<(), String> {
    let Some(cluster) = &state.stored.cluster else {
        let mut nodes = state.stored.nodes.iter();
        return match nodes.any(|node| node.record.is_some() || node.unschedulable) {
            true => Err("records or cordons are left behind".to_owned()),
            false => Ok(()),
        };
    };
    let mut nodes = state.stored.nodes.iter();
    if let Some(node) = nodes.find(|it| it.unschedulable) {
        return Err(format!("{} is left cordoned", node.name));
    }
    if cluster.spec.paused {
        return Ok(());
    }
    let status = cluster.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().find(|it| it.type_ == READY);
    let is_ready = ready.is_some_and(|it| it.status == "True");
    let mut nodes = state.stored.nodes.iter();
    let are_admitted = nodes.all(|node| node.not_installed_taint_index.is_none());
    let has_version =
        status.phase == ClusterPhase::Running && status.version == cluster.spec.version;
    match is_ready && are_admitted && has_version {
        true => Ok(()),
        false => Err(format!("the Cluster hangs: {ready:?}")),
    }
}

//! What must hold.

use gamekeeper_core::api::names::{RUN_NODE, RUN_NODE_UID, RUN_STEP};
use gamekeeper_core::api::{HookRun, LifecycleStep, StepScope};
use gamekeeper_core::plan::cluster::{ClusterAction, NodeRecord, READY};

use super::state::{State, Step, of};

/// Checks a write before it is made.
pub fn check(state: &State, step: &Step) -> Result<(), String> {
    match step {
        Step::Status(cluster) => {
            let status = cluster.status.clone().unwrap_or_default();
            let unproven = status
                .passed_steps
                .iter()
                .find(|step| !has_passed(state, **step, None));
            unproven.map_or(Ok(()), |step| {
                Err(format!("{step} is recorded without a success"))
            })
        }
        Step::Get => Ok(()),
        Step::Act(ClusterAction::CreateHookRun(run)) => starts(state, run),
        Step::Act(ClusterAction::RecordNode {
            node,
            record: Some(record),
        }) => {
            let record: NodeRecord = serde_json::from_str(record).map_err(|it| it.to_string())?;
            let mut steps = record.passed.iter();
            let unproven = steps.find(|step| !has_passed(state, **step, Some(&node.uid)));
            unproven.map_or(Ok(()), |step| {
                Err(format!("{step} is recorded without a success"))
            })
        }
        Step::Act(ClusterAction::SetFinalizer(false)) => {
            let unproven = LifecycleStep::DELETE.into_iter();
            let mut unproven = unproven.filter(|step| !has_passed(state, *step, None));
            if let Some(step) = unproven.next() {
                return Err(format!("the finalizer goes before {step}"));
            }
            let mut nodes = state.planned_nodes.iter();
            match nodes.any(|node| node.record.is_some()) {
                true => Err("the finalizer goes before the records".to_owned()),
                false => Ok(()),
            }
        }
        Step::Act(ClusterAction::AdmitNode(node)) => {
            let hook = LifecycleStep::EnsurePreInstallHook;
            match has_passed(state, hook, Some(&node.uid)) {
                true => Ok(()),
                false => Err(format!("{} loses its taint before {hook}", node.name)),
            }
        }
        Step::Act(_) => Ok(()),
    }
}

fn has_passed(state: &State, step: LifecycleStep, node: Option<&str>) -> bool {
    let mut passed = state.passed.iter();
    passed.any(|(of, uid)| *of == step && node.is_none_or(|node| node == uid))
}

/// Checks the start of a script.
fn starts(state: &State, run: &HookRun) -> Result<(), String> {
    let [step, node, uid] = [RUN_STEP, RUN_NODE, RUN_NODE_UID].map(|key| of(run, key));
    let mut runs = state.stored.runs.iter();
    let is_other = |it: &HookRun| it.metadata.name != run.metadata.name;
    if runs.any(|it| !it.phase().is_completed() && of(it, RUN_NODE) == node && is_other(it)) {
        return Err(format!("two scripts on {node}"));
    }
    let step = LifecycleStep::parse(&step).ok_or("a run of no step")?;
    if step.scope() == StepScope::FirstMaster && node != "master" {
        return Err(format!("{step} on {node}, which is not the first master"));
    }
    let planned_for = state.planned_for.as_ref();
    let is_deleted = planned_for.is_some_and(|it| it.metadata.deletion_timestamp.is_some());
    if is_deleted != LifecycleStep::DELETE.contains(&step) {
        return Err(format!("{step} in the wrong phase"));
    }
    if planned_for.is_some_and(|it| it.spec.paused) {
        return Err(format!("{step} starts while paused"));
    }
    let hook = |step: LifecycleStep| format!("{node} before {step}");
    let all_nodes = |wanted: LifecycleStep| {
        let mut nodes = state.planned_nodes.iter();
        nodes.all(|node| has_passed(state, wanted, Some(&node.uid)))
    };
    let is_due = match step {
        LifecycleStep::EnsurePreInstallHook => {
            has_passed(state, LifecycleStep::EnsurePreClusterInstallHook, None)
        }
        LifecycleStep::EnsurePostClusterInstallHook => {
            all_nodes(LifecycleStep::EnsurePreInstallHook)
        }
        LifecycleStep::EnsurePostClusterDeleteHook => {
            has_passed(state, LifecycleStep::EnsurePreClusterDeleteHook, None)
        }
        _ => true,
    };
    let is_repeated = match step.scope() {
        StepScope::Nodes => has_passed(state, step, Some(&uid)),
        StepScope::FirstMaster => has_passed(state, step, None),
    };
    match (is_due, is_repeated) {
        (false, _) => Err(format!("{step} starts on {}", hook(step))),
        // An edit after a success that was not recorded yet is another script.
        (_, true)
            if state
                .stored
                .cluster
                .as_ref()
                .is_some_and(|it| it.metadata.generation == Some(1)) =>
        {
            Err(format!("{step} is repeated on {node}"))
        }
        _ => Ok(()),
    }
}

/// Checks a state in which nothing is left to do.
pub fn is_settled(state: &State) -> Result<(), String> {
    let Some(cluster) = &state.stored.cluster else {
        let mut nodes = state.stored.nodes.iter();
        return match nodes.any(|node| node.record.is_some()) {
            true => Err("records are left behind".to_owned()),
            false => Ok(()),
        };
    };
    let status = cluster.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().find(|it| it.type_ == READY);
    let is_ready = ready.is_some_and(|it| it.status == "True");
    let is_complete = state
        .stored
        .nodes
        .iter()
        .all(|node| node.not_installed.is_none());
    match (is_ready && is_complete) || cluster.spec.paused {
        true => Ok(()),
        false => Err(format!("it hangs: {ready:?}")),
    }
}

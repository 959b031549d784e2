//! `kubectl game tree cluster/NAME`: a Cluster, its steps, and the attempts at each.

use gamekeeper_core::api::names::{RUN_NODE, RUN_STEP};
use gamekeeper_core::api::{Cluster, HookRun};
use gamekeeper_core::lifecycle::READY;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::{conditions, ready, tone};
use crate::age::age;
use crate::style::Style;
use crate::table::Cell;
use crate::view::run::{phase_cell, summary};
use crate::view::tree::{Node, render};

/// The tree of a Cluster, with those of the given runs that belong to it.
pub fn tree(cluster: &Cluster, runs: &[HookRun], style: Style, now: Timestamp) -> String {
    let uid = cluster.uid().unwrap_or_default();
    let is_own = |run: &&HookRun| run.owner_references().iter().any(|it| it.uid == uid);
    let mut runs: Vec<&HookRun> = runs.iter().filter(is_own).collect();
    runs.sort_by_key(|run| (run.creation_timestamp().map(|it| it.0), run.name_any()));
    let steps = conditions(cluster).filter(|it| it.type_ != READY);
    let root = Node {
        name: cluster.name_any(),
        kind: Cluster::KIND.into(),
        state: Cell::state(
            ready(cluster).map_or_else(Default::default, tone),
            super::phase(cluster),
        ),
        age: age(cluster.creation_timestamp().as_ref(), now),
        info: String::new(),
        children: steps.map(|it| step(it, &runs, now)).collect(),
    };
    render(&root, style)
}

fn step(condition: &Condition, runs: &[&HookRun], now: Timestamp) -> Node {
    let is_attempt = |run: &&&HookRun| annotation(run, RUN_STEP) == condition.type_;
    Node {
        name: condition.type_.clone(),
        kind: "Condition".into(),
        state: Cell::state(tone(condition), condition.reason.as_str()),
        age: age(Some(&condition.last_transition_time), now),
        info: condition.message.clone(),
        children: runs.iter().filter(is_attempt).map(|run| attempt(run, now)).collect(),
    }
}

fn attempt(run: &HookRun, now: Timestamp) -> Node {
    Node {
        name: run.name_any(),
        kind: "HookRun".into(),
        state: phase_cell(run.phase()),
        age: age(run.creation_timestamp().as_ref(), now),
        info: format!("node {}: {}", annotation(run, RUN_NODE), summary(run)),
        children: Vec::new(),
    }
}

fn annotation<'a>(run: &'a HookRun, key: &str) -> &'a str {
    run.annotations().get(key).map(String::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attempts_are_below_their_step() {
        let cluster = json!({
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "xa", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {},
            "status": {"phase": "Initializing", "conditions": [
                {"type": "EnsureCopyFiles", "status": "True", "reason": "Passed", "message": "passed on 3 of 3 nodes",
                 "lastTransitionTime": "2026-01-01T00:01:00Z"},
                {"type": "EnsurePreInstallHook", "status": "False", "reason": "FailedInit", "message": "exit 3",
                 "lastTransitionTime": "2026-01-01T00:02:00Z"},
                {"type": "Ready", "status": "False", "reason": "FailedInit", "message": "",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        });
        let run = |name: &str, uid: &str| {
            let run = json!({
                "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookRun",
                "metadata": {
                    "name": name, "creationTimestamp": "2026-01-01T00:03:00Z",
                    "annotations": {RUN_STEP: "EnsurePreInstallHook", RUN_NODE: "world-2"},
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Cluster", "name": "xa", "uid": uid}],
                },
                "spec": {"metrics": []},
                "status": {"phase": "Failed", "message": "script failed"},
            });
            serde_json::from_value::<HookRun>(run).expect("a HookRun")
        };
        let cluster: Cluster = serde_json::from_value(cluster).expect("a Cluster");
        let runs = [run("pre-install-hook-xa-world-2-k-1", "u"), run("other", "v")];
        let now = "2026-01-01T00:04:00Z".parse().expect("a time");
        assert_eq!(
            tree(&cluster, &runs, Style::PLAIN, now),
            "\
NAME                                    KIND        STATUS         AGE   INFO
xa                                      Cluster     Initializing   4m
|- EnsureCopyFiles                      Condition   Passed         3m    passed on 3 of 3 nodes
`- EnsurePreInstallHook                 Condition   FailedInit     2m    exit 3
   `- pre-install-hook-xa-world-2-k-1   HookRun     Failed         60s   node world-2: script failed
"
        );
    }
}

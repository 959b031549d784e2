//! Nodes that join, are lost or are replaced after the install, and the deletion of a Cluster.

use serde_json::json;

use super::sim::{Sim, node};
use crate::api::names::LIFECYCLE_FINALIZER;

fn installed() -> Sim {
    let mut sim = Sim::new(&json!({}));
    sim.pass_all();
    assert!(sim.condition("Ready").starts_with("True"));
    sim
}

#[test]
fn a_node_that_joins_is_installed_and_then_loses_its_taint() {
    let mut sim = installed();
    let mut new = node("world-333");
    new.ready = false;
    new.not_installed_taint_index = Some(0);
    sim.nodes.push(new);
    sim.settle();
    let mut ran = Vec::new();
    for _ in 0..2 {
        ran.extend(sim.live());
        sim.end("world-333", None);
    }
    // PreInstall has run, although the node is not ready. PostInstall waits until it is.
    assert!(sim.live().is_empty());
    let condition = sim.condition("EnsureNodesReady");
    assert!(condition.contains("Unknown Waiting: node world-333 is not ready"), "{condition}");
    sim.nodes[3].ready = true;
    sim.settle();
    ran.extend(sim.live());
    assert!(sim.nodes[3].not_installed_taint_index.is_some());
    sim.end("world-333", None);
    let steps: Vec<_> = ran.iter().map(|(step, _)| step.as_str()).collect();
    let expected = ["EnsureCopyFiles", "EnsurePreInstallHook", "EnsurePostInstallHook"];
    assert_eq!(steps, expected);
    assert_eq!(sim.nodes[3].not_installed_taint_index, None);
    assert!(sim.condition("Ready").starts_with("True"));
}

#[test]
fn a_new_node_with_the_same_name_is_installed() {
    let mut sim = installed();
    let mut replacement = node("world-1");
    replacement.uid = "another".to_owned();
    // It has a copy of the old node's annotation, which is ignored.
    replacement.record.clone_from(&sim.nodes[1].record);
    sim.nodes[1] = replacement;
    sim.settle();
    assert_eq!(sim.live(), [("EnsureCopyFiles".to_owned(), "world-1".to_owned())]);
}

#[test]
fn an_installed_node_is_not_installed_again_when_hooks_change_or_it_becomes_unready() {
    let mut sim = installed();
    sim.cluster.spec.features.hooks.pre_install = Some("/tmp/hooks/pre/other".to_owned());
    sim.nodes[1].ready = false;
    sim.cluster.status.as_mut().expect("a status").passed_steps.clear();
    sim.settle();
    assert!(sim.live().is_empty());
    assert!(sim.condition("Ready").starts_with("True"));
}

#[test]
fn a_step_waits_for_a_lost_node_until_the_node_is_deleted() {
    let mut sim = Sim::new(&json!({}));
    sim.nodes[1].lost = true;
    sim.nodes[1].ready = false;
    sim.settle();
    sim.end("master-0", None);
    sim.end("world-22", None);
    let condition = sim.condition("EnsureCopyFiles");
    assert!(condition.contains("node world-1 is lost; passed on 2 of 3"), "{condition}");
    assert!(sim.live().is_empty());
    sim.nodes.remove(1);
    sim.pass_all();
    assert!(sim.condition("Ready").starts_with("True"));
}

#[test]
fn a_run_on_a_lost_node_is_kept_and_one_on_a_deleted_node_is_canceled() {
    let mut sim = Sim::new(&json!({"parallelism": 3}));
    sim.settle();
    sim.nodes[1].lost = true;
    sim.settle();
    assert_eq!(sim.live().len(), 3);
    sim.nodes.remove(1);
    sim.settle();
    assert_eq!(sim.live().len(), 2);
    assert_eq!(sim.runs.len(), 2);
}

#[test]
fn a_lost_first_master_is_replaced_once_its_node_is_deleted() {
    let mut sim = Sim::new(&json!({"skipConditions": ["EnsureCopyFiles"]}));
    sim.nodes.push(super::sim::master("master-1"));
    sim.settle();
    let node_of_run = |sim: &Sim| sim.live()[0].1.clone();
    assert_eq!(node_of_run(&sim), "master-0");
    sim.nodes[0].lost = true;
    sim.settle();
    assert_eq!(node_of_run(&sim), "master-0");
    sim.nodes.remove(0);
    sim.settle();
    assert_eq!(node_of_run(&sim), "master-1");
}

#[test]
fn delete_hooks_run_and_the_finalizer_is_removed_last() {
    let mut sim = Sim::new(&json!({"hooks": {
        "PreClusterDelete": "/tmp/hooks/pre/bye", "PostClusterDelete": "/tmp/hooks/post/deleted",
    }}));
    sim.pass_all();
    assert!(sim.nodes.iter().all(|node| node.record.is_some()));
    sim.delete();
    assert_eq!(sim.live()[0].0, "EnsurePreClusterDeleteHook");
    sim.end("master-0", Some("exit 1: no"));
    let condition = sim.condition("EnsurePreClusterDeleteHook");
    assert!(condition.starts_with("False FailedDelete: exec"), "{condition}");
    assert!(!sim.is_deleted() && sim.nodes[1].record.is_some());
    sim.wait(10);
    sim.end("master-0", None);
    assert_eq!(sim.live()[0].0, "EnsurePostClusterDeleteHook");
    assert!(sim.nodes.iter().all(|node| node.record.is_none()));
    sim.end("master-0", None);
    assert!(sim.is_deleted());
}

#[test]
fn a_newer_cluster_with_a_copied_finalizer_can_be_deleted() {
    let mut sim = Sim::new(&json!({"hooks": {"PreClusterDelete": "/tmp/hooks/pre/bye"}}));
    sim.cluster.metadata.finalizers = Some(vec![LIFECYCLE_FINALIZER.to_owned()]);
    sim.older_cluster = Some("first".to_owned());
    sim.settle();
    sim.delete();
    assert!(sim.is_deleted() && sim.runs.is_empty());
}

#[test]
fn a_deletion_cancels_the_install_and_a_failing_delete_hook_can_be_skipped() {
    let mut sim = Sim::new(&json!({"hooks": {"PreClusterDelete": "/tmp/hooks/pre/bye"}}));
    sim.settle();
    assert_eq!(sim.live()[0].0, "EnsureCopyFiles");
    sim.delete();
    assert_eq!(sim.live(), [("EnsurePreClusterDeleteHook".to_owned(), "master-0".to_owned())]);
    sim.end("master-0", Some("exit 1"));
    sim.cluster
        .spec
        .features
        .skip_conditions
        .push(crate::api::LifecycleStep::EnsurePreClusterDeleteHook);
    sim.settle();
    assert!(sim.is_deleted());
}

#[test]
fn a_cluster_for_which_nothing_has_started_is_removed_immediately() {
    let mut sim = Sim::new(&json!({}));
    sim.delete();
    assert!(sim.is_deleted() && sim.runs.is_empty());
}

#[test]
fn a_run_that_a_user_deletes_is_created_again() {
    let mut sim = Sim::new(&json!({}));
    sim.settle();
    sim.runs.clear();
    sim.settle();
    assert_eq!(sim.live().len(), 1);
    assert!(sim.condition("EnsureCopyFiles").starts_with("Unknown Waiting"));
}

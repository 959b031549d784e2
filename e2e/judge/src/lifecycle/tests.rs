//! A Cluster's life without a violation, and one violation of each rule.

use serde_json::json;

use super::scenario::{MASTER, Scenario, WORKER};
use crate::scenario::OPERATOR;

const FIRST: &str = "EnsurePreClusterInstallHook";
const PER_NODE: &str = "EnsurePreInstallHook";
const LAST: &str = "EnsurePostClusterInstallHook";
const PRE_UPGRADE: &str = "EnsurePreUpgradeHook";
const POST_UPGRADE: &str = "EnsurePostUpgradeHook";

/// A Cluster whose nodes are installed. Only the last script of the cluster has yet to run.
fn installed() -> Scenario {
    let mut scenario = Scenario::installing();
    scenario.run(FIRST, MASTER);
    scenario.record_on_cluster(&[FIRST]);
    for node in [MASTER, WORKER] {
        scenario.run(PER_NODE, node);
        scenario.record(node, json!({"passed": [PER_NODE], "installed": true}));
    }
    scenario.wait(2);
    scenario
}

#[test]
fn an_orderly_life_violates_no_rule() {
    let mut scenario = installed();
    scenario.run(LAST, MASTER);
    scenario.status(json!({"passedSteps": [FIRST, LAST], "phase": "Running", "version": "1.36.3"}));
    let untainted = json!({"spec": {"taints": []}});
    scenario.change_node(OPERATOR, WORKER, untainted);
    scenario.spec(json!({"features": {"hooks": {"PreClusterDelete": "/d"}}}));
    scenario.delete();
    let step = "EnsurePreClusterDeleteHook";
    scenario.run(step, MASTER);
    scenario.record_on_cluster(&[FIRST, LAST, step]);
    for node in [MASTER, WORKER] {
        let no_record = json!({"metadata": {"annotations": null}});
        scenario.change_node(OPERATOR, node, no_record);
    }
    scenario.remove_finalizer();
    assert_eq!(scenario.broken(), [""; 0]);
}

#[test]
fn no_script_starts_before_the_previous_one_has_passed() {
    let mut scenario = Scenario::installing();
    scenario.run(PER_NODE, WORKER);
    assert_eq!(scenario.broken(), ["order"], "before the first script of the cluster");
    let mut scenario = Scenario::installing();
    scenario.run(FIRST, MASTER);
    scenario.record_on_cluster(&[FIRST]);
    scenario.run(PER_NODE, MASTER);
    scenario.record(MASTER, json!({"passed": [PER_NODE], "installed": true}));
    scenario.wait(2);
    scenario.run(LAST, MASTER);
    assert_eq!(scenario.broken(), ["order"], "before the script on the other node");
}

#[test]
fn a_failed_script_has_not_passed() {
    let mut scenario = Scenario::installing();
    let attempt = scenario.start(FIRST, MASTER);
    scenario.end(attempt, false);
    scenario.run(FIRST, MASTER);
    assert_eq!(scenario.broken(), [""; 0], "it may be repeated");
    let mut scenario = Scenario::installing();
    let attempt = scenario.start(FIRST, MASTER);
    scenario.end(attempt, false);
    scenario.record_on_cluster(&[FIRST]);
    assert_eq!(scenario.broken(), ["record"]);
}

#[test]
fn no_second_script_starts_on_a_node_while_one_runs() {
    let mut scenario = Scenario::installing();
    let first = scenario.start(FIRST, MASTER);
    scenario.wait(60);
    let second = scenario.start(FIRST, MASTER);
    scenario.end(first, false);
    scenario.end(second, true);
    assert_eq!(scenario.broken(), ["alone"]);
}

#[test]
fn a_canceled_script_runs_until_its_pod_has_ended() {
    for (has_ended, broken) in [(true, vec![]), (false, vec!["alone"])] {
        let mut scenario = Scenario::installing();
        let mut canceled = scenario.start(FIRST, MASTER);
        scenario.cancel(&mut canceled);
        if has_ended {
            scenario.end_pod(&canceled);
        }
        scenario.run(FIRST, MASTER);
        assert_eq!(scenario.broken(), broken);
    }
}

#[test]
fn no_script_runs_where_it_has_passed_according_to_the_record() {
    let mut scenario = installed();
    scenario.run(PER_NODE, WORKER);
    assert_eq!(scenario.broken(), ["repeat"]);
    let mut scenario = installed();
    scenario.run(FIRST, MASTER);
    assert_eq!(scenario.broken(), ["repeat"]);
}

#[test]
fn scripts_run_on_no_more_nodes_than_the_user_allows() {
    for (parallelism, expected) in [(1, vec!["parallelism"]), (2, vec![])] {
        let mut scenario = Scenario::with(json!({
            "hooks": {"PreInstall": "/a"}, "parallelism": parallelism,
        }));
        let attempts = [MASTER, WORKER].map(|node| scenario.start(PER_NODE, node));
        for attempt in attempts {
            scenario.end(attempt, true);
        }
        assert_eq!(scenario.broken(), expected);
    }
}

#[test]
fn no_script_starts_unless_the_user_wants_it() {
    for patch in [
        json!({"paused": true}),
        json!({"features": {"skipConditions": [FIRST]}}),
        json!({"features": {"hooks": {"PreClusterInstall": ""}}}),
    ] {
        let mut scenario = Scenario::installing();
        scenario.spec(patch.clone());
        scenario.run(FIRST, MASTER);
        assert_eq!(scenario.broken(), ["phase"], "{patch}");
    }
    let mut scenario = Scenario::installing();
    scenario.delete();
    scenario.run(FIRST, MASTER);
    assert_eq!(scenario.broken(), ["phase"], "while it is being deleted");
}

#[test]
fn a_users_change_may_be_unseen_for_a_second() {
    let mut scenario = Scenario::installing();
    scenario.spec(json!({"paused": true}));
    scenario.wait(-2);
    scenario.run(FIRST, MASTER);
    assert_eq!(scenario.broken(), [""; 0]);
}

#[test]
fn scripts_of_the_cluster_run_on_the_first_master() {
    let mut scenario = Scenario::installing();
    scenario.run(FIRST, WORKER);
    assert_eq!(scenario.broken(), ["master"]);
}

#[test]
fn no_script_starts_on_a_lost_node() {
    let mut scenario = Scenario::installing();
    let taint = json!([{"key": "node.kubernetes.io/unreachable"}]);
    scenario.change_node("controller", MASTER, json!({"spec": {"taints": taint}}));
    scenario.wait(2);
    scenario.run(FIRST, MASTER);
    assert_eq!(scenario.broken(), ["lost"]);
}

#[test]
fn nothing_is_recorded_without_a_success() {
    let mut scenario = Scenario::installing();
    scenario.record_on_cluster(&[FIRST]);
    scenario.record(WORKER, json!({"passed": [PER_NODE]}));
    scenario.record(MASTER, json!({"installed": true}));
    assert_eq!(scenario.broken(), ["record"; 3]);
}

#[test]
fn an_upgrade_goes_node_by_node() {
    let mut scenario = Scenario::upgrading();
    for node in [MASTER, WORKER] {
        scenario.cordon(OPERATOR, node, true);
        scenario.run(PRE_UPGRADE, node);
        let prepared = json!({"installed": true, "upgrade": 1, "upgraded": [PRE_UPGRADE]});
        scenario.record(node, prepared);
        scenario.upgrade_kubelet(node);
        scenario.run(POST_UPGRADE, node);
        let upgraded =
            json!({"installed": true, "upgrade": 1, "upgraded": [PRE_UPGRADE, POST_UPGRADE]});
        scenario.record(node, upgraded);
        scenario.cordon(OPERATOR, node, false);
        scenario.record(
            node,
            json!({"installed": true, "upgrade": 1, "upgraded": [PRE_UPGRADE, POST_UPGRADE]}),
        );
    }
    assert_eq!(scenario.broken(), [""; 0]);
}

#[test]
fn no_node_begins_its_upgrade_while_another_is_being_upgraded() {
    let mut scenario = Scenario::upgrading();
    for node in [MASTER, WORKER] {
        scenario.cordon(OPERATOR, node, true);
        scenario.run(PRE_UPGRADE, node);
    }
    assert_eq!(scenario.broken(), ["nodes at once"]);
}

#[test]
fn a_node_is_cordoned_before_its_first_script_and_upgraded_before_its_second() {
    let mut scenario = Scenario::upgrading();
    scenario.run(PRE_UPGRADE, MASTER);
    assert_eq!(scenario.broken(), ["drain"]);
    let mut scenario = Scenario::upgrading();
    scenario.cordon(OPERATOR, MASTER, true);
    scenario.run(PRE_UPGRADE, MASTER);
    scenario.record(MASTER, json!({"installed": true, "upgrade": 1, "upgraded": [PRE_UPGRADE]}));
    scenario.run(POST_UPGRADE, MASTER);
    assert_eq!(scenario.broken(), ["order"]);
}

#[test]
fn the_operator_uncordons_only_nodes_that_it_cordoned() {
    for (client, expected) in [(OPERATOR, vec![]), ("user", vec!["cordon"])] {
        let mut scenario = Scenario::upgrading();
        scenario.cordon(client, WORKER, true);
        scenario.wait(2);
        scenario.cordon(OPERATOR, WORKER, false);
        assert_eq!(scenario.broken(), expected, "{client}");
    }
    let mut scenario = Scenario::installing();
    scenario.cordon(OPERATOR, WORKER, true);
    assert_eq!(scenario.broken(), ["cordon"], "without an upgrade");
}

#[test]
fn a_node_is_admitted_only_when_its_install_is_complete() {
    let mut scenario = Scenario::installing();
    let untainted = json!({"spec": {"taints": []}});
    scenario.change_node(OPERATOR, WORKER, untainted);
    assert_eq!(scenario.broken(), ["taint"]);
}

#[test]
fn the_finalizer_is_removed_last() {
    let features = json!({"hooks": {"PostClusterDelete": "/a"}});
    let mut scenario = Scenario::with(features);
    scenario.delete();
    scenario.remove_finalizer();
    assert_eq!(scenario.broken(), ["finalizer"], "before the script has passed");
    let mut scenario = installed();
    scenario.delete();
    scenario.remove_finalizer();
    assert_eq!(scenario.broken(), ["finalizer"], "before the records are removed");
}

#[test]
fn an_unchanged_status_is_not_written() {
    let mut scenario = installed();
    scenario.status(json!({}));
    scenario.repeat_status();
    assert_eq!(scenario.broken(), ["settled"]);
}

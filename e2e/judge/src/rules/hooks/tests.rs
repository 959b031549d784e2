use serde_json::{Value, json};

use crate::names;
use crate::scenario::{OPERATOR, Scenario};

fn with_hook(point: &str) -> Value {
    let mut spec = json!({
        "replicas": 3,
        "updateStrategy": {"type": "InplaceUpdate", "maxUnavailable": 3},
    });
    spec[format!("{point}UpdateStrategy")] = json!({"hook": {"templateName": "test"}});
    spec
}

fn scaling_in() -> Scenario {
    let mut scenario = Scenario::with(with_hook("preDelete"));
    scenario.spec("user", json!({"replicas": 2}));
    scenario.wait(2);
    scenario
}

fn updating(point: &str) -> Scenario {
    let mut scenario = Scenario::with(with_hook(point));
    scenario.status(json!({"updateRevision": "v2"}));
    scenario.wait(2);
    scenario
}

#[test]
fn a_deletion_after_its_hook_is_allowed() {
    let mut scenario = scaling_in();
    scenario.pass("a", "PreDelete", "");
    scenario.delete("a");
    assert_eq!(scenario.verdict(), []);
}

#[test]
fn a_deletion_without_a_hook_is_a_violation() {
    let mut scenario = scaling_in();
    scenario.delete("a");
    assert_eq!(scenario.broken(), ["hooks"]);
}

#[test]
fn a_pod_without_running_containers_may_be_deleted_with_a_precondition() {
    for phase in ["Pending", "Running", "Failed"] {
        let mut scenario = scaling_in();
        scenario.report_phase("a", phase, false);
        scenario.if_unchanged().delete("a");
        assert_eq!(scenario.verdict(), [], "{phase}");
    }
    let mut scenario = Scenario::with(with_hook("preDelete"));
    scenario.spec("user", json!({"replicas": 4}));
    scenario.wait(2);
    scenario.create_unready("d", "v1");
    scenario.spec("user", json!({"replicas": 3}));
    scenario.wait(2);
    scenario.if_unchanged().delete("d");
    assert_eq!(scenario.verdict(), []);
}

#[test]
fn a_deletion_of_an_idle_pod_without_a_precondition_is_a_violation() {
    for phase in ["Pending", "Running", "Failed"] {
        let mut scenario = scaling_in();
        scenario.report_phase("a", phase, false);
        scenario.delete("a");
        assert_eq!(scenario.broken(), ["hooks"], "{phase}");
    }
}

#[test]
fn a_pod_needs_its_hook_once_it_is_reported_as_running() {
    for phase in ["Pending", "Running", "Failed"] {
        let mut scenario = scaling_in();
        scenario.report_phase("a", phase, false);
        scenario.wait(10);
        scenario.report_phase("a", phase, true);
        scenario.if_unchanged().delete("a");
        assert_eq!(scenario.broken(), ["hooks"], "{phase}");
    }
}

#[test]
fn an_unfinished_unsuccessful_or_deleted_run_allows_nothing() {
    for end in [None, Some("Failed"), Some("Inconclusive"), Some("Error")] {
        let mut scenario = scaling_in();
        scenario.run("a", "PreDelete", "");
        if let Some(end) = end {
            scenario.finish("a", "PreDelete", end);
        }
        scenario.delete("a");
        assert_eq!(scenario.broken(), ["hooks"], "{end:?}");
    }
    let mut scenario = scaling_in();
    scenario.pass("a", "PreDelete", "");
    scenario.delete_run("a", "PreDelete");
    scenario.delete("a");
    assert_eq!(scenario.broken(), ["hooks"]);
}

#[test]
fn a_run_by_another_client_allows_nothing() {
    let mut scenario = scaling_in();
    scenario.run_by("user", "a", "PreDelete", "");
    scenario.finish("a", "PreDelete", "Successful");
    scenario.delete("a");
    assert_eq!(scenario.broken(), ["hooks"]);
}

#[test]
fn a_success_counts_only_for_its_own_pod_point_and_hook() {
    let mut scenario = scaling_in();
    scenario.pass("b", "PreDelete", "");
    scenario.pass("a", "PreInplace", "");
    scenario.delete("a");
    assert_eq!(scenario.broken(), ["hooks"]);
    let mut scenario = scaling_in();
    scenario.pass("a", "PreDelete", "");
    let other = json!({"hook": {"templateName": "other"}});
    scenario.spec("user", json!({"preDeleteUpdateStrategy": other}));
    scenario.wait(2);
    scenario.delete("a");
    assert_eq!(scenario.broken(), ["hooks"]);
}

#[test]
fn a_success_is_valid_for_a_minute() {
    let mut scenario = scaling_in();
    scenario.pass("a", "PreDelete", "");
    scenario.wait(59);
    scenario.delete("a");
    assert_eq!(scenario.verdict(), []);
    let mut scenario = scaling_in();
    scenario.pass("a", "PreDelete", "");
    scenario.wait(62);
    scenario.delete("a");
    assert_eq!(scenario.broken(), ["hooks"]);
}

#[test]
fn the_age_of_a_success_does_not_depend_on_the_operators_clock() {
    let cases = [(3_600, 0, vec![]), (-3_600, 0, vec![]), (3_600, 62, vec!["hooks"])];
    for (ahead, seconds, broken) in cases {
        let mut scenario = scaling_in();
        scenario.run("a", "PreDelete", "");
        scenario.finish_with_clock_ahead("a", "PreDelete", ahead);
        scenario.wait(seconds);
        scenario.delete("a");
        assert_eq!(scenario.broken(), broken, "{ahead} s ahead, {seconds} s later");
    }
}

#[test]
fn an_in_place_update_waits_for_pre_inplace_or_else_pre_delete() {
    for (point, label) in [("preInplace", "PreInplace"), ("preDelete", "PreDelete")] {
        let mut scenario = updating(point);
        scenario.pass("a", label, "v2");
        scenario.close_gate("a");
        scenario.change("a", "v2");
        scenario.open_gate("a");
        assert_eq!(scenario.verdict(), [], "{point}");
        let mut scenario = updating(point);
        scenario.close_gate("a");
        assert_eq!(scenario.broken(), ["hooks"], "{point}");
    }
}

/// A workload that was deleted with its namespace.
fn in_a_deleted_namespace() -> Scenario {
    let mut scenario = scaling_in();
    scenario.delete_workload();
    scenario.wait(2);
    scenario
}

/// An annotation of the pod records that its hook ended in this phase. There is no HookRun.
fn record(scenario: &mut Scenario, phase: &str) {
    let result = json!({"hookRun": RUN, "phase": phase, "finishedAt": scenario.now()});
    scenario.annotate("a", names::HOOK_RESULT, &result.to_string());
}

const RUN: &str = "pre-delete-hook-v1-a-test";
const TERMINATING: &str =
    "unable to create new content in namespace x because it is being terminated";

#[test]
fn a_pod_in_a_deleted_namespace_may_record_the_result_of_its_hook() {
    for (phase, age, broken) in [
        ("Successful", 59, vec![]),
        ("Successful", 62, vec!["hooks"]),
        ("Failed", 0, vec!["hooks"]),
    ] {
        let mut scenario = in_a_deleted_namespace();
        scenario.refuse_run(OPERATOR, RUN, TERMINATING);
        record(&mut scenario, phase);
        scenario.wait(age);
        scenario.delete("a");
        assert_eq!(scenario.broken(), broken, "{phase}, {age} s later");
    }
}

#[test]
fn a_result_on_a_pod_counts_only_if_termination_prevented_its_hook_run() {
    let other = "pre-delete-hook-v1-b-test";
    for (user, run, why) in [
        (OPERATOR, RUN, "exceeded quota: runs"),
        (OPERATOR, other, TERMINATING),
        ("user", RUN, TERMINATING),
    ] {
        let mut scenario = in_a_deleted_namespace();
        scenario.refuse_run(user, run, why);
        record(&mut scenario, "Successful");
        scenario.delete("a");
        assert_eq!(scenario.broken(), ["hooks"], "{user} {run}: {why}");
    }
    let mut scenario = in_a_deleted_namespace();
    record(&mut scenario, "Successful");
    scenario.delete("a");
    assert_eq!(scenario.broken(), ["hooks"], "the HookRun was never refused");
    scenario.refuse_run(OPERATOR, RUN, TERMINATING);
    assert_eq!(scenario.broken(), ["hooks"], "the HookRun was refused after the deletion");
}

#[test]
fn a_result_on_a_pod_of_a_workload_that_is_not_deleted_allows_nothing() {
    let mut scenario = scaling_in();
    scenario.refuse_run(OPERATOR, RUN, TERMINATING);
    record(&mut scenario, "Successful");
    scenario.delete("a");
    assert_eq!(scenario.broken(), ["hooks"]);
}

#[test]
fn a_result_of_another_hook_allows_nothing() {
    let mut scenario = in_a_deleted_namespace();
    let other = json!({"hook": {"templateName": "other"}});
    scenario.spec("user", json!({"preDeleteUpdateStrategy": other}));
    scenario.wait(2);
    scenario.refuse_run(OPERATOR, RUN, TERMINATING);
    record(&mut scenario, "Successful");
    scenario.delete("a");
    assert_eq!(scenario.broken(), ["hooks"]);
}

#[test]
fn a_success_for_another_revision_allows_nothing() {
    let mut scenario = updating("preInplace");
    scenario.pass("a", "PreInplace", "v0");
    scenario.close_gate("a");
    assert_eq!(scenario.broken(), ["hooks"]);
}

#[test]
fn a_success_for_other_containers_allows_nothing() {
    for (changes, broken) in
        [(Some("log,main"), vec![]), (Some("log"), vec!["hooks"]), (None, vec!["hooks"])]
    {
        let mut scenario = updating("preInplace");
        scenario.remove_gate("a");
        scenario.pass_for("a", "PreInplace", "v2", changes);
        scenario.change("a", "v2");
        let hooks = scenario.broken().into_iter().filter(|it| *it == "hooks");
        assert_eq!(hooks.collect::<Vec<_>>(), broken, "{changes:?}");
    }
}

#[test]
fn a_change_of_another_container_during_an_update_needs_a_hook_of_its_own() {
    for (recorded, broken) in [("main", vec![]), ("log", vec!["hooks"])] {
        let mut scenario = updating("preInplace");
        scenario.pass("a", "PreInplace", "v2");
        scenario.close_gate("a");
        scenario.change("a", "v2");
        let record = json!({"revision": "v2", "containers": {recorded: {}}});
        scenario.annotate("a", names::RECORD, &record.to_string());
        scenario.delete_run("a", "PreInplace");
        scenario.status(json!({"updateRevision": "v3"}));
        scenario.wait(2);
        scenario.change("a", "v3");
        let hooks = scenario.broken().into_iter().filter(|it| *it == "hooks");
        assert_eq!(hooks.collect::<Vec<_>>(), broken, "{recorded}");
    }
}

#[test]
fn a_success_for_a_change_in_place_allows_no_deletion() {
    let mut scenario = scaling_in();
    scenario.pass_for("a", "PreDelete", "", Some("main"));
    scenario.delete("a");
    assert_eq!(scenario.broken(), ["hooks"]);
}

#[test]
fn a_run_deleted_by_another_client_may_be_unseen_for_a_second() {
    for (seconds, broken) in [(0, vec![]), (2, vec!["hooks"])] {
        let mut scenario = updating("preInplace");
        scenario.pass("a", "PreInplace", "v2");
        scenario.delete_run_by("garbage collector", "a", "PreInplace");
        scenario.wait(seconds);
        scenario.close_gate("a");
        assert_eq!(scenario.broken(), broken, "{seconds} s");
    }
}

#[test]
fn a_change_with_the_gate_open_needs_a_hook_of_its_own() {
    let mut scenario = updating("preInplace");
    scenario.pass("a", "PreInplace", "v2");
    scenario.close_gate("a");
    scenario.change("a", "v2");
    scenario.open_gate("a");
    scenario.delete_run("a", "PreInplace");
    scenario.status(json!({"updateRevision": "v3"}));
    scenario.wait(2);
    scenario.change("a", "v3");
    assert_eq!(scenario.broken(), ["hooks", "gate"]);
}

#[test]
fn the_next_container_of_a_pod_without_the_gate_needs_no_second_hook() {
    for (policy, target, broken) in [
        ("OrderedReady", "v2", vec![]),
        ("OrderedReady", "v3", vec!["hooks"]),
        ("DisOrdered", "v2", vec!["hooks"]),
    ] {
        let mut scenario = updating("preInplace");
        let order = json!({"inPlaceUpdateStrategy": {"policy": policy}});
        scenario.spec("user", json!({"updateStrategy": order}));
        scenario.add_container("a", "log");
        scenario.remove_gate("a");
        scenario.report_images("a", ["image-v1", "image-v1"]);
        scenario.pass("a", "PreInplace", target);
        if target == "v2" {
            scenario.change("a", "v2");
            scenario.report_images("a", ["image-v2", "image-v1"]);
            scenario.report_restart("a");
        }
        scenario.delete_run("a", "PreInplace");
        scenario.wait(90);
        scenario.change_container("a", 1, "v2");
        let hooks = scenario.broken();
        let hooks: Vec<_> = hooks.into_iter().filter(|it| *it == "hooks").collect();
        assert_eq!(hooks, broken, "{policy} {target}");
    }
}

#[test]
fn an_ongoing_update_may_change_its_target_without_a_second_hook() {
    let mut scenario = updating("preInplace");
    scenario.pass("a", "PreInplace", "v2");
    scenario.close_gate("a");
    scenario.change("a", "v2");
    scenario.delete_run("a", "PreInplace");
    scenario.status(json!({"updateRevision": "v3"}));
    scenario.wait(2);
    scenario.change("a", "v3");
    scenario.open_gate("a");
    assert_eq!(scenario.verdict(), []);
}

#[test]
fn a_hot_patch_needs_no_hook() {
    let mut scenario = updating("preInplace");
    scenario.hot_patch("a", "v2");
    assert_eq!(scenario.verdict(), []);
}

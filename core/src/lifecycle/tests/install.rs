//! Installs: the order of steps, failures, edits, skipped steps and pauses.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::sim::{Sim, node};
use crate::api::Cluster;
use crate::api::names::LIFECYCLE_FINALIZER;
use crate::lifecycle::seniority;
use crate::write::Change;

#[test]
fn the_steps_of_an_install_run_in_order() {
    let mut sim = Sim::new(&json!({}));
    let ran = sim.pass_all();
    let nodes = ["master-0", "world-1", "world-22"];
    let on_all = |step: &str| nodes.map(|node| format!("{step} {node}")).to_vec();
    let mut expected = on_all("EnsureCopyFiles");
    expected.push("EnsurePreClusterInstallHook master-0".to_owned());
    // Nodes do not wait for one another, so the order across nodes is not checked.
    for node in nodes {
        expected.push(format!("EnsurePreInstallHook {node}"));
        expected.push(format!("EnsurePostInstallHook {node}"));
    }
    expected.push("EnsurePostClusterInstallHook master-0".to_owned());
    let mut sorted = [ran.clone(), expected.clone()];
    sorted.iter_mut().for_each(|it| it.sort());
    assert_eq!(sorted[0], sorted[1]);
    let index_of = |step: &str| ran.iter().position(|it| it == step).expect(step);
    for node in nodes {
        let copy_files = index_of(&format!("EnsureCopyFiles {node}"));
        assert!(copy_files < index_of("EnsurePreClusterInstallHook master-0"));
        let [pre_install, post_install] =
            ["Pre", "Post"].map(|point| index_of(&format!("Ensure{point}InstallHook {node}")));
        assert!(index_of("EnsurePreClusterInstallHook master-0") < pre_install);
        assert!(pre_install < post_install);
        assert!(post_install < index_of("EnsurePostClusterInstallHook master-0"));
    }
    assert_eq!(sim.condition("Ready"), "True Installed: the install is complete on every node");
    assert_eq!(sim.condition("EnsurePostInstallHook"), "True Passed: passed on 3 of 3 nodes");
    let status = sim.cluster.status.as_ref().expect("a status");
    assert_eq!((status.nodes, status.installed_nodes), (3, 3));
    assert_eq!(format!("{:?}", status.phase), "Running");
    // Nothing is left to do, now or later.
    sim.wait(100_000);
    assert!(sim.live().is_empty() && sim.plan().wake.is_none());
}

#[test]
fn scripts_run_on_no_more_nodes_than_parallelism_allows() {
    let mut sim = Sim::new(&json!({"parallelism": 2}));
    sim.settle();
    assert_eq!(sim.live().len(), 2);
    sim.end("master-0", None);
    assert_eq!(sim.live().len(), 2);
}

#[test]
fn a_failing_script_is_repeated_with_backoff_until_it_passes() {
    let mut sim = Sim::new(&json!({"parallelism": 3}));
    sim.settle();
    for node in ["master-0", "world-1", "world-22"] {
        sim.end(node, None);
    }
    sim.end("master-0", None);
    sim.end("world-22", Some("exit 3: disk full"));
    assert_eq!(
        sim.condition("EnsurePreInstallHook"),
        "False FailedInit: exec \"/tmp/hooks/pre/pre-install\" on node world-22 failed: exit 3: disk full; \
         attempt 1, next at 14:00:10Z; passed on 0 of 3 nodes"
    );
    for node in ["master-0", "world-1"] {
        sim.end(node, None);
        sim.end(node, None);
    }
    assert!(sim.live().is_empty(), "{:?}", sim.live());
    let mut elapsed = 0;
    for (attempt, backoff) in [(2, 10), (3, 20), (4, 40), (5, 80), (6, 160), (7, 300), (8, 300)] {
        sim.wait(backoff - 1);
        assert!(sim.live().is_empty(), "attempt {attempt} started early");
        sim.wait(1);
        elapsed += backoff;
        let condition = sim.condition("EnsurePreInstallHook");
        let progress = format!(
            "disk full; attempt {}, attempt {attempt} in progress; passed on 2",
            attempt - 1
        );
        assert!(condition.contains(&progress), "{condition}");
        sim.end("world-22", Some("exit 3: disk full"));
        // Only the last attempt is kept.
        let failed = sim.runs.iter().filter(|run| run.phase().has_failed());
        assert_eq!(failed.count(), 1, "after {elapsed} s");
    }
    sim.wait(300);
    sim.end("world-22", None);
    sim.end("world-22", None);
    sim.end("master-0", None);
    assert!(sim.condition("Ready").starts_with("True"), "{}", sim.condition("Ready"));
    let failures = sim.events.iter().filter(|it| it.starts_with("FailedInit"));
    assert_eq!(failures.count(), 8);
}

#[test]
fn each_failed_attempt_is_reported_once_whatever_its_script_prints() {
    let mut sim = Sim::new(&json!({"parallelism": 3}));
    sim.settle();
    for printed in ["exit 1: passed; passed on 2 of 3 checks", "exit 1: retrying, next at noon"] {
        sim.events.clear();
        for _ in 0..3 {
            sim.end("master-0", Some(printed));
            sim.wait(300);
        }
        let failures = sim.events.iter().filter(|it| it.starts_with("FailedInit"));
        assert_eq!(failures.count(), 3, "{:?}", sim.events);
    }
}

#[test]
fn an_edit_or_a_retry_request_starts_the_next_attempt_immediately() {
    let fail = |sim: &mut Sim| {
        sim.settle();
        sim.end("master-0", Some("exit 1"));
        assert!(sim.condition("EnsureCopyFiles").contains("exit 1"));
        let is_running = sim.live().iter().any(|(_, node)| node == "master-0");
        assert!(!is_running);
    };
    let mut sim = Sim::new(&json!({"parallelism": 3}));
    fail(&mut sim);
    let annotations = sim.cluster.metadata.annotations.get_or_insert_default();
    annotations.insert(crate::api::names::RETRY_ANNOTATION.to_owned(), "1".to_owned());
    sim.settle();
    assert!(sim.live().iter().any(|(_, node)| node == "master-0"));
    // The same request does not start a third attempt.
    sim.end("master-0", Some("exit 1"));
    assert!(!sim.live().iter().any(|(_, node)| node == "master-0"));

    let mut sim = Sim::new(&json!({"parallelism": 3}));
    fail(&mut sim);
    sim.cluster.spec.features.files[0].dst = "/tmp/hooks/pre2".to_owned();
    sim.cluster.spec.features.hooks.pre_install = None;
    sim.cluster.spec.features.hooks.pre_cluster_install = None;
    sim.settle();
    assert!(sim.live().iter().any(|(_, node)| node == "master-0"));
}

#[test]
fn an_edit_cancels_the_running_script_before_the_new_one_starts() {
    let mut sim = Sim::new(&json!({}));
    sim.settle();
    let old = sim.run_of("master-0").metadata.name.clone();
    sim.cluster.spec.features.files.pop();
    sim.cluster.spec.features.hooks.post_install = None;
    sim.cluster.spec.features.hooks.post_cluster_install = None;
    let plan = sim.plan();
    let creates = plan.writes.iter().any(|it| it.trial().is_some());
    assert!(!creates, "the new run is created while the old one may be running: {:?}", plan.writes);
    sim.settle();
    assert_ne!(sim.run_of("master-0").metadata.name, old);
}

#[test]
fn a_step_that_is_skipped_or_has_no_script_counts_as_passed() {
    let mut sim = Sim::new(&json!({
        "files": [], "hooks": {"PreInstall": "/tmp/x"}, "skipConditions": ["EnsurePreInstallHook"],
    }));
    sim.cluster.spec.features.files = serde_json::from_value(json!([
        {"src": "hooks/pre/x", "dst": "/tmp/x"},
    ]))
    .expect("files");
    sim.cluster.spec.features.skip_conditions.push(crate::api::LifecycleStep::EnsureCopyFiles);
    sim.settle();
    assert!(sim.runs.is_empty());
    assert_eq!(sim.condition("EnsurePreInstallHook"), "True Skip: ");
    assert_eq!(sim.condition("EnsurePostInstallHook"), "True NotConfigured: ");
    assert!(sim.condition("Ready").starts_with("True"));
}

#[test]
fn skipping_a_failing_step_lets_the_others_continue() {
    let mut sim = Sim::new(&json!({}));
    sim.settle();
    sim.end("master-0", Some("exit 1"));
    sim.cluster.spec.features.skip_conditions.push(crate::api::LifecycleStep::EnsureCopyFiles);
    let ran = sim.pass_all();
    assert_eq!(ran[0], "EnsurePreClusterInstallHook master-0");
    assert!(sim.condition("Ready").starts_with("True"));
}

#[test]
fn no_script_starts_while_paused_and_a_running_one_completes() {
    let mut sim = Sim::new(&json!({}));
    sim.settle();
    sim.cluster.spec.paused = true;
    sim.settle();
    assert_eq!(sim.live().len(), 1);
    sim.end("master-0", None);
    assert!(sim.live().is_empty());
    assert_eq!(
        sim.condition("EnsureCopyFiles"),
        "Unknown Paused: spec.paused is true; passed on 1 of 3 nodes"
    );
    sim.cluster.spec.paused = false;
    sim.settle();
    assert_eq!(sim.live().len(), 1);
}

#[test]
fn cluster_hooks_wait_until_there_is_a_first_master() {
    let mut sim = Sim::new(&json!({"files": [], "hooks": {}}));
    sim.cluster = super::sim::example_cluster(&json!({}));
    sim.nodes = vec![node("world-1")];
    sim.pass_all();
    let condition = sim.condition("EnsurePreClusterInstallHook");
    assert!(condition.starts_with("False NoMaster: no node has the label"), "{condition}");
    sim.cluster.spec.machines =
        serde_json::from_value(json!([{"ip": "10.0.0.9"}])).expect("machines");
    sim.settle();
    let condition = sim.condition("EnsurePreClusterInstallHook");
    assert!(
        condition.contains("spec.machines[0].ip: no node has the address 10.0.0.9; correct it"),
        "{condition}"
    );
    sim.nodes[0].addresses.push("10.0.0.9".to_owned());
    let mut other = node("world-2");
    other.addresses.push("10.0.0.9".to_owned());
    sim.nodes.insert(0, other);
    let ran = sim.pass_all();
    let on_master: Vec<_> = ran.iter().filter(|it| it.contains("PreCluster")).collect();
    assert_eq!(on_master, ["EnsurePreClusterInstallHook world-1"]);
}

#[test]
fn of_two_clusters_the_one_that_has_begun_stays_the_first() {
    let mut clusters = ["b", "a"].map(|name| {
        let mut cluster = Sim::new(&json!({})).cluster;
        cluster.metadata.name = Some(name.to_owned());
        let created = "2026-01-01T00:00:00Z".parse().expect("a time");
        cluster.metadata.creation_timestamp = Some(Time(created));
        cluster
    });
    let first = |clusters: &[Cluster]| {
        let first = clusters.iter().min_by_key(|it| seniority(it));
        first.and_then(|it| it.metadata.name.clone())
    };
    assert_eq!(first(&clusters).as_deref(), Some("a"));
    clusters[0].metadata.finalizers = Some(vec![LIFECYCLE_FINALIZER.to_owned()]);
    assert_eq!(first(&clusters).as_deref(), Some("b"));
    let older = "2020-01-01T00:00:00Z".parse().expect("a time");
    clusters[1].metadata.creation_timestamp = Some(Time(older));
    assert_eq!(first(&clusters).as_deref(), Some("a"));
}

#[test]
fn an_invalid_field_or_an_older_cluster_blocks_everything() {
    let mut sim = Sim::new(&json!({"hooks": {"PreInstall": "/usr/bin/true"}}));
    sim.settle();
    let condition = sim.condition("Ready");
    assert!(
        condition.starts_with("False InvalidSpec: spec.features.hooks.PreInstall: Invalid value"),
        "{condition}"
    );
    assert!(sim.runs.is_empty());

    let mut sim = Sim::new(&json!({}));
    sim.older_cluster = Some("first".to_owned());
    sim.settle();
    assert!(sim.condition("Ready").starts_with("False AnotherCluster: Cluster first is older"));
    assert!(sim.runs.is_empty() && sim.cluster.metadata.finalizers.is_none());
    sim.older_cluster = None;
    sim.settle();
    assert_eq!(sim.live().len(), 1);
    // A newer Cluster that has begun cleans up first, as the oldest one.
    sim.older_cluster = Some("first".to_owned());
    sim.delete();
    assert!(!sim.is_deleted());
}

#[test]
fn a_run_that_the_api_server_refuses_is_reported_and_retried() {
    let mut sim = Sim::new(&json!({}));
    sim.refuses = |it| matches!(it, Change::CreateHookRun(_)).then_some("violates PodSecurity");
    for _ in 0..5 {
        sim.reconcile();
    }
    let told = sim.condition("Ready");
    assert!(told.contains("refuses to run it on node master-0: violates PodSecurity"), "{told}");
    assert!(sim.plan().writes.iter().any(|it| it.trial().is_some()));
    sim.refuses = |_| None;
    sim.settle();
    assert_eq!(sim.live().len(), 1);
}

#[test]
fn a_refused_write_of_a_node_or_the_cluster_is_told_and_attempted_again() {
    let mut sim = Sim::new(&json!({}));
    let told = "False FailedWrite: the API server refuses what all later writes depend on: not allowed; tried again within 30 s";
    // First the finalizer, then the record of the first node.
    for node in [None, Some("master-0")] {
        sim.refuses = |it| {
            let is_refused = matches!(it, Change::PatchWorkload(_) | Change::PatchNode(_));
            is_refused.then_some("not allowed")
        };
        sim.events.clear();
        match node {
            Some(node) => sim.end(node, None),
            None => sim.settle(),
        }
        assert_eq!(sim.condition("Ready"), told);
        assert_eq!(sim.events.iter().filter(|it| it.starts_with("FailedWrite")).count(), 1);
        sim.now += SignedDuration::from_secs(1);
        let again = sim.plan();
        assert!(!again.writes.is_empty());
        assert_eq!(again.status, None);
        sim.refuses = |_| None;
        sim.settle();
        assert!(!sim.condition("Ready").contains("FailedWrite"));
    }
}

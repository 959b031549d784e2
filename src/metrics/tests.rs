//! The metrics page: complete, documented, and without deleted objects.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::kinds::Whole;
use crate::reconcile::apply::WorkloadLabels;
use crate::runtime::queue::Queue;
use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::api::{GameDeployment, GameStatefulSet, HookRun, SidecarSet};

struct World {
    cache: Arc<Cache>,
    counters: Counters,
    registry: MetricsRegistry,
}

impl World {
    fn new(fence: Arc<Fence>) -> Self {
        let cache = Arc::new(Cache::default());
        let counters = Counters::default();
        let queues = Queues(vec![("gamedeployment", Arc::new(Queue::default()))]);
        let registry = MetricsRegistry::new(counters.clone(), queues, Arc::clone(&cache), fence);
        World { cache, counters, registry }
    }

    /// A leader in a cluster that has a GameStatefulSet, and a GameDeployment with this status.
    fn leader(status: Value) -> Self {
        let world = World::new(Fence::always_open());
        world.show(vec![json!({
            "metadata": {"namespace": "games", "name": "lobby", "uid": "u-1", "resourceVersion": "1"},
            "spec": {
                "replicas": 4, "selector": {}, "template": {},
                "updateStrategy": {"canary": {"steps": [{"partition": 3}, {"pause": {}}]}},
            },
            "status": status,
        })]);
        let set = json!({
            "metadata": {"namespace": "games", "name": "zone", "uid": "u-2", "resourceVersion": "1"},
            "spec": {"selector": {}, "template": {}, "serviceName": "zone"},
            "status": {"currentReplicas": 1, "readyReplicas": 1},
        });
        let set: GameStatefulSet = serde_json::from_value(set).expect("a set");
        let reflector = &world.cache.game_stateful_sets;
        reflector.show(1, vec![Whole::new(set, false)]);
        world
    }

    fn show(&self, deployments: Vec<Value>) {
        let read = |it| serde_json::from_value::<GameDeployment>(it).expect("a GameDeployment");
        let deployments = deployments.into_iter().map(read);
        let deployments = deployments.map(|it| Whole::new(it, false)).collect();
        self.cache.game_deployments.show(1, deployments);
    }

    fn page(&self) -> String {
        self.registry.page().expect("a page").text()
    }

    fn assert_line(&self, line: &str) {
        let page = self.page();
        assert!(page.lines().any(|it| it == line), "{line}\n{page}");
    }
}

/// The names and types of the metrics on a page. The names of counters include the suffix `_total`.
fn types(page: &str) -> BTreeSet<(String, String)> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .filter_map(|line| line.split_once(' '))
        .map(|(name, type_)| match type_ {
            "counter" => (format!("{name}_total"), type_.to_owned()),
            _ => (name.to_owned(), type_.to_owned()),
        })
        .collect()
}

#[test]
fn the_documentation_lists_exactly_the_exported_metrics() {
    let documented: BTreeSet<_> = include_str!("../../docs/metrics.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|row| {
            let (name, rest) = row.split_once("` | ")?;
            let (type_, _) = rest.split_once(" | ")?;
            Some((name.to_owned(), type_.to_owned()))
        })
        .collect();
    let exported = types(&World::new(Fence::always_open()).page());
    assert_eq!(documented, exported);
}

#[test]
fn no_metric_is_declared_twice() {
    let page = World::new(Fence::always_open()).page();
    let lines: Vec<_> = page.lines().filter(|it| it.starts_with("# TYPE")).collect();
    let distinct: BTreeSet<_> = lines.iter().collect();
    assert_eq!(lines.len(), distinct.len(), "{lines:#?}");
}

#[test]
fn workloads_have_the_labels_of_bk_bcs() {
    let world = World::leader(json!({"updatedReadyReplicas": 1}));
    for line in [
        "bkbcs_gamedeployment_replicas{gd=\"games/lobby\"} 4.0",
        "bkbcs_gamedeployment_updated_ready_replicas{gd=\"games/lobby\"} 1.0",
        "bkbcs_gamestatefulset_replicas{namespace=\"games\",name=\"zone\"} 1.0",
        "bkbcs_gamestatefulset_current_replicas{namespace=\"games\",name=\"zone\"} 1.0",
    ] {
        world.assert_line(line);
    }
}

#[test]
fn a_rollout_has_metrics_of_its_step_state_and_age() {
    let condition = |type_: &str, reason: &str| {
        json!({
            "type": type_, "status": "False", "reason": reason, "message": "",
            "lastTransitionTime": (jiff::Timestamp::now() - jiff::SignedDuration::from_secs(90)).to_string(),
        })
    };
    let world = World::leader(json!({
        "currentStepIndex": 1,
        "conditions": [
            condition("Ready", "RolloutUnderWay"),
            condition("Progressing", "PausedByCanaryPauseStep"),
        ],
    }));
    let labels = "kind=\"GameDeployment\",namespace=\"games\",name=\"lobby\"";
    world.assert_line(&format!("gamekeeper_rollout_step{{{labels}}} 1.0"));
    world.assert_line(&format!("gamekeeper_rollout_steps{{{labels}}} 2.0"));
    let reason = "reason=\"PausedByCanaryPauseStep\"";
    world.assert_line(&format!("gamekeeper_rollout_state{{{labels},{reason}}} 1.0"));
    let page = world.page();
    let age = page.lines().find_map(|line| {
        let age = line.strip_prefix("gamekeeper_rollout_age_seconds{")?;
        age.rsplit_once(' ')?.1.parse::<f64>().ok()
    });
    let age = age.expect("an age");
    assert!((90.0..100.0).contains(&age), "{age}");
}

#[test]
fn each_owner_has_the_number_of_its_hook_runs_and_the_age_of_the_oldest() {
    let world = World::leader(json!({}));
    let run = |name: &str, seconds: i64| {
        let started = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
        let run = json!({
            "metadata": {
                "namespace": "games", "name": name, "uid": name, "resourceVersion": "1",
                "creationTimestamp": started.to_string(),
                "labels": {"gamedeployment-type": "PreDelete"},
                "ownerReferences": [{
                    "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
                    "name": "lobby", "uid": "u-1", "controller": true,
                }],
            },
            "spec": {"metrics": []},
            "status": {"phase": "Running", "startedAt": started.to_string()},
        });
        let run: HookRun = serde_json::from_value(run).expect("a run");
        Whole::new(run, true)
    };
    let runs = vec![run("young", 10), run("old", 5_000)];
    world.cache.hook_runs.show(1, runs);
    let labels = "kind=\"GameDeployment\",namespace=\"games\",name=\"lobby\",point=\"PreDelete\"";
    world.assert_line(&format!("gamekeeper_hook_runs{{{labels},phase=\"Running\"}} 2.0"));
    let page = world.page();
    for series in [
        format!("gamekeeper_hook_wait_seconds{{{labels}}}"),
        "bkbcs_hook_hookrun_survive_time_seconds\
         {namespace=\"games\",owner=\"GameDeployment|lobby\",phase=\"Running\"}"
            .to_owned(),
    ] {
        let mut found = page.lines().filter_map(|it| it.strip_prefix(&*series));
        let oldest: f64 = found.next().expect("a line").trim().parse().expect("a number");
        assert!((5_000.0..5_100.0).contains(&oldest), "{series} {oldest}");
    }
}

#[test]
fn owners_that_do_not_exist_have_no_series() {
    let world = World::leader(json!({}));
    let run = |number: usize, kind: &str, uid: &str, controller: bool| {
        let name = format!("run-{number}");
        let run = json!({
            "metadata": {
                "namespace": "games", "name": name, "uid": name, "resourceVersion": "1",
                "labels": {"gamedeployment-type": "PreDelete"},
                "ownerReferences": [{
                    "apiVersion": "tkex.tencent.com/v1alpha1", "kind": kind,
                    "name": "made-up", "uid": uid, "controller": controller,
                }],
            },
            "spec": {"metrics": []},
            "status": {"phase": "Running", "startedAt": "2026-01-01T00:00:00Z"},
        });
        let run: HookRun = serde_json::from_value(run).expect("a run");
        Whole::new(run, true)
    };
    let runs = vec![
        run(1, "GameDeployment", "u-1", true),
        run(2, "GameDeployment", "u-9", true),
        run(3, "Anything", "u-1", false),
    ];
    world.cache.hook_runs.show(1, runs);
    let page = world.page();
    assert!(!page.contains("made-up"), "{page}");
    let unowned = "bkbcs_hook_hookrun_survive_time_seconds{namespace=\"games\",owner=\"\"";
    assert!(page.contains(unowned), "{page}");
}

#[test]
fn generations_are_unobserved_until_the_status_reflects_them() {
    let world = World::leader(json!({}));
    let deployment = |version: &str, observed: i64, deleted: Option<&str>| {
        json!({
            "metadata": {
                "namespace": "games", "name": "lobby", "uid": "u-1", "resourceVersion": version,
                "generation": 5, "deletionTimestamp": deleted,
            },
            "spec": {"selector": {}, "template": {}},
            "status": {"observedGeneration": observed},
        })
    };
    let labels = "kind=\"GameDeployment\",namespace=\"games\",name=\"lobby\"";
    let deleted = Some("2026-01-01T00:00:00Z");
    for (version, observed, deleted, unobserved) in
        [("2", 3, None, 2), ("3", 5, None, 0), ("4", 4, deleted, 0)]
    {
        world.show(vec![deployment(version, observed, deleted)]);
        world.assert_line(&format!("gamekeeper_unobserved_generations{{{labels}}} {unobserved}.0"));
    }
}

#[test]
fn the_series_of_a_workload_are_removed_with_it() {
    let world = World::leader(json!({}));
    let labels = |kind, name: &str| WorkloadLabels {
        kind,
        namespace: "games".to_owned(),
        name: name.to_owned(),
    };
    let took = Duration::from_millis(5);
    let writes = &world.counters.writes;
    writes.reconciled(labels(WorkloadKind::GameDeployment, "lobby"), true, took);
    writes.reconciled(labels(WorkloadKind::GameStatefulSet, "zone"), true, took);
    let name = "bkbcs_gamedeployment_reconcile_duration_seconds_bucket";
    world.assert_line(&format!("{name}{{le=\"10\",gd=\"games/lobby\",status=\"success\"}} 1"));
    world.show(Vec::new());
    let page = world.page();
    assert!(!page.contains("lobby"), "{page}");
    assert!(page.contains("name=\"zone\",status=\"success\""), "{page}");
}

#[test]
fn the_series_of_a_sidecar_set_show_the_counts_in_its_status() {
    let fence = Fence::always_open();
    let world = World::new(Arc::clone(&fence));
    let set = json!({
        "metadata": {"name": "log", "uid": "u-3", "resourceVersion": "1"},
        "spec": {"selector": {"matchLabels": {"app": "arena"}}, "containers": [{"name": "log"}]},
        "status": {
            "matchedPods": 5, "updatedPods": 4, "readyPods": 3, "updatedReadyPods": 2,
            "uninjectedPods": 1,
        },
    });
    let set: SidecarSet = serde_json::from_value(set).expect("a set");
    world.cache.sidecar_sets.show(1, vec![Whole::new(set, true)]);
    for (state, count) in
        [("matched", 5), ("updated", 4), ("ready", 3), ("updated_ready", 2), ("uninjected", 1)]
    {
        world.assert_line(&format!(
            "gamekeeper_sidecar_set_pods{{name=\"log\",state=\"{state}\"}} {count}.0"
        ));
    }
    fence.close();
    assert!(!world.page().contains("name=\"log\""));
}

#[test]
fn only_the_leader_exports_the_state_of_the_cluster() {
    let fence = Fence::always_open();
    let world = World::new(Arc::clone(&fence));
    world.show(vec![json!({
        "metadata": {"namespace": "games", "name": "lobby", "uid": "u-1", "resourceVersion": "1"},
        "spec": {"selector": {}, "template": {}},
    })]);
    assert!(world.page().contains("games/lobby"));
    world.assert_line("gamekeeper_leader 1.0");
    fence.close();
    assert!(!world.page().contains("games/lobby"));
    world.assert_line("gamekeeper_leader 0.0");
}

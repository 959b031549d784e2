//! Which objects a change concerns, for each watched kind.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::*;
use crate::kinds::slim_run;
use crate::kinds::{Interner, NamespaceHead, NodeHead, Settings, slim_claim, test_feed};
use crate::runtime::reflector::Origin;
use gamekeeper_core::api::names;
use gamekeeper_core::api::{GameDeployment, GameStatefulSet};

/// A router that knows two workloads, and the keys that it queues.
fn router() -> (Router, Arc<Mutex<BTreeSet<String>>>) {
    let queued = Arc::new(Mutex::new(BTreeSet::new()));
    let sink = |kind: &'static str| -> Sink {
        let queued = Arc::clone(&queued);
        Box::new(move |key| {
            queued.lock().unwrap().insert(format!("{kind} {key}"));
        })
    };
    let to_templates = sink("template");
    let to_runs = sink("run");
    let to_workloads = sink("workload");
    let to_workloads: WorkloadSink = Box::new(move |_, key| to_workloads(key));
    let sidecars = Arc::new(SidecarIndex::default());
    let router = Router::new(to_workloads, to_runs, to_templates, sidecars, sink("set"));
    let lobby = json!({
        "metadata": {"namespace": "games", "name": "lobby", "uid": "lobby-uid"},
        "spec": {
            "selector": {"matchLabels": {"app": "lobby"}},
            "template": {},
            "preDeleteUpdateStrategy": {"hook": {"templateName": "drained"}},
            "updateStrategy": {
                "type": "InplaceUpdate",
                "canary": {"steps": [{"hook": {"templateName": "healthy"}}]},
            },
        },
    });
    let lobby: GameDeployment = serde_json::from_value(lobby).unwrap();
    router.workload(&(None, Some(Arc::new(Whole::new(lobby, false)))));
    let world = json!({
        "metadata": {"namespace": "games", "name": "world", "uid": "world-uid"},
        "spec": {
            "selector": {"matchLabels": {"app": "world"}},
            "template": {
                "metadata": {"annotations": {names::FORCE_DELETE_ON_LOST_NODES: "true"}},
                "spec": {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]},
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
        },
    });
    let world: GameStatefulSet = serde_json::from_value(world).unwrap();
    router.workload(&(None, Some(Arc::new(Whole::new(world, false)))));
    queued.lock().unwrap().clear();
    (router, queued)
}

fn pod(labels: Value, owner: Option<&str>) -> Option<Arc<CachedPod>> {
    let owners = owner.map(|uid| {
        json!([{
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
            "name": "lobby", "uid": uid, "controller": true,
        }])
    });
    let pod = json!({"metadata": {
        "namespace": "games", "name": "a", "labels": labels, "ownerReferences": owners,
    }});
    let pod = test_feed::pod(None, Origin::Watch, &pod, &mut Interner::default());
    pod.map(Arc::new)
}

/// Takes the keys that have been queued since the last call.
fn queued(queued: &Mutex<BTreeSet<String>>) -> Vec<String> {
    std::mem::take(&mut *queued.lock().unwrap()).into_iter().collect()
}

#[test]
fn a_pod_that_is_deleted_or_released_concerns_its_owner() {
    let (router, keys) = router();
    router.pod(&(pod(json!({"app": "lobby"}), Some("lobby-uid")), None));
    assert_eq!(queued(&keys), ["workload games/lobby"]);
    let released = pod(json!({"app": "other"}), None);
    router.pod(&(pod(json!({"app": "lobby"}), Some("lobby-uid")), released));
    assert_eq!(queued(&keys), ["workload games/lobby"]);
}

#[test]
fn an_orphan_concerns_the_workloads_that_select_it() {
    let (router, keys) = router();
    router.pod(&(None, pod(json!({"app": "lobby"}), None)));
    assert_eq!(queued(&keys), ["workload games/lobby"]);
    router.pod(&(None, pod(json!({"app": "other"}), None)));
    router.pod(&(None, pod(json!({"app": "lobby"}), Some("another-uid"))));
    assert!(queued(&keys).is_empty());
}

/// Adds a SidecarSet that selects the pods of `lobby`.
fn add_set(router: &Router) {
    let set = json!({
        "metadata": {"name": "log"},
        "spec": {"selector": {"matchLabels": {"app": "lobby"}}, "containers": [{"name": "log"}]},
    });
    let set: SidecarSet = serde_json::from_value(set).unwrap();
    router.sidecar_set(&(None, Some(Arc::new(Whole::new(set, true)))));
}

fn namespace(name: &str, labels: Value) -> Option<Arc<CachedNamespace>> {
    let head = json!({"metadata": {"name": name, "labels": labels}});
    let head: NamespaceHead = serde_json::from_value(head).unwrap();
    Some(Arc::new(CachedNamespace::from(head)))
}

#[test]
fn a_pod_concerns_the_sidecar_sets_whose_counts_it_changes() {
    let (router, keys) = router();
    let labeled = || pod(json!({"app": "lobby"}), Some("lobby-uid"));
    router.pod(&(None, labeled()));
    assert_eq!(queued(&keys), ["workload games/lobby"]);
    add_set(&router);
    assert_eq!(queued(&keys), ["set /log"]);
    router.pod(&(None, labeled()));
    assert_eq!(queued(&keys), ["set /log", "workload games/lobby"]);
    router.pod(&(labeled(), labeled()));
    router.pod(&(None, pod(json!({"app": "other"}), Some("lobby-uid"))));
    assert_eq!(queued(&keys), ["workload games/lobby"]);
}

#[test]
fn a_pod_that_the_update_strategy_begins_to_choose_concerns_its_set() {
    let (router, keys) = router();
    let set = json!({
        "metadata": {"name": "log"},
        "spec": {
            "selector": {"matchLabels": {"app": "lobby"}}, "containers": [{"name": "log"}],
            "updateStrategy": {"selector": {"matchLabels": {"canary": "true"}}},
        },
    });
    let set: SidecarSet = serde_json::from_value(set).unwrap();
    router.sidecar_set(&(None, Some(Arc::new(Whole::new(set, true)))));
    queued(&keys);
    let labeled = |canary: &str| {
        let labels = json!({"app": "lobby", "canary": canary});
        pod(labels, Some("lobby-uid"))
    };
    router.pod(&(labeled("false"), labeled("true")));
    assert!(queued(&keys).contains(&"set /log".to_owned()));
    let orphan = pod(json!({"app": "lobby", "canary": "true"}), None);
    router.pod(&(labeled("true"), orphan));
    assert!(queued(&keys).contains(&"set /log".to_owned()));
}

#[test]
fn a_workload_that_holds_back_sidecar_updates_concerns_the_sets_that_reach_it() {
    let (router, keys) = router();
    let arena = |replicas: i32, paused: bool| {
        let arena = json!({
            "metadata": {"namespace": "games", "name": "arena", "uid": "arena-uid"},
            "spec": {
                "selector": {"matchLabels": {"app": "arena"}}, "template": {},
                "replicas": replicas, "updateStrategy": {"paused": paused},
            },
        });
        let arena: GameDeployment = serde_json::from_value(arena).unwrap();
        Some(Arc::new(Whole::new(arena, false)))
    };
    router.workload(&(arena(1, false), arena(1, true)));
    assert_eq!(queued(&keys), ["workload games/arena"], "there is no set");
    router.namespace(&(None, namespace("games", json!({}))));
    add_set(&router);
    queued(&keys);
    router.workload(&(arena(1, false), arena(2, false)));
    assert_eq!(queued(&keys), ["workload games/arena"]);
    for transition in [
        (arena(2, false), arena(2, true)),
        (arena(2, true), arena(2, false)),
        (arena(2, true), None),
    ] {
        router.workload(&transition);
        assert_eq!(queued(&keys), ["set /log", "workload games/arena"]);
    }
}

#[test]
fn the_end_of_a_tokens_hook_concerns_the_set() {
    let (router, keys) = router();
    add_set(&router);
    let revision = router.sidecars.get("log").unwrap().revision.clone();
    queued(&keys);
    let run = |target: &str, phase: &str| {
        let run = json!({
            "metadata": {
                "namespace": "games", "name": "check",
                "annotations": {names::RUN_POD_UID: "pod", names::RUN_TARGET: target},
            },
            "spec": {"metrics": []},
            "status": {"phase": phase},
        });
        Some(Arc::new(slim_run(serde_json::from_value(run).unwrap())))
    };
    let target = format!("lobby-1+{revision}");
    router.hook_run(&(run(&target, "Pending"), run(&target, "Running")));
    assert_eq!(queued(&keys), ["run games/check"]);
    router.hook_run(&(run(&target, "Running"), run(&target, "Failed")));
    assert_eq!(queued(&keys), ["run games/check", "set /log"]);
    router.hook_run(&(run("lobby-1", "Running"), run("lobby-1", "Failed")));
    assert_eq!(queued(&keys), ["run games/check"]);
}

#[test]
fn a_new_namespace_concerns_its_workloads() {
    let (router, keys) = router();
    router.namespace(&(None, namespace("other", json!({}))));
    assert!(queued(&keys).is_empty());
    router.namespace(&(None, namespace("games", json!({}))));
    assert_eq!(queued(&keys), ["workload games/lobby", "workload games/world"]);
    let labeled = namespace("games", json!({"team": "a"}));
    router.namespace(&(namespace("games", json!({})), labeled));
    assert!(queued(&keys).is_empty());
}

#[test]
fn a_template_concerns_the_workloads_that_name_it() {
    let (router, keys) = router();
    let template = |namespace: &str, name: &str| {
        let template = json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"metrics": []},
        });
        let template = Whole::new(serde_json::from_value(template).unwrap(), true);
        router.hook_template(&(Some(Arc::new(template)), None));
        queued(&keys)
    };
    assert_eq!(template("games", "drained"), ["workload games/lobby"]);
    assert_eq!(template("games", "healthy"), ["workload games/lobby"]);
    assert!(template("games", "unused").is_empty());
    assert!(template("other", "drained").is_empty());
}

fn run(owner: &str, status: Value) -> Option<Arc<CachedHookRun>> {
    let run = json!({
        "metadata": {
            "namespace": "games", "name": "check",
            "ownerReferences": [{
                "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
                "name": "lobby", "uid": owner, "controller": true,
            }],
        },
        "spec": {"metrics": []},
        "status": status,
    });
    let run = Whole::new(serde_json::from_value(run).unwrap(), true);
    Some(Arc::new(run))
}

#[test]
fn a_changed_run_concerns_itself_and_its_workload() {
    let (router, keys) = router();
    let running = || run("lobby-uid", json!({"phase": "Running"}));
    for transition in [
        (None, running()),
        (running(), None),
        (running(), run("lobby-uid", json!({"phase": "Failed"}))),
        (running(), run("world-uid", json!({"phase": "Running"}))),
    ] {
        router.hook_run(&transition);
        let queued = queued(&keys);
        assert!(queued.contains(&"run games/check".to_owned()), "{queued:?}");
        assert!(queued.contains(&"workload games/lobby".to_owned()), "{queued:?}");
    }
}

#[test]
fn a_measurement_concerns_only_its_run() {
    let (router, keys) = router();
    let measured = |count| {
        let results = json!([{"name": "players", "phase": "Running", "count": count}]);
        run("lobby-uid", json!({"phase": "Running", "metricResults": results}))
    };
    router.hook_run(&(measured(1), measured(2)));
    assert_eq!(queued(&keys), ["run games/check"]);
}

#[test]
fn a_claim_concerns_the_workload_whose_pods_it_is_named_after() {
    let (router, keys) = router();
    let claim = |name: &str| {
        let claim = json!({"metadata": {"namespace": "games", "name": name}});
        let claim = slim_claim(serde_json::from_value(claim).unwrap());
        router.claim(&(None, Some(Arc::new(claim))));
        queued(&keys)
    };
    assert_eq!(claim("data-world-0"), ["workload games/world"]);
    assert_eq!(claim("data-world-12"), ["workload games/world"]);
    for name in ["data-world-x", "data-world-01", "data-lobby-0", "data-world"] {
        assert!(claim(name).is_empty(), "{name}");
    }
}

#[test]
fn an_upgraded_kubelet_concerns_workloads_with_sidecars_or_in_place_updates() {
    let (router, keys) = router();
    router.namespace(&(None, namespace("games", json!({}))));
    queued(&keys);
    let node = |version: &str| {
        let node = json!({
            "metadata": {"name": "n"}, "status": {"nodeInfo": {"kubeletVersion": version}},
        });
        NodeState::new(serde_json::from_value(node).unwrap(), &Settings::default()).map(Arc::new)
    };
    router.node(&(node("v1.31.0"), node("v1.32.0")));
    assert_eq!(queued(&keys), ["workload games/world"]);
    router.node(&(node("v1.33.0"), node("v1.36.0")));
    assert!(queued(&keys).is_empty());
    router.node(&(None, node("v1.32.0")));
    assert!(queued(&keys).is_empty());
    router.node(&(node("v1.32.0"), node("v1.33.0")));
    assert_eq!(queued(&keys), ["workload games/lobby"]);
    let set = |list: &str| {
        let mut set = json!({
            "metadata": {"name": "log"},
            "spec": {"selector": {"matchLabels": {"app": "lobby"}}, "namespace": "games"},
        });
        set["spec"][list] = json!([{"name": "log", "restartPolicy": "Always"}]);
        let set: SidecarSet = serde_json::from_value(set).unwrap();
        router.sidecar_set(&(None, Some(Arc::new(Whole::new(set, true)))));
        queued(&keys);
    };
    set("containers");
    router.node(&(node("v1.31.0"), node("v1.32.0")));
    assert_eq!(queued(&keys), ["workload games/world"]);
    set("initContainers");
    router.node(&(node("v1.31.0"), node("v1.32.0")));
    let all = ["set /log", "workload games/lobby", "workload games/world"];
    assert_eq!(queued(&keys), all);
}

#[test]
fn a_lost_node_concerns_all_workloads() {
    let (router, keys) = router();
    let node = |taint: &str| {
        let node = json!({
            "metadata": {"name": "n"}, "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
        });
        let node: NodeHead = serde_json::from_value(node).unwrap();
        NodeState::new(node, &Settings::default()).map(Arc::new)
    };
    let lost = node("node.kubernetes.io/unreachable");
    router.node(&(None, lost.clone()));
    assert_eq!(queued(&keys), ["workload games/lobby", "workload games/world"]);
    router.node(&(lost.clone(), lost.clone()));
    assert!(queued(&keys).is_empty());
    router.node(&(lost, node("node.kubernetes.io/not-ready")));
    assert_eq!(queued(&keys), ["workload games/lobby", "workload games/world"]);
}

/// A tenant who names another workload's uid must not make the operator reconcile it.
#[test]
fn an_object_of_another_namespace_does_not_queue_the_workload_that_it_names() {
    let (router, all) = router();
    let run = |namespace: &str| {
        let mut run = test_feed::run("run", "lobby-uid");
        run.metadata.namespace = Some(namespace.to_owned());
        Some(Arc::new(slim_run(run)))
    };
    router.hook_run(&(None, run("elsewhere")));
    assert_eq!(queued(&all), ["run elsewhere/run"]);
    router.hook_run(&(None, run("games")));
    assert_eq!(queued(&all), ["run games/run", "workload games/lobby"]);
}

#[test]
fn an_unreadable_object_queues_the_workloads_that_it_may_belong_to() {
    let (router, all) = router();
    let key = ObjectKey::new("games", "a");
    let own = Control::Ours("lobby-uid".to_owned());
    router.unreadable(Kind::Pod, &key, &own);
    assert_eq!(queued(&all), ["workload games/lobby"]);
    router.unreadable(Kind::Pod, &key, &Control::None);
    assert_eq!(queued(&all), ["workload games/lobby", "workload games/world"]);
    router.unreadable(Kind::Pod, &key, &Control::Foreign);
    router.unreadable(Kind::HookRun, &ObjectKey::new("games", "b"), &Control::None);
    assert_eq!(queued(&all), ["run games/b"]);
    let claim = ObjectKey::new("games", "data-world-0");
    router.unreadable(Kind::Claim, &claim, &Control::None);
    assert_eq!(queued(&all), ["workload games/world"]);
}

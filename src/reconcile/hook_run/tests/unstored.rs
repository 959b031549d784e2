//! Runs that the API server does not store, because their namespace is being deleted.

use super::world::{Endpoint, QUICK, World, metric};
use super::*;
use crate::kinds::{Interner, test_feed};
use crate::runtime::reflector::Origin;

fn key() -> ObjectKey {
    ObjectKey::new("games", "unstored")
}

fn owners() -> Value {
    json!([{
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment", "name": "arena",
        "uid": "uid-arena", "controller": true,
    }])
}

/// The run of the pod `arena-0`.
fn run(metric: &Value) -> HookRun {
    let run = json!({
        "metadata": {
            "name": "unstored", "namespace": "games", "ownerReferences": owners(),
            "annotations": {names::RUN_POD_UID: "uid-arena-0"},
        },
        "spec": {"metrics": [metric]},
    });
    serde_json::from_value(run).expect("a run")
}

fn show_pods(world: &World, pods: &[&str]) {
    let interner = &mut Interner::default();
    let pods = pods.iter().filter_map(|name| {
        let pod = json!({"metadata": {
            "namespace": "games", "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": "1", "ownerReferences": owners(),
        }});
        test_feed::pod(None, Origin::List, &pod, interner)
    });
    world.cache.pods.show(1, pods.collect());
}

async fn until_successful(world: &World) {
    let runs = &world.cache.unstored_runs;
    let phase = || runs.get(&key()).map(|run| run.object.phase());
    world.until("the run has ended", |_| phase() == Some(HookPhase::Successful)).await;
}

/// The end of a run allows the deletion of its pod, so the audit log must show the result before the run ends.
#[tokio::test]
async fn a_run_does_not_end_before_its_result_is_written_to_its_pod() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let metric = metric(&endpoint, json!({}));
    let world = World::new(metric.clone());
    show_pods(&world, &["arena-0", "arena-1"]);
    *world.server.failures.lock().expect("failures") = vec![500, 403];
    let runs = &world.cache.unstored_runs;
    world.cache.hook_runs.show(11, Vec::new());
    runs.add(run(&metric));
    world.queue.add(key());
    until_successful(&world).await;
    let patches = world.server.pod_patches.lock().expect("patches").clone();
    assert_eq!(patches.len(), 3, "two were refused: {patches:?}");
    for (path, patch) in patches {
        assert_eq!(path, "/api/v1/namespaces/games/pods/arena-0");
        assert_eq!(patch["metadata"]["uid"], "uid-arena-0");
        let result = &patch["metadata"]["annotations"][names::HOOK_RESULT_ANNOTATION];
        let result = result.as_str().expect("a string");
        let result: Value = serde_json::from_str(result).expect("a result");
        assert_eq!(result["hookRun"], "unstored");
        assert_eq!(result["phase"], "Successful");
        assert!(result["finishedAt"].is_string(), "{result}");
    }
}

#[tokio::test]
async fn a_run_whose_pod_no_longer_exists_ends_without_a_write() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let metric = metric(&endpoint, json!({}));
    let world = World::new(metric.clone());
    show_pods(&world, &["arena-1"]);
    let runs = &world.cache.unstored_runs;
    runs.add(run(&metric));
    world.queue.add(key());
    until_successful(&world).await;
    let patches = world.server.pod_patches.lock().expect("patches");
    assert_eq!(*patches, []);
}

/// Between the assessment of a run and the write of its status, the run is replaced by another one with the same name.
#[tokio::test]
async fn a_status_is_not_written_to_another_run_with_the_same_name() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let metric = metric(&endpoint, json!({"initialDelay": "1h"}));
    let world = World::new(metric.clone());
    let runs = &world.cache.unstored_runs;
    runs.add(run(&metric));
    world.controller.advance(&key());
    let uid = runs.get(&key()).expect("the run").uid().to_owned();
    runs.remove(&key(), &uid);
    runs.add(run(&metric));
    let next = world.controller.write(&key(), None).await;
    assert!(matches!(next, Requeue::Settled(None)));
    let other = runs.get(&key()).expect("the other run");
    assert_ne!(other.uid(), uid);
    assert_eq!(other.object.status, None);
}

//! What is remembered between the reconciles of a workload.

use std::convert::Infallible;

use super::*;
use crate::kinds::test_feed::run;
use crate::reconcile::apply::events::EventRecorder;
use crate::reconcile::apply::{Applier, Metrics};
use crate::reconcile::{Planners, UnreadableReporter};
use crate::runtime::objects::Kind;
use crate::runtime::request::Requests;
use gamekeeper_core::api::GameDeployment;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;

/// A controller whose API server refuses all requests.
fn controller() -> Workloads<GameDeployment> {
    let refuse = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::builder().status(403).body(Body::empty()).unwrap())
    });
    let requests = Requests::new(Client::new(refuse, "games"));
    let (events, _) = EventRecorder::new();
    let cache = Arc::new(Cache::default());
    let metrics = Metrics::default();
    let keep_unstored = Arc::new(|_| true);
    let shared = Shared {
        applier: Applier::new(requests.clone(), events.clone(), metrics.clone(), keep_unstored),
        unreadable: UnreadableReporter::new(requests, events),
        metrics,
        planners: Arc::new(Planners::start().expect("threads")),
        cache: Arc::clone(&cache),
    };
    let reflector = Arc::clone(&cache.game_deployments);
    Workloads::new(shared, reflector)
}

/// A controller that remembers a taken name for the workload with this uid.
fn controller_with_memory(uid: &str) -> Workloads<GameDeployment> {
    let controller = controller();
    let mut remembered = controller.memories.recall(&controller.shared.cache, &key(), uid);
    remembered.memory.taken.insert("arena-0".to_owned());
    controller.memories.keep(key(), remembered);
    controller
}

fn key() -> ObjectKey {
    ObjectKey::new("games", "arena")
}

#[tokio::test]
async fn a_recreated_workload_inherits_nothing_from_the_deleted_one() {
    let controller = controller_with_memory("old");
    let cache = &controller.shared.cache;
    cache.expectations.record("old", Written::Unknown(Kind::Pod));
    cache.expectations.record("new", Written::Unknown(Kind::Pod));
    cache.unstored_runs.add(run("of-old", "old"));
    cache.unstored_runs.add(run("of-new", "new"));
    assert!(controller.memories.recall(cache, &key(), "new").memory.taken.is_empty());
    assert!(!cache.expectations.has("old") && cache.expectations.has("new"));
    let left = |uid| cache.unstored_runs.controlled_by("games", uid).len();
    assert_eq!((left("old"), left("new")), (0, 1));
}

#[tokio::test]
async fn what_was_learned_about_a_workload_is_remembered() {
    let controller = controller_with_memory("same");
    let cache = &controller.shared.cache;
    cache.expectations.record("same", Written::Unknown(Kind::Pod));
    cache.unstored_runs.add(run("run", "same"));
    assert!(controller.memories.recall(cache, &key(), "same").memory.taken.contains("arena-0"));
    assert!(cache.expectations.has("same"));
    assert_eq!(cache.unstored_runs.controlled_by("games", "same").len(), 1);
}

#[tokio::test]
async fn a_workload_is_planned_by_the_planners() {
    let mut controller = controller();
    controller.shared.planners = Arc::new(Planners::inline());
    let workload = serde_json::json!({
        "metadata": {"namespace": "games", "name": "arena", "uid": "uid-arena"},
        "spec": {"selector": {"matchLabels": {"app": "arena"}}, "template": {}},
    });
    let workload = Whole::new(serde_json::from_value(workload).expect("a workload"), false);
    let planned = controller.plan(&Arc::new(workload), &mut Memory::default()).await;
    assert!(planned.is_ok());
    assert_eq!(controller.shared.planners.made(), 1);
}

/// Its maps take fifty megabytes while it is planned.
#[tokio::test]
async fn a_workload_with_a_large_template_is_planned_alone_in_its_namespace() {
    let controller = controller();
    let workload = |variables: usize| {
        let env = vec![serde_json::json!({"name": "a"}); variables];
        let containers = serde_json::json!([{"name": "game", "env": env}]);
        let workload = serde_json::json!({
            "metadata": {"namespace": "games", "name": "arena", "uid": "uid-arena"},
            "spec": {
                "selector": {"matchLabels": {"app": "arena"}},
                "template": {"spec": {"containers": containers}},
            },
        });
        Arc::new(Whole::new(serde_json::from_value(workload).expect("a workload"), false))
    };
    let planners = Arc::clone(&controller.shared.planners);
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let other =
        tokio::spawn(async move { planners.run_large("games", move || gate.recv().is_ok()).await });
    tokio::task::yield_now().await;
    let mut memory = Memory::default();
    let (small, large) = (workload(1), workload(10_000));
    assert!(controller.plan(&small, &mut memory).await.is_ok());
    let mut planning = std::pin::pin!(controller.plan(&large, &mut memory));
    let planned = tokio::time::timeout(Duration::from_millis(500), &mut planning).await;
    assert!(planned.is_err(), "it does not wait");
    drop(go);
    other.await.expect("the other plan");
    assert!(planning.await.is_ok());
}

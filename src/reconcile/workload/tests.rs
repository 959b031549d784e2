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
    let keep_unstored = Arc::new(|_| {});
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
    let mut memory = Memory::default();
    memory.taken.insert("arena-0".to_owned());
    let uid = uid.to_owned();
    let remembered = Remembered { uid, memory };
    controller.memories().insert(key(), remembered);
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
    assert!(controller.recall(&key(), "new").taken.is_empty());
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
    assert!(controller.recall(&key(), "same").taken.contains("arena-0"));
    assert!(cache.expectations.has("same"));
    assert_eq!(cache.unstored_runs.controlled_by("games", "same").len(), 1);
}

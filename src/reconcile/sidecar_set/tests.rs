//! Runs the controller of SidecarSets against a scripted API server, and checks the pods and revisions that it writes.

use std::convert::Infallible;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{advance, sleep};

use super::*;
use crate::kinds::{
    CachedNamespace, CachedPod, CachedSetRevision, NamespaceHead, NodeHead, NodeState, Router,
    Settings, test_feed,
};
use crate::reconcile::apply::events::EventRecorder;
use crate::reconcile::apply::{Applier, Metrics};
use crate::reconcile::{Planners, UnreadableReporter};
use crate::runtime::request::Requests;
use gamekeeper_core::api::names::SIDECARS_LABEL;
use gamekeeper_core::observed::mark_key;
use gamekeeper_core::write::Remember;

const SET: &str = "/apis/tkex.tencent.com/v1alpha1/sidecarsets/log";

/// The code and message with which the server responds to a request ("METHOD path"); None if it accepts the request.
type Refuse = fn(&str) -> Option<(u16, &'static str)>;

/// An API server with one set.
struct Server {
    generation: AtomicI64,
    refuse: Refuse,
    /// Accepted and refused requests, with their bodies.
    sent: Mutex<Vec<(String, Value)>>,
}

impl Server {
    fn new(refuse: Refuse) -> Arc<Self> {
        Arc::new(Self { generation: AtomicI64::new(1), refuse, sent: Mutex::default() })
    }

    /// Responds after 200 ms to a patch, and immediately to other requests.
    fn client(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move {
                let method = request.method().clone();
                let line = format!("{method} {}", request.uri().path());
                let generation = server.generation.load(Ordering::SeqCst);
                let body = request.into_body().collect_bytes().await.expect("a body");
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                server.sent().push((line.clone(), Value::clone(&body)));
                if method == Method::PATCH {
                    sleep(Duration::from_millis(200)).await;
                }
                let version = generation.to_string();
                let seen = &body["metadata"]["resourceVersion"];
                let (code, body) = match (server.refuse)(&line) {
                    Some((code, message)) => (code, json!({"message": message})),
                    None if method == Method::PUT && *seen != *version => {
                        (409, json!({"reason": "Conflict", "message": "changed"}))
                    }
                    None => {
                        let uid = "uid-log";
                        let meta = json!({
                            "uid": uid, "generation": generation, "resourceVersion": version,
                        });
                        let mut stored = match method == Method::POST {
                            true => body,
                            false => json!({"metadata": {}}),
                        };
                        for (field, value) in meta.as_object().into_iter().flatten() {
                            stored["metadata"][field] = value.clone();
                        }
                        (200, stored)
                    }
                };
                let response = Response::builder().status(code);
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, Infallible>(response.body(body).expect("a response"))
            }
        });
        Client::new(service, "games")
    }

    fn sent(&self) -> MutexGuard<'_, Vec<(String, Value)>> {
        self.sent.lock().expect("the requests")
    }

    /// Takes all recorded requests, and returns those that begin with `start`: the rest of each line, and the body.
    fn take(&self, start: &str) -> Vec<(String, Value)> {
        let sent = std::mem::take(&mut *self.sent());
        let found = sent.into_iter().filter_map(|(line, body)| {
            let rest = line.strip_prefix(start)?;
            Some((rest.to_owned(), body))
        });
        found.collect()
    }

    /// The names of the pods for which a patch was sent since the last call, whether it was accepted or refused.
    fn patched(&self) -> Vec<String> {
        let pods = self.take("PATCH /api/v1/namespaces/web/pods/");
        pods.into_iter().map(|(pod, _)| pod).collect()
    }
}

fn set(containers: Value, strategy: Value) -> SidecarSet {
    let mut set = json!({
        "metadata": {"name": "log", "uid": "uid-log", "generation": 1, "resourceVersion": "1"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "namespaceSelector": {},
            "updateStrategy": strategy,
        },
    });
    for (list, value) in containers.as_object().expect("lists") {
        set["spec"][list] = value.clone();
    }
    serde_json::from_value(set).expect("a set")
}

fn log(image: &str) -> Value {
    json!({"containers": [{"name": "log", "image": image}]})
}

/// The controller, and a cache with the namespace `web`, in which pods of other controllers get sidecars.
struct World {
    server: Arc<Server>,
    cache: Arc<Cache>,
    router: Router,
    controller: Arc<SidecarSets>,
}

impl World {
    fn new(set: SidecarSet, refuse: Refuse) -> Self {
        let server = Server::new(refuse);
        let cache = Arc::new(Cache::default());
        let router = Router::to_nowhere(&cache.sidecars);
        let (events, _) = EventRecorder::new();
        let requests = Requests::new(server.client());
        let metrics = Metrics::default();
        let shared = Shared {
            cache: Arc::clone(&cache),
            applier: Applier::new(
                requests.clone(),
                events.clone(),
                metrics.clone(),
                Arc::new(|_| true),
            ),
            unreadable: UnreadableReporter::new(requests, events),
            metrics,
            planners: Arc::new(Planners::inline()),
        };
        let webhook = watch::channel(WebhookState::InForce).1;
        let controller = SidecarSets::new(shared, webhook);
        let namespace = json!({"metadata": {"name": "web", "labels": {SIDECARS_LABEL: "enabled"}}});
        let namespace: NamespaceHead = serde_json::from_value(namespace).expect("a namespace");
        let namespace = Arc::new(CachedNamespace::from(namespace));
        router.namespace(&(None, Some(namespace)));
        cache.set_revisions.show(1, Vec::new());
        let world = Self { server, cache, router, controller: Arc::new(controller) };
        world.show(set);
        world
    }

    /// A world in which the newest revision of the set is recorded.
    async fn recorded(set: SidecarSet, refuse: Refuse) -> Self {
        let world = Self::new(set, refuse);
        let revision = world.new_revision().await;
        world.show_revision(revision);
        world
    }

    fn show(&self, set: SidecarSet) {
        let set = || Whole::new(set.clone(), true);
        self.cache.sidecar_sets.show(1, vec![set()]);
        self.router.sidecar_set(&(None, Some(Arc::new(set()))));
    }

    /// Reconciles, and returns the revision that the controller creates.
    async fn new_revision(&self) -> Value {
        self.reconcile().await;
        let mut created = self.server.take("POST ");
        assert_eq!(created.len(), 1, "{created:?}");
        created.remove(0).1
    }

    fn show_revision(&self, mut revision: Value) {
        let version = self.cache.progress(Kind::SetRevision).borrow().version + 1;
        revision["metadata"]["uid"] = json!("uid-revision");
        revision["metadata"]["resourceVersion"] = json!(version.to_string());
        let revision = serde_json::from_value(revision).expect("a revision");
        let revision = CachedSetRevision::new(revision);
        self.cache.set_revisions.show(version, vec![revision.clone()]);
        self.router.set_revision(&(None, Some(Arc::new(revision))));
    }

    fn show_pods(&self, pods: &[Value]) {
        let version = self.cache.progress(Kind::Pod).borrow().version + 1;
        let pods = pods.iter().map(|pod| {
            let mut pod = pod.clone();
            pod["metadata"]["resourceVersion"] = json!(version.to_string());
            test_feed::kept_pod(None, &pod)
        });
        let pods: Vec<CachedPod> = pods.collect();
        self.cache.pods.show(version, pods);
    }

    /// Reconciles the set, at least a second after the last time.
    async fn reconcile(&self) -> Requeue {
        advance(Duration::from_secs(1)).await;
        let key = ObjectKey::new("", "log");
        let reconciled = Arc::clone(&self.controller).reconcile(key).await;
        reconciled.requeue
    }
}

/// A pod of a ReplicaSet. The pod runs `log:1` and has the set's newest shape.
fn pod(name: &str, set: &SidecarSet) -> Value {
    let parsed = Sidecars::of(set).expect("a selector");
    let mark = json!({"at": "log-0", "shape": parsed.shape, "in": ["log"]}).to_string();
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true,
    });
    let status = json!({
        "name": "log", "ready": true, "image": "log:1", "imageID": "", "restartCount": 0,
        "containerID": format!("{name}-1"),
    });
    json!({
        "metadata": {
            "namespace": "web", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
            "generation": 1, "labels": {"app": "web"}, "ownerReferences": [owner],
            "annotations": {mark_key("log"): mark},
        },
        "spec": {"containers": [{"name": "log", "image": "log:1"}]},
        "status": {
            "phase": "Running", "observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [status],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_is_named_in_the_status_and_does_not_hold_the_others_back() {
    let set = set(log("log:2"), json!({}));
    let world = World::recorded(set.clone(), |line| {
        line.ends_with("/pods/a").then_some((403, "log:2 is not signed"))
    })
    .await;
    world.show_pods(&[pod("a", &set), pod("b", &set)]);
    assert_eq!(world.reconcile().await, Requeue::Now);
    assert_eq!(world.server.patched(), ["a"]);
    world.reconcile().await;
    let statuses = world.server.sent().clone();
    assert_eq!(world.server.patched(), ["b"]);
    let mut statuses = statuses.iter().filter(|(line, _)| line.ends_with("/status"));
    let (_, status) = statuses.next_back().expect("a status");
    let progressing = &status["status"]["conditions"][1];
    let expected = "the API server refuses to update a pod: web/a: log:2 is not signed";
    let message = progressing["message"].as_str().expect("a message");
    assert!(message.contains(expected), "{progressing}");
    // Even when no other pod is left, the refused pod is not immediately tried again.
    world.show_pods(&[pod("a", &set)]);
    world.reconcile().await;
    assert_eq!(world.server.patched(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_patched_once_the_set_has_changed() {
    let set = set(log("log:2"), json!({"maxUnavailable": "100%"}));
    let world = World::recorded(set.clone(), |_| None).await;
    let pods: Vec<Value> = (0..100).map(|it| pod(&format!("p-{it}"), &set)).collect();
    world.show_pods(&pods);
    assert_eq!(world.reconcile().await, Requeue::Now);
    // Three batches start within half a second.
    assert_eq!(world.server.patched().len(), 3 * Memory::MAX_WRITES);
    world.server.generation.store(2, Ordering::SeqCst);
    assert_eq!(world.reconcile().await, Requeue::Conflict);
    assert_eq!(world.server.patched(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_updated_pod_takes_a_slot_until_it_runs_the_new_image() {
    let set = set(log("log:2"), json!({}));
    let world = World::recorded(set.clone(), |_| None).await;
    let (mut a, b) = (pod("a", &set), pod("b", &set));
    world.show_pods(&[a.clone(), b.clone()]);
    world.reconcile().await;
    let patches = world.server.take("PATCH /api/v1/namespaces/web/pods/");
    let [(name, patch)] = patches.as_slice() else {
        panic!("one patch, not {patches:?}");
    };
    assert_eq!(name, "a");
    // A kubelet reports the new generation before it stops the old container.
    json_patch::merge(&mut a["metadata"], &patch["metadata"]);
    a["spec"] = patch["spec"].clone();
    a["metadata"]["generation"] = json!(2);
    for observed in [json!(2), Value::Null] {
        a["status"]["observedGeneration"] = observed;
        world.show_pods(&[a.clone(), b.clone()]);
        world.reconcile().await;
        assert_eq!(world.server.patched(), [""; 0]);
    }
    a["status"]["containerStatuses"][0]["image"] = json!("log:2");
    a["status"]["containerStatuses"][0]["containerID"] = json!("a-2");
    world.show_pods(&[a, b]);
    world.reconcile().await;
    assert_eq!(world.server.patched(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_forged_mark_takes_no_slot() {
    let set = set(log("log:2"), json!({}));
    let world = World::recorded(set.clone(), |_| None).await;
    let mut forged = pod("a", &set);
    forged["spec"]["containers"][0]["name"] = json!("web");
    world.show_pods(&[forged, pod("b", &set)]);
    world.reconcile().await;
    assert_eq!(world.server.patched(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn an_old_kubelet_holds_back_only_its_own_pods_and_only_if_a_native_sidecar_changes() {
    let containers = |mesh: &str| {
        let mut containers = log("log:2");
        containers["initContainers"] =
            json!([{"name": "mesh", "image": mesh, "restartPolicy": "Always"}]);
        containers
    };
    for (mesh, expected) in [("mesh:1", &["a", "b"][..]), ("mesh:2", &["b"])] {
        let set = set(containers(mesh), json!({"maxUnavailable": 2}));
        let world = World::recorded(set.clone(), |_| None).await;
        let nodes = [("old", "v1.31.0")].map(|(name, version)| {
            let node = json!({
                "metadata": {"name": name}, "status": {"nodeInfo": {"kubeletVersion": version}},
            });
            let node: NodeHead = serde_json::from_value(node).expect("a node");
            NodeState::new(node, &Settings::default()).expect("the node is kept")
        });
        world.cache.nodes.show(1, nodes.into());
        let pods = [("a", "old"), ("b", "new")].map(|(name, node)| {
            let mut pod = pod(name, &set);
            pod["spec"]["nodeName"] = json!(node);
            pod["spec"]["initContainers"] =
                json!([{"name": "mesh", "image": "mesh:1", "restartPolicy": "Always"}]);
            pod
        });
        world.show_pods(&pods);
        world.reconcile().await;
        assert_eq!(world.server.patched(), expected, "{mesh}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_revision_of_a_deleted_set_of_the_same_name_is_adopted() {
    let world = World::new(set(log("log:2"), json!({})), |_| None);
    let revision = world.new_revision().await;
    for (owner, adopted) in [("other", false), ("log", true)] {
        let mut revision = revision.clone();
        let reference = &mut revision["metadata"]["ownerReferences"][0];
        reference["name"] = json!(owner);
        reference["uid"] = json!("another-uid");
        world.show_revision(revision);
        world.reconcile().await;
        let method = if adopted { "PATCH " } else { "PUT " };
        let writes = world.server.take(method);
        let (path, body) = writes.first().expect("a write");
        if adopted {
            let owners = &body["metadata"]["ownerReferences"];
            assert_eq!(owners[0]["uid"], "uid-log", "{path}");
        } else {
            // The name is taken, so the new revision gets another one.
            assert_eq!(*path, format!("{SET}/status"));
            assert_eq!(body["status"]["collisionCount"], 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn writes_for_a_deleted_set_are_no_longer_expected() {
    let set = set(log("log:2"), json!({}));
    let world = World::recorded(set.clone(), |_| None).await;
    world.show_pods(&[pod("a", &set)]);
    world.reconcile().await;
    assert_eq!(world.server.patched(), ["a"]);
    assert!(world.cache.expectations.has("uid-log"));
    world.cache.sidecar_sets.show(2, Vec::new());
    world.reconcile().await;
    assert!(!world.cache.expectations.has("uid-log"));
}

/// A set may have 150,000 pods.
#[tokio::test(start_paused = true)]
async fn a_set_is_planned_by_the_planners() {
    let world = World::new(set(log("log:1"), json!({})), |_| None);
    world.reconcile().await;
    assert_eq!(world.controller.shared.planners.made(), 1);
}

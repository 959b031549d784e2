//! `release` and `move` of several pods, some of which have changed or no longer exist.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{kubeconfig, program, reply, run, start_server, text};

const GUARDED: &str = "gamekeeper.tkex.tencent.com/guarded";

/// A cluster with at most one GameDeployment and some pods.
#[derive(Clone, Default)]
struct Server {
    workloads: Vec<Value>,
    pods: Vec<Value>,
    /// The status codes with which patches of a pod are refused, one for each attempt.
    refusals: Arc<Mutex<BTreeMap<&'static str, Vec<u16>>>>,
    /// What reading a single pod returns, if the pod was replaced after it was listed.
    successors: BTreeMap<&'static str, Value>,
    patched: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn with_workload(mut self) -> Self {
        self.workloads = vec![json!({
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
            "metadata": {"name": "game", "namespace": "default", "uid": "w", "resourceVersion": "1"},
            "spec": {
                "selector": {"matchLabels": {"app": "game"}},
                "template": {"metadata": {"labels": {"app": "game"}}, "spec": {"containers": []}},
            },
        })];
        self
    }

    fn with_pod(mut self, pod: Value) -> Self {
        self.pods.push(pod);
        self
    }

    fn refusing(self, pod: &'static str, statuses: &[u16]) -> Self {
        self.refusals.lock().expect("a lock").insert(pod, statuses.to_vec());
        self
    }

    fn answer(&self, request: &str) -> String {
        let line = request.lines().next().unwrap_or_default();
        let mut words = line.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let name = path.rsplit('/').next().unwrap_or_default();
        match (method, name) {
            ("PATCH", _) => self.patch(name),
            (_, "gamedeployments") => list(&self.workloads),
            (_, "game") if path.contains("/gamedeployments/") && !self.workloads.is_empty() => {
                reply("200 OK", &self.workloads[0])
            }
            (_, "pods") => {
                // A selector that includes the label's value does not match a pod whose label was changed.
                let has_value = query.contains("guarded%3Dw");
                let is_selected =
                    |pod: &&Value| !has_value || pod["metadata"]["labels"][GUARDED] == "w";
                let pods: Vec<Value> = self.pods.iter().filter(is_selected).cloned().collect();
                list(&pods)
            }
            (_, "gamestatefulsets" | "namespaces") => list(&[]),
            _ if path.contains("/pods/") => match self.pod(name) {
                Some(pod) => reply("200 OK", pod),
                None => failure(404),
            },
            _ => failure(404),
        }
    }

    fn pod(&self, name: &str) -> Option<&Value> {
        let mut pods = self.pods.iter();
        let found = pods.find(|pod| pod["metadata"]["name"] == name);
        self.successors.get(name).or(found)
    }

    fn patch(&self, pod: &str) -> String {
        let mut refusals = self.refusals.lock().expect("a lock");
        let statuses = refusals.get_mut(pod).filter(|it| !it.is_empty());
        match statuses.map(|it| it.remove(0)) {
            Some(status) => failure(status),
            None => {
                self.patched.lock().expect("a lock").push(pod.to_owned());
                reply(
                    "200 OK",
                    &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}}),
                )
            }
        }
    }

    /// Runs a command. Returns its exit code, its output, and the pods that it has changed.
    async fn run(&self, test: &str, args: &[&str]) -> (Option<i32>, String, Vec<String>) {
        let server = self.clone();
        let config = kubeconfig(test, &start_server(move |request| server.answer(request)));
        let ended = run(program(args).env("KUBECONFIG", config)).await;
        let output = text(&ended.stdout) + &text(&ended.stderr);
        let patched = self.patched.lock().expect("a lock").clone();
        (ended.status.code(), output, patched)
    }
}

pub(super) fn list(items: &[Value]) -> String {
    reply("200 OK", &json!({"kind": "List", "metadata": {}, "items": items}))
}

pub(super) fn failure(code: u16) -> String {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        _ => "Refused",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": format!("refused with {code}"),
    });
    reply(&format!("{code} Refused"), &status)
}

/// A guarded pod of the workload.
fn pod(name: &str) -> Value {
    let owner = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment", "name": "game", "uid": "w",
        "controller": true,
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "ownerReferences": [owner],
            "labels": {"app": "game", GUARDED: "w"},
        },
        "spec": {"nodeName": "n1", "containers": []},
    })
}

/// The pod that replaces one of the same name.
fn successor(name: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["uid"] = json!("another");
    pod
}

/// Four pods: one that no longer exists, one that conflicts once, one that was replaced, and one that can be changed.
fn changing_pods() -> Server {
    let mut server = Server::default().with_workload();
    for name in ["a", "b", "c", "d"] {
        server = server.with_pod(pod(name));
    }
    server.successors.insert("c", successor("c"));
    server.refusing("a", &[404]).refusing("b", &[409]).refusing("c", &[422])
}

#[tokio::test]
async fn a_pod_that_no_longer_exists_does_not_stop_a_release() {
    let (code, output, patched) =
        changing_pods().run("release-some", &["release", "game", "--yes"]).await;
    let expected = "pod/a no longer exists: skipped\npod/b released\npod/c no longer exists: skipped\n\
        pod/d released\ngamedeployment.tkex.tencent.com/game released: 2 pods\n";
    assert_eq!(output, expected);
    assert_eq!((code, patched), (Some(0), vec!["b".to_owned(), "d".to_owned()]));
}

#[tokio::test]
async fn a_pod_that_no_longer_exists_does_not_stop_a_move() {
    let (code, output, patched) = changing_pods().run("move-some", &["move", "node/n1"]).await;
    let expected = "pod/a no longer exists: skipped\npod/b will be moved\npod/c no longer exists: skipped\n\
        pod/d will be moved\nnode/n1: 2 pods will be moved\n";
    assert_eq!(output, expected);
    assert_eq!((code, patched), (Some(0), vec!["b".to_owned(), "d".to_owned()]));
}

#[tokio::test]
async fn a_pod_that_cannot_be_changed_does_not_stop_a_release_but_is_an_error() {
    let server = Server::default()
        .with_workload()
        .with_pod(pod("a"))
        .with_pod(pod("b"))
        .with_pod(pod("c"))
        .refusing("a", &[409; 9])
        .refusing("b", &[422]);
    let (code, output, patched) =
        server.run("release-refused", &["release", "game", "--yes"]).await;
    assert_eq!((code, patched), (Some(1), vec!["c".to_owned()]), "{output}");
    for expected in ["refused with 409", "refused with 422", "game released: 1 pod\n"] {
        assert!(output.contains(expected), "{output}");
    }
}

#[tokio::test]
async fn a_pod_whose_labels_were_changed_is_released_with_its_workload() {
    let mut changed = pod("b");
    changed["metadata"]["labels"] = json!({GUARDED: "edited"});
    let mut orphaned = pod("c");
    orphaned["metadata"]["ownerReferences"] = json!([]);
    let mut other = pod("d");
    other["metadata"]["labels"][GUARDED] = json!("x");
    other["metadata"]["ownerReferences"][0]["uid"] = json!("x");
    let server = Server::default().with_workload();
    let server = [pod("a"), changed, orphaned, other].into_iter().fold(server, Server::with_pod);
    let (code, output, patched) =
        server.run("release-owned", &["release", "gd/game", "--yes"]).await;
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(patched, ["a", "b", "c"]);
}

#[tokio::test]
async fn pods_are_released_after_their_workload_is_deleted() {
    let server = Server::default().with_pod(pod("a")).with_pod(pod("b"));
    let (code, output, patched) =
        server.run("release-left-pod", &["release", "pod/a", "--yes"]).await;
    assert_eq!((code, output.as_str()), (Some(0), "pod/a released\n"));
    assert_eq!(patched, ["a"]);
    let server = Server::default().with_pod(pod("a")).with_pod(pod("b"));
    let (code, output, patched) = server.run("release-left", &["release", "game", "--yes"]).await;
    let expected = "pod/a released\npod/b released\n\
        gamedeployment.tkex.tencent.com/game released: 2 pods\n";
    assert_eq!((code, output.as_str()), (Some(0), expected));
    assert_eq!(patched, ["a", "b"]);
    let (code, output, _) = server.run("release-none", &["release", "gsts/game"]).await;
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("no GameStatefulSet \"game\""), "{output}");
}

#[tokio::test]
async fn terminating_pods_on_a_node_are_not_moved_again() {
    let mut terminating = pod("a");
    terminating["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:00:00Z");
    let server = Server::default().with_pod(terminating);
    let (code, output, _) = server.run("move-terminating", &["move", "node/n1"]).await;
    let expected = "error: all pods of GameDeployments and GameStatefulSets in namespace default (use -A for all) on \
        node/n1 are already being deleted\n";
    assert_eq!((code, output.as_str()), (Some(1), expected));
    let (_, output, _) = Server::default().run("move-none", &["move", "node/n1", "-A"]).await;
    let expected =
        "error: no pod of a GameDeployment or GameStatefulSet in the cluster is on node/n1\n";
    assert_eq!(output, expected);
}

#[tokio::test]
async fn a_pod_to_move_is_not_looked_up_in_all_namespaces() {
    let server = Server::default().with_pod(pod("a"));
    let (code, output, patched) = server.run("move-all", &["move", "pod/a", "-A"]).await;
    let expected = "error: cannot look up \"pod/a\" in all namespaces: set its namespace with -n\n";
    assert_eq!((code, output.as_str()), (Some(1), expected));
    assert!(patched.is_empty());
}

#[tokio::test]
async fn pods_nodes_and_files_are_completed() {
    let mut terminating = pod("t");
    terminating["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:00:00Z");
    let mut other = pod("web");
    other["metadata"]["ownerReferences"] = json!([]);
    let server = Server::default().with_workload();
    let server =
        [pod("a"), pod("b"), terminating, other].into_iter().fold(server, Server::with_pod);
    for (words, expected) in [
        (&["move", ""][..], "pod/a\npod/b\nnode/n1\n:4\n"),
        (&["move", "pod/b"], "pod/b\n:4\n"),
        (&["pause", ""], "gd/game\ngame\n:4\n"),
        (&["lint", ""], ":0\n"),
        (&["get", "--kubeconfig", ""], ":0\n"),
        (&["get", "--context", ""], ":4\n"),
    ] {
        let args = [&["__complete"], words].concat();
        let (_, output, _) = server.run("complete", &args).await;
        assert_eq!(output, expected, "{words:?}");
    }
}

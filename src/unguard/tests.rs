//! Removes guards from a fake API server, while other clients change its objects.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;

/// The response (code and body) to a request ("METHOD path"), given how many times the same request was made before.
type Script = fn(&str, usize) -> (u16, Value);

const DEPLOYMENTS: &str = "/apis/tkex.tencent.com/v1alpha1/gamedeployments";
const STATEFUL_SETS: &str = "/apis/tkex.tencent.com/v1alpha1/gamestatefulsets";
const BUDGETS: &str = "/apis/policy/v1/poddisruptionbudgets";

/// A client of the fake API server, and the requests that it makes.
fn server(script: Script) -> (Client, Arc<Mutex<Vec<String>>>) {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let service = service_fn({
        let sent = Arc::clone(&sent);
        move |request: Request<Body>| {
            let line = format!("{} {}", request.method(), request.uri().path());
            let mut sent = sent.lock().unwrap();
            let repeats = sent.iter().filter(|it| **it == line).count();
            let (code, body) = script(&line, repeats);
            sent.push(line);
            let response = Response::builder().status(code);
            let response = response.body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(response.unwrap()) }
        }
    });
    (Client::new(service, "system"), sent)
}

/// The response to a request whose details do not matter: no objects, or success.
fn default_response(line: &str) -> (u16, Value) {
    let metadata = json!({"name": "any", "namespace": "games", "resourceVersion": "9"});
    let method = line.split(' ').next();
    let body = match method {
        Some("GET") => list(&[]),
        Some("DELETE") => json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}),
        _ => json!({"apiVersion": "v1", "kind": "Any", "metadata": metadata}),
    };
    (200, body)
}

fn list(objects: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": objects})
}

fn object(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Any", "metadata": {
        "name": name, "namespace": "games", "uid": format!("uid-{name}"), "resourceVersion": "7",
        "finalizers": ["gamekeeper.tkex.tencent.com/guarded"],
    }})
}

fn failure(code: u16) -> (u16, Value) {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "Other",
    };
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "refused", "reason": reason, "code": code});
    (code, body)
}

fn guards(client: Client, namespace: Option<&str>) -> Guards {
    Guards { client, namespace: namespace.map(str::to_owned) }
}

fn count(sent: &Mutex<Vec<String>>, line: &str) -> usize {
    let sent = sent.lock().unwrap();
    sent.iter().filter(|it| it.starts_with(line)).count()
}

/// Users delete the CRDs before they uninstall the chart.
#[tokio::test]
async fn deleted_crds_do_not_keep_pods_guarded() {
    let (client, sent) = server(|line, _| {
        let is_workload = line.ends_with("gamedeployments") || line.ends_with("gamestatefulsets");
        match line {
            _ if is_workload => failure(404),
            _ if line == format!("GET {BUDGETS}") => (200, list(&[object("budget")])),
            _ => default_response(line),
        }
    });
    let guards = guards(client, None);
    guards.ensure_none_waits(false).await.expect("none waits");
    guards.unguard().await.expect("the guards are removed");
    assert_eq!(count(&sent, "DELETE"), 1);
}

#[tokio::test]
async fn objects_that_were_deleted_in_the_meantime_need_no_change() {
    let (client, sent) = server(|line, _| match line {
        _ if !line.starts_with("GET") => failure(404),
        _ => (200, list(&[object("any")])),
    });
    let guards = guards(client, None);
    guards.unguard().await.expect("the guards are removed");
    assert_eq!(count(&sent, "DELETE"), 1, "{sent:?}");
    assert_eq!(count(&sent, "PATCH"), 3, "{sent:?}");
}

/// Another controller adds or removes its own finalizer; a pod is replaced by one with the same name.
#[tokio::test(start_paused = true)]
async fn objects_that_changed_in_the_meantime_are_listed_again() {
    let (client, sent) = server(|line, repeats| match line {
        _ if line.starts_with("PATCH") && repeats == 0 => failure(409),
        "GET /api/v1/pods" => (200, list(&[object("pod")])),
        _ if line == format!("GET {DEPLOYMENTS}") => (200, list(&[object("arena")])),
        _ => default_response(line),
    });
    let guards = guards(client, None);
    guards.unguard().await.expect("the guards are removed");
    assert_eq!(count(&sent, "GET /api/v1/pods"), 2, "{sent:?}");
    assert_eq!(count(&sent, &format!("GET {STATEFUL_SETS}")), 2, "{sent:?}");
    assert_eq!(count(&sent, "PATCH"), 4, "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn lasting_conflicts_and_refusals_are_reported() {
    let (client, _) = server(|line, _| match line {
        _ if line.starts_with("PATCH") => failure(409),
        _ => (200, list(&[object("any")])),
    });
    let result = guards(client, None).unguard().await;
    assert!(matches!(result, Err(UnguardError::Kube(_))), "{result:?}");

    let (client, sent) = server(|line, _| match line {
        _ if line.starts_with("PATCH") => failure(403),
        _ => (200, list(&[object("any")])),
    });
    let result = guards(client, None).unguard().await;
    assert!(matches!(result, Err(UnguardError::Kube(_))), "{result:?}");
    assert_eq!(count(&sent, "PATCH"), 1, "{sent:?}");
}

/// When the namespace is deleted, so is the operator's Role in it, and every other request is refused.
#[tokio::test]
async fn a_deleted_namespace_is_recognized() {
    let (client, sent) = server(|line, _| match line {
        "GET /api/v1/namespaces/games" => failure(404),
        _ => failure(403),
    });
    let guards = guards(client, Some("games"));
    assert!(guards.namespace_was_deleted().await.expect("an answer"));
    assert_eq!(count(&sent, ""), 1, "{sent:?}");
}

/// A missing permission to read the namespace does not mean that the namespace was deleted.
#[tokio::test]
async fn a_namespace_counts_as_deleted_only_if_it_is_not_found() {
    for script in [(|_, _| failure(403)) as Script, |line, _| (200, default_response(line).1)] {
        let (client, _) = server(script);
        let guards = guards(client, Some("games"));
        assert!(!guards.namespace_was_deleted().await.expect("an answer"));
    }
    let (client, sent) = server(|_, _| failure(500));
    let all = guards(client, None);
    assert!(!all.namespace_was_deleted().await.expect("an answer"));
    assert_eq!(count(&sent, ""), 0, "{sent:?}");
}

/// The operator of release gamekeeper in namespace system.
fn operator(client: &Client) -> Operator<'static> {
    Operator {
        deployments: Api::namespaced(client.clone(), "system"),
        leases: Api::namespaced(client.clone(), "system"),
        namespace: "system",
        name: "gamekeeper",
        lease: "gamekeeper",
    }
}

fn release(client: &Client) -> Release<'static> {
    Release {
        client: client.clone(),
        namespace: "system",
        name: "gamekeeper",
        deployment: "gamekeeper",
        job: "gamekeeper-unguard-1",
    }
}

/// Helm's records of the release, with this status.
fn records(status: &str) -> (u16, Value) {
    let mut record = object("sh.helm.release.v1.gamekeeper.v1");
    record["metadata"]["labels"] = json!({"version": "1", "status": status});
    (200, list(&[record]))
}

/// The operator's Deployment with these replicas, and no pods.
fn running(replicas: u32) -> Value {
    let mut deployment = object("gamekeeper");
    deployment["apiVersion"] = json!("apps/v1");
    deployment["kind"] = json!("Deployment");
    deployment["spec"] = json!({"replicas": replicas, "selector": {}, "template": {}});
    deployment
}

const RECORDS: &str = "GET /api/v1/namespaces/system/secrets";

/// The workload is deleted while the operator stops. Its pods may have players.
#[tokio::test]
async fn a_workload_that_is_deleted_while_the_operator_stops_keeps_its_guard() {
    let (client, sent) = server(|line, repeats| {
        let mut workload = object("arena");
        if repeats > 0 {
            workload["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        match line {
            RECORDS => records("uninstalling"),
            _ if line == format!("GET {DEPLOYMENTS}") => (200, list(&[workload])),
            _ if line.contains("/configmaps") => (200, list(&[])),
            _ if line.contains("/namespaces/system/") => failure(404),
            _ => default_response(line),
        }
    });
    let (operator, release) = (operator(&client), release(&client));
    let result = guards(client, None).remove(&operator, &release, false).await;
    assert!(matches!(result, Err(UnguardError::Waiting(_))), "{result:?}");
    assert_eq!(count(&sent, "PATCH") + count(&sent, "DELETE"), 0);
}

/// The user rolls the release back while the operator stops.
#[tokio::test]
async fn a_release_that_was_rolled_back_keeps_its_guards() {
    let (client, sent) = server(|line, repeats| match line {
        RECORDS if repeats == 0 => records("uninstalling"),
        RECORDS => records("deployed"),
        _ if line.contains("/configmaps") => (200, list(&[])),
        _ if line.contains("/namespaces/system/") => failure(404),
        _ => default_response(line),
    });
    let (operator, release) = (operator(&client), release(&client));
    let first = release.ensure_being_uninstalled().await;
    first.expect("Helm is uninstalling it");
    let result = guards(client, None).remove(&operator, &release, false).await;
    assert!(matches!(result, Err(UnguardError::GoesOn(_))), "{result:?}");
    assert_eq!(count(&sent, "PATCH") + count(&sent, "DELETE"), 0);
}

/// Without Helm, only the user stops the operator, and a tool that starts it again is reported.
#[tokio::test]
async fn guards_are_removed_by_hand_only_if_the_operator_stays_stopped() {
    const DEPLOYMENT: &str = "GET /apis/apps/v1/namespaces/system/deployments/gamekeeper";
    let scripts: [(Script, usize); 2] = [
        (
            |line, _| match line {
                DEPLOYMENT => (200, running(2)),
                _ => default_response(line),
            },
            0,
        ),
        (
            |line, repeats| match line {
                DEPLOYMENT if repeats < 2 => (200, running(0)),
                DEPLOYMENT => (200, running(2)),
                _ if line.contains("/leases/") => failure(404),
                _ if line == format!("GET {BUDGETS}") => (200, list(&[object("budget")])),
                _ => default_response(line),
            },
            1,
        ),
    ];
    for (script, deletions) in scripts {
        let (client, sent) = server(script);
        let operator = operator(&client);
        let result = guards(client, None).remove_by_hand(&operator, false).await;
        let error = result.expect_err("the operator runs").to_string();
        let expected = "kubectl -n system scale deployment gamekeeper --replicas=0";
        assert!(error.ends_with(expected), "{error}");
        assert_eq!(count(&sent, "DELETE"), deletions, "{sent:?}");
        assert_eq!(count(&sent, "PATCH"), 0, "{sent:?}");
    }
}

/// A user deleted the operator's Deployment, so there is nothing to stop or start.
#[tokio::test]
async fn an_operator_without_its_deployment_has_stopped() {
    let (client, sent) = server(|_, _| failure(404));
    let operator = operator(&client);
    operator.stop().await.expect("the operator has stopped");
    operator.ensure_scaled_to_0().await.expect("it has stopped");
    operator.restore().await.expect("nothing to restore");
    assert_eq!(count(&sent, "PATCH"), 0, "{sent:?}");
}

#[test]
fn the_error_names_the_workloads_to_wait_for() {
    for (workloads, expected) in [
        (1, "1 workload has to wait for the hooks of its pods: a; wait until"),
        (2, "2 workloads have to wait for the hooks of their pods: a, a; wait until"),
    ] {
        let error = UnguardError::Waiting(vec!["a".to_owned(); workloads]).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// Of the waiting pods, only those of deleted workloads are deleted: by the garbage collector, as nothing holds their
/// workload back.
#[test]
fn the_error_says_which_pods_force_ends() {
    let error = UnguardError::Waiting(vec!["a".to_owned()]).to_string();
    let expected = "use --force (in the chart: guardedPods.forceUninstall=true): pods whose workload is being \
                    deleted are then deleted without their hooks, and all others stay, without their guard";
    assert!(error.ends_with(expected), "{error}");
}

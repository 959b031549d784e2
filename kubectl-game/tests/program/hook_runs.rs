//! The HookRuns that the statuses of workloads depend on, and messages of a server that fails.

use serde_json::{Value, json};

use super::pods::{failure, list};
use super::{kubeconfig, program, reply, run, start_server, text};

/// Returns the response to a LIST of HookRuns.
type HookRuns = fn() -> String;

/// A cluster with a workload whose hook may be running, and with a SidecarSet that selects the workload's pod.
fn server(hook_runs: HookRuns) -> String {
    start_server(move |request| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        response(path.split('?').next().unwrap_or_default(), hook_runs)
    })
}

fn response(path: &str, hook_runs: HookRuns) -> String {
    let owner = |kind: &str| {
        json!([{"apiVersion": "tkex.tencent.com/v1alpha1", "kind": kind, "name": "game", "uid": "w",
            "controller": true}])
    };
    let workload = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
        "metadata": {"name": "game", "namespace": "default", "uid": "w", "generation": 1, "resourceVersion": "1"},
        "spec": {
            "selector": {"matchLabels": {"app": "game"}},
            "template": {"metadata": {"labels": {"app": "game"}}, "spec": {"containers": []}},
        },
        "status": {"observedGeneration": 1},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "game-a", "namespace": "default", "uid": "p", "labels": {"app": "game"},
            "ownerReferences": owner("GameDeployment")},
    });
    let set = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "SidecarSet",
        "metadata": {"name": "log", "uid": "s", "resourceVersion": "1"},
        "spec": {"selector": {"matchLabels": {"app": "game"}}, "containers": []},
    });
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
    match path.rsplit('/').next().unwrap_or_default() {
        "gamedeployments" => list(&[workload]),
        "game" if path.contains("/gamedeployments/") => reply("200 OK", &workload),
        "game" => failure(404),
        "log" => reply("200 OK", &set),
        "pods" => list(&[pod]),
        "namespaces" => list(&[namespace]),
        "default" => reply("200 OK", &namespace),
        "hookruns" => hook_runs(),
        _ => list(&[]),
    }
}

fn running() -> String {
    let run = |name: &str, owner: &str| -> Value {
        json!({
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookRun",
            "metadata": {
                "name": name, "namespace": "default", "uid": name, "labels": {"gamedeployment-type": "PreDelete"},
                "ownerReferences": [{"apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
                    "name": "game", "uid": owner, "controller": true}],
            },
            "spec": {"metrics": []},
            "status": {"phase": "Running"},
        })
    };
    list(&[run("a", "w"), run("b", "another")])
}

/// The STATUS of the workload in the output of a command, and what it writes to stderr.
async fn status(test: &str, args: &[&str], hook_runs: HookRuns) -> (String, String) {
    let config = kubeconfig(test, &server(hook_runs));
    let ended = run(program(args).env("KUBECONFIG", config)).await;
    let (output, error) = (text(&ended.stdout), text(&ended.stderr));
    assert_eq!(ended.status.code(), Some(0), "{args:?}: {output}{error}");
    let words = ["Waiting", "Updating"];
    let mut lines = output.lines().filter(|line| line.contains("game "));
    let line = lines.next_back().unwrap_or_default();
    let shown = words.into_iter().find(|word| line.contains(word));
    (shown.unwrap_or(&output).to_owned(), error)
}

const EACH_COMMAND: [&[&str]; 5] = [
    &["get"],
    &["get", "-A"],
    &["get", "game"],
    &["tree", "scs/log"],
    &["tree", "scs/log", "-n", "default"],
];

#[tokio::test]
async fn a_workload_that_waits_for_a_running_hook_is_shown_as_waiting() {
    for args in EACH_COMMAND {
        assert_eq!(
            status("running-hook", args, running).await,
            ("Waiting".to_owned(), String::new()),
            "{args:?}"
        );
    }
}

#[tokio::test]
async fn statuses_are_shown_without_permission_to_list_hook_runs() {
    let note = "note: a workload that waits for a hook is shown as Updating: Error from server (Forbidden): refused with \
        403\n";
    for args in EACH_COMMAND {
        let expected = match args[0] {
            "get" => note,
            _ => "",
        };
        assert_eq!(
            status("forbidden-runs", args, || failure(403)).await,
            ("Updating".to_owned(), expected.to_owned()),
            "{args:?}"
        );
    }
    let other = status("no-runs", &["get"], || failure(404)).await;
    assert_eq!(other, ("Updating".to_owned(), String::new()));
}

#[tokio::test]
async fn objects_are_printed_without_reading_hook_runs() {
    let config = kubeconfig("unread-runs", &server(|| failure(500)));
    for args in [&["get", "-o", "name"][..], &["get", "game", "-o", "json"]] {
        let ended = run(program(args).env("KUBECONFIG", &config)).await;
        assert_eq!(ended.status.code(), Some(0), "{args:?}");
    }
}

#[tokio::test]
async fn the_message_of_an_outage_cannot_control_the_terminal() {
    let server = start_server(|_| {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "reason": "InternalError",
            "message": "\u{1b}[2J\nforged",
        });
        reply("500 Internal Server Error", &status)
    });
    let config = kubeconfig("hostile-outage", &server);
    let args = ["status", "scs/log", "--watch", "--timeout", "2s"];
    let ended = run(program(&args).env("KUBECONFIG", config)).await;
    let output = text(&ended.stderr);
    let lost = "connection lost: Error from server (InternalError): \\u{1b}[2J forged\n";
    assert!(output.starts_with(lost), "{output:?}");
}

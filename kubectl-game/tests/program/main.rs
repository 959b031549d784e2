//! The program as a process: unreachable servers, closed outputs and exit codes.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{Instant, timeout};

mod hook_runs;
mod pods;

/// The timeout of each run of the program.
const LIMIT: Duration = Duration::from_secs(30);

/// An empty folder for a test.
fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("an old folder");
    }
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A kubeconfig for a server.
fn kubeconfig(test: &str, server: &str) -> PathBuf {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {}}],
    });
    let path = folder(test).join("config");
    std::fs::write(&path, config.to_string()).expect("a kubeconfig");
    path
}

/// The program without the environment of the test process.
fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-game"));
    command.args(args).env_clear().kill_on_drop(true);
    command.stdin(Stdio::null());
    command
}

/// Runs the program until it exits.
async fn run(command: &mut Command) -> Output {
    let output = timeout(LIMIT, command.output()).await;
    output.expect("an exit in time").expect("a program")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A server that does not respond by itself. A test can accept connections from the listener, and respond to them.
fn silent_server() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, format!("http://{address}"))
}

/// A server that gives the same response to all requests.
fn server_with_response(response: &'static str) -> String {
    start_server(move |_| response.to_owned())
}

/// A server whose response depends on the request.
fn start_server(response: impl Fn(&str) -> String + Send + 'static) -> String {
    let (listener, url) = silent_server();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = [0; 8192];
            // The client may have closed the connection.
            if let Ok(read) = stream.read(&mut request) {
                let response = response(&text(&request[..read]));
                let _ = stream.write_all(response.as_bytes());
            }
        }
    });
    url
}

/// A response with a JSON body.
fn reply(status: &str, body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
}

const PROXY_ERROR: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/html\r\n\
    content-length: 24\r\nconnection: close\r\n\r\n<html>no backend</html>\n";
const EMPTY_LIST: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 26\r\n\
    connection: close\r\n\r\n{\"metadata\":{},\"items\":[]}";

#[tokio::test]
async fn a_response_that_is_not_from_kubernetes_is_reported_with_its_status_code() {
    let config = kubeconfig("proxy-error", &server_with_response(PROXY_ERROR));
    let ended = run(program(&["get"]).env("KUBECONFIG", config)).await;
    assert_eq!(ended.status.code(), Some(1));
    let expected = "error: Error from server (503 Service Unavailable): this is not a Kubernetes response: \
        <html>no backend</html>\n";
    assert_eq!(text(&ended.stderr), expected);
}

#[tokio::test]
async fn missing_kubeconfigs_are_skipped() {
    let config = kubeconfig("kubeconfigs", &server_with_response(EMPTY_LIST));
    let folder = config.parent().expect("a folder");
    let missing = folder.join("missing");
    let unset = folder.join("unset");
    std::fs::write(&unset, "apiVersion: v1\nkind: Config\ncurrent-context: ''\n")
        .expect("a kubeconfig");
    let join = |files: &[&PathBuf]| std::env::join_paths(files).expect("a list");
    for files in [join(&[&config, &missing]), join(&[&missing, &config]), join(&[&unset, &config])]
    {
        let ended = run(program(&["get"]).env("KUBECONFIG", &files)).await;
        let output = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{files:?}: {output}");
        assert_eq!(output, "No resources found in default namespace.\n");
    }

    let none = run(program(&["get"]).env("KUBECONFIG", join(&[&missing, &missing]))).await;
    assert_eq!(none.status.code(), Some(1));
    let output = text(&none.stderr);
    assert!(output.starts_with("error: kubeconfig: not found: /"), "{output}");

    // The file given by the flag must exist.
    let named =
        run(program(&["get", "--kubeconfig"]).arg(&missing).env("KUBECONFIG", &config)).await;
    assert_eq!(named.status.code(), Some(1));
    let output = text(&named.stderr);
    assert!(output.starts_with("error: kubeconfig: failed to read"), "{output}");
}

#[tokio::test]
async fn a_failed_write_to_stdout_is_an_error_but_a_closed_pipe_is_not() {
    for args in [&["completion", "bash"][..], &["completion", "fish"]] {
        let full = std::fs::File::create("/dev/full").expect("/dev/full");
        let mut command = program(args);
        command.stdout(full).stderr(Stdio::piped());
        let child = command.spawn().expect("a program");
        let ended = timeout(LIMIT, child.wait_with_output()).await;
        let ended = ended.expect("an exit in time").expect("an exit");
        let output = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{output}");
        assert!(output.starts_with("error: cannot write: "), "{output}");

        // The reader has closed the pipe.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = program(args);
        command.stdout(writer).stderr(Stdio::piped());
        let child = command.spawn().expect("a program");
        let ended = timeout(LIMIT, child.wait_with_output()).await;
        let ended = ended.expect("an exit in time").expect("an exit");
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    }
}

#[tokio::test]
async fn shells_can_parse_their_completion_scripts() {
    let folder = folder("completion");
    for shell in ["bash", "zsh", "fish"] {
        let ended = run(&mut program(&["completion", shell])).await;
        assert_eq!(ended.status.code(), Some(0));
        let script = folder.join(shell);
        std::fs::write(&script, &ended.stdout).expect("a script");
        // Shells that are not installed are skipped.
        let Ok(read) = Command::new(shell).arg("-n").arg(&script).output().await else {
            continue;
        };
        let output = text(&read.stderr);
        assert!(read.status.success() && output.is_empty(), "{shell}: {output}");
    }
}

#[tokio::test]
async fn the_timeout_includes_the_wait_for_the_first_response() {
    let (_listener, server) = silent_server();
    let config = kubeconfig("silent-timeout", &server);
    let started = Instant::now();
    let args = ["status", "game", "--watch", "--timeout", "1s"];
    let ended = run(program(&args).env("KUBECONFIG", config)).await;
    let output = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{output}");
    assert!(output.contains("no response within 1s"), "{output}");
    assert!(started.elapsed() >= Duration::from_secs(1));
}

/// A server that responds only to the first request.
fn server_with_one_response(response: String) -> String {
    let (listener, url) = silent_server();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = [0; 8192];
        let read = stream.read(&mut request).expect("a request");
        assert!(read > 0);
        stream.write_all(response.as_bytes()).expect("a client");
        // Keeps all connections open until the end of the test.
        std::thread::park();
    });
    url
}

#[tokio::test]
async fn a_workload_whose_pods_and_runs_never_arrive_times_out_as_in_progress() {
    let game = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
        "metadata": {"name": "game", "namespace": "default", "uid": "a", "generation": 2, "resourceVersion": "1"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "game"}},
            "template": {"metadata": {"labels": {"app": "game"}}, "spec": {"containers": [{"name": "game"}]}},
        },
        "status": {"observedGeneration": 1},
    })
    .to_string();
    let length = game.len();
    let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{game}");
    let config = kubeconfig("falling-silent", &server_with_one_response(response));
    let args = ["status", "gd/game", "--watch", "--timeout", "8s"];
    let ended = run(program(&args).env("KUBECONFIG", config)).await;
    let output = text(&ended.stdout) + &text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{output}");
    assert!(output.contains("Unseen") && output.contains("timed out waiting"), "{output}");
}

#[tokio::test]
async fn the_flag_request_timeout_applies_to_every_command() {
    let (_listener, server) = silent_server();
    let config = kubeconfig("silent-request", &server);
    for (args, limit) in
        [(&["get"][..], "1s"), (&["tree", "gd/game", "-w"], "1"), (&["pause", "gd/game"], "500ms")]
    {
        let args = [args, &["--request-timeout", limit]].concat();
        let ended = run(program(&args).env("KUBECONFIG", &config)).await;
        let output = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {output}");
        assert!(
            output.contains("cannot reach the cluster: no response within"),
            "{args:?}: {output}"
        );
    }
}

#[tokio::test]
async fn a_server_that_never_completes_the_tls_handshake_times_out() {
    let (_listener, server) = silent_server();
    let config = kubeconfig("silent-tls", &server.replace("http:", "https:"));
    let ended = run(program(&["get"]).env("KUBECONFIG", config)).await;
    let output = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{output}");
    assert!(output.contains("cannot reach the cluster: "), "{output}");
}

/// The response to a request for a kind that the server does not serve.
const NOT_SERVED: &str = "HTTP/1.1 404 Not Found\r\ncontent-type: text/plain; charset=utf-8\r\n\
connection: close\r\ncontent-length: 19\r\n\r\n404 page not found\n";

#[tokio::test]
async fn a_kind_that_is_not_served_has_no_workloads() {
    let server = start_server(|request| {
        let is_about = |resource: &str| request.contains(resource);
        if is_about("/gamedeployments") || is_about("/hookruns") {
            return NOT_SERVED.to_owned();
        }
        let world = json!({
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameStatefulSet",
            "metadata": {"name": "world", "namespace": "default", "uid": "a", "resourceVersion": "1"},
            "spec": {
                "selector": {"matchLabels": {"app": "world"}},
                "template": {"metadata": {"labels": {"app": "world"}}, "spec": {"containers": []}},
            },
        });
        let list = |items: &[Value]| json!({"kind": "List", "metadata": {}, "items": items});
        let body = match () {
            () if is_about("/gamestatefulsets/world") => world,
            () if is_about("/gamestatefulsets") => list(&[world]),
            () => list(&[]),
        };
        reply("200 OK", &body)
    });
    let config = kubeconfig("half-served", &server);
    let world = "gamestatefulset.tkex.tencent.com/world";
    for (args, code, expected) in [
        (&["get", "world", "-o", "name"][..], 0, world),
        (&["get", "-o", "name"], 0, world),
        (&["tree", "world"], 0, "world"),
        (&["release", "gd/world"], 1, "does not serve GameDeployments"),
    ] {
        let ended = run(program(args).env("KUBECONFIG", &config)).await;
        let output = text(&ended.stdout) + &text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{args:?}: {output}");
        assert!(output.contains(expected), "{args:?}: {output}");
    }
    let config = kubeconfig("not-served", &server_with_response(NOT_SERVED));
    for args in [&["get"][..], &["release", "world"]] {
        let ended = run(program(args).env("KUBECONFIG", &config)).await;
        let output = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {output}");
        assert!(output.contains("install gamekeeper's CRDs"), "{output}");
    }
}

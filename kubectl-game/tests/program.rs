//! The program as a process: what it does where no Kubernetes answers, and how it ends.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;
use tokio::time::{Instant, timeout};

/// Nothing here may take longer.
const LIMIT: Duration = Duration::from_secs(30);

/// A folder of a test's own, empty.
fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("an old folder that can go");
    }
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A kubeconfig that names a server.
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

/// The program, which sees nothing of the environment but what a test gives it.
fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-game"));
    command.args(args).env_clear().kill_on_drop(true);
    command.stdin(Stdio::null());
    command
}

/// Runs it to its end.
async fn end(command: &mut Command) -> Output {
    let output = timeout(LIMIT, command.output()).await;
    output.expect("an end in time").expect("a program")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A server that takes connections and never says a word.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, format!("http://{address}"))
}

/// A server that says this to whatever it is asked.
fn saying(answer: &'static str) -> String {
    let (listener, url) = silent();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = [0; 8192];
            // Who hangs up needs no answer.
            if stream.read(&mut request).is_ok() {
                let _ = stream.write_all(answer.as_bytes());
            }
        }
    });
    url
}

const PROXY_ERROR: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/html\r\n\
    content-length: 24\r\nconnection: close\r\n\r\n<html>no backend</html>\n";
const EMPTY_LIST: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 26\r\n\
    connection: close\r\n\r\n{\"metadata\":{},\"items\":[]}";

#[tokio::test]
async fn an_answer_that_is_not_kubernetes_is_told_with_its_code() {
    let config = kubeconfig("proxy-error", &saying(PROXY_ERROR));
    let ended = end(program(&["get"]).env("KUBECONFIG", config)).await;
    assert_eq!(ended.status.code(), Some(1));
    let expected = "error: Error from server (503 Service Unavailable): this is not a Kubernetes response: \
        <html>no backend</html>\n";
    assert_eq!(text(&ended.stderr), expected);
}

#[tokio::test]
async fn kubeconfigs_that_are_not_there_are_passed_over() {
    let config = kubeconfig("kubeconfigs", &saying(EMPTY_LIST));
    let folder = config.parent().expect("a folder");
    let missing = folder.join("missing");
    let unset = folder.join("unset");
    std::fs::write(
        &unset,
        "apiVersion: v1\nkind: Config\ncurrent-context: ''\n",
    )
    .expect("a kubeconfig");
    let join = |files: &[&PathBuf]| std::env::join_paths(files).expect("a list");
    for files in [
        join(&[&config, &missing]),
        join(&[&missing, &config]),
        join(&[&unset, &config]),
    ] {
        let ended = end(program(&["get"]).env("KUBECONFIG", &files)).await;
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{files:?}: {said}");
        assert_eq!(said, "No resources found in default namespace.\n");
    }

    let none = end(program(&["get"]).env("KUBECONFIG", join(&[&missing, &missing]))).await;
    assert_eq!(none.status.code(), Some(1));
    let said = text(&none.stderr);
    assert!(
        said.starts_with("error: kubeconfig: there is none: /"),
        "{said}"
    );

    // What is named is meant.
    let named = end(program(&["get", "--kubeconfig"])
        .arg(&missing)
        .env("KUBECONFIG", &config))
    .await;
    assert_eq!(named.status.code(), Some(1));
    let said = text(&named.stderr);
    assert!(
        said.starts_with("error: kubeconfig: failed to read"),
        "{said}"
    );
}

#[tokio::test]
async fn what_cannot_be_printed_is_an_error_and_not_a_panic() {
    for args in [&["completion", "bash"][..], &["completion", "fish"]] {
        let full = std::fs::File::create("/dev/full").expect("a full disk");
        let mut command = program(args);
        command.stdout(full).stderr(Stdio::piped());
        let child = command.spawn().expect("a program");
        let ended = timeout(LIMIT, child.wait_with_output()).await;
        let ended = ended.expect("an end in time").expect("an end");
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.starts_with("error: cannot write: "), "{said}");

        // Whoever reads has seen enough.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = program(args);
        command.stdout(writer).stderr(Stdio::piped());
        let child = command.spawn().expect("a program");
        let ended = timeout(LIMIT, child.wait_with_output()).await;
        let ended = ended.expect("an end in time").expect("an end");
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    }
}

#[tokio::test]
async fn completion_scripts_are_what_their_shells_read() {
    let folder = folder("completion");
    for shell in ["bash", "zsh", "fish"] {
        let ended = end(&mut program(&["completion", shell])).await;
        assert_eq!(ended.status.code(), Some(0));
        let script = folder.join(shell);
        std::fs::write(&script, &ended.stdout).expect("a script");
        // A shell that is not there says nothing about it.
        let Ok(read) = Command::new(shell).arg("-n").arg(&script).output().await else {
            continue;
        };
        let said = text(&read.stderr);
        assert!(read.status.success() && said.is_empty(), "{shell}: {said}");
    }
}

#[tokio::test]
async fn a_timeout_holds_before_the_server_has_said_anything() {
    let (_listener, server) = silent();
    let config = kubeconfig("silent-timeout", &server);
    let begun = Instant::now();
    let args = ["status", "game", "--watch", "--timeout", "1s"];
    let ended = end(program(&args).env("KUBECONFIG", config)).await;
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("no response within 1s"), "{said}");
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

/// A server that answers the first request so, and none after it.
fn falling_silent(answer: String) -> String {
    let (listener, url) = silent();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = [0; 8192];
        let read = stream.read(&mut request).expect("a request");
        assert!(read > 0);
        stream.write_all(answer.as_bytes()).expect("a reader");
        // Held until the test is over, as are those that nobody accepts.
        std::thread::park();
    });
    url
}

#[tokio::test]
async fn a_workload_that_was_seen_is_under_way_when_the_time_is_over() {
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
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{game}");
    let config = kubeconfig("falling-silent", &falling_silent(answer));
    let args = ["status", "gd/game", "--watch", "--timeout", "8s"];
    let ended = end(program(&args).env("KUBECONFIG", config)).await;
    let said = text(&ended.stdout) + &text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(
        said.contains("Unseen") && said.contains("timed out waiting"),
        "{said}"
    );
}

#[tokio::test]
async fn a_request_waits_no_longer_than_it_is_told() {
    let (_listener, server) = silent();
    let config = kubeconfig("silent-request", &server);
    for (args, limit) in [
        (&["get"][..], "1s"),
        (&["tree", "gd/game", "-w"], "1"),
        (&["pause", "gd/game"], "500ms"),
    ] {
        let args = [args, &["--request-timeout", limit]].concat();
        let ended = end(program(&args).env("KUBECONFIG", &config)).await;
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {said}");
        assert!(
            said.contains("cannot reach the cluster: no response within"),
            "{args:?}: {said}"
        );
    }
}

#[tokio::test]
async fn a_server_that_takes_no_handshake_is_given_up() {
    let (_listener, server) = silent();
    let config = kubeconfig("silent-tls", &server.replace("http:", "https:"));
    let ended = end(program(&["get"]).env("KUBECONFIG", config)).await;
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot reach the cluster: "), "{said}");
}

//! Commands in containers, with an API server that speaks WebSocket and responds as the test specifies.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use futures::{SinkExt, StreamExt};
use hyper_util::rt::TokioIo;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Config;
use serde_json::Value;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;
use crate::provider::Commands;
use gamekeeper_core::api::HookPhase;
use gamekeeper_core::api::HookPhase::{Error, Failed, Successful};
use gamekeeper_core::api::names::{HookPoint, RUN_POD_UID, WorkloadKind};
use gamekeeper_core::hook_run::ExecNamespaces;

/// Channels of the exec protocol.
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;

/// What the API server does with a command.
#[derive(Clone)]
enum Answer {
    /// Sends these messages on their channels, and closes the connection.
    Ended(Vec<(u8, String)>),
    /// Sends output forever.
    Endless,
    /// Sends nothing.
    Silent,
    /// Responds with HTTP 403 and starts no command.
    Refused,
}

struct ApiServer {
    answer: Answer,
    /// The pod's uid at the first read, and at later reads.
    uids: [&'static str; 2],
    controller: &'static str,
    reads: AtomicUsize,
    /// The URL queries of the requests to run a command.
    commands: Mutex<Vec<String>>,
}

impl ApiServer {
    fn answering(answer: Answer) -> Self {
        ApiServer {
            answer,
            uids: ["pod-uid"; 2],
            controller: "GameDeployment",
            reads: AtomicUsize::new(0),
            commands: Mutex::default(),
        }
    }

    fn commands(&self) -> Vec<String> {
        self.commands.lock().expect("commands").clone()
    }

    async fn start(self: &Arc<Self>) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let pod_path = "/api/v1/namespaces/games/pods/game-1";
        let app = Router::new()
            .route(pod_path, get(pod))
            .route(&format!("{pod_path}/exec"), get(exec))
            .route("/api/v1/namespaces/games/secrets/hooks", get(secret))
            .with_state(Arc::clone(self));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Client::try_from(Config::new(url.parse().expect("a URL"))).expect("a client")
    }
}

async fn pod(State(server): State<Arc<ApiServer>>) -> Json<Value> {
    let read = server.reads.fetch_add(1, Ordering::Relaxed);
    Json(json!({
        "metadata": {"name": "game-1", "uid": server.uids[read.min(1)], "ownerReferences": [{
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": server.controller, "controller": true,
        }]},
        "spec": {"containers": [{"name": "game"}]},
        "status": {"containerStatuses": [{"name": "game", "state": {"running": {}}}]},
    }))
}

async fn secret() -> Json<Value> {
    let labels = json!({"tkex.tencent.com/hook-access": "true"});
    Json(json!({"metadata": {"labels": labels}, "data": {"token": "czNjcmV0"}}))
}

async fn exec(State(server): State<Arc<ApiServer>>, mut request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    server.commands.lock().expect("commands").push(query);
    let answer = server.answer.clone();
    if matches!(answer, Answer::Refused) {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
            "reason": "Forbidden", "message": "pods \"game-1\" is forbidden",
        });
        let refused = Response::builder().status(403);
        return refused.body(Body::from(status.to_string())).expect("an answer");
    }
    let key = derive_accept_key(request.headers()["sec-websocket-key"].as_bytes());
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let upgraded = TokioIo::new(upgraded.await.expect("an upgrade"));
        let socket = WebSocketStream::from_raw_socket(upgraded, Role::Server, None);
        play(answer, socket.await).await
    });
    Response::builder()
        .status(101)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-accept", key)
        .header("sec-websocket-protocol", "v5.channel.k8s.io")
        .body(Body::empty())
        .expect("an answer")
}

async fn play<S>(answer: Answer, mut socket: WebSocketStream<S>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let message =
        |channel: u8, text: &str| Message::binary([&[channel][..], text.as_bytes()].concat());
    match answer {
        Answer::Ended(messages) => {
            for (channel, text) in messages {
                let _ = socket.send(message(channel, &text)).await;
            }
            let _ = socket.close(None).await;
        }
        Answer::Endless => {
            let chunk = "x".repeat(32 << 10);
            while socket.send(message(STDOUT, &chunk)).await.is_ok() {}
        }
        // Waits until the client closes the connection.
        Answer::Silent => while let Some(Ok(_)) = socket.next().await {},
        Answer::Refused => {}
    }
}

/// The status that is sent at the end of a command.
fn exit(code: i32) -> (u8, String) {
    let status = match code {
        0 => json!({"metadata": {}, "status": "Success"}),
        code => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
    };
    (STATUS, status.to_string())
}

fn printed(channel: u8, text: &str) -> (u8, String) {
    (channel, text.to_owned())
}

/// A run that a GameDeployment created for the pod.
fn run(command: &[&str]) -> HookRun {
    let exec =
        json!({"container": "{{ args.container }}", "command": command, "timeoutSeconds": 1});
    let spec = json!({
        "args": [
            {"name": "PodName", "value": "game-1"}, {"name": "PodNamespace", "value": "games"},
            {"name": "container", "value": "game"}, {"name": "map", "value": "a b; $(c)"},
        ],
        "metrics": [{"name": "players", "provider": {"exec": exec}}],
    });
    let mut run = HookRun::new("run", serde_json::from_value(spec).expect("a spec"));
    run.metadata.namespace = Some("games".into());
    run.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "tkex.tencent.com/v1alpha1".to_owned(),
        kind: "GameDeployment".to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    run.metadata.annotations = Some([(RUN_POD_UID.to_owned(), "pod-uid".to_owned())].into());
    run
}

/// Measures a run in a namespace in which hooks may run commands.
async fn measured(server: &Arc<ApiServer>, run: HookRun) -> Outcome {
    let commands = Commands::In(ExecNamespaces::from_iter(["games"]));
    measured_with(commands, server, run).await
}

async fn measured_with(commands: Commands, server: &Arc<ApiServer>, run: HookRun) -> Outcome {
    let client = server.start().await;
    let probe = Probe::new(HERE, Some(client)).expect("a probe");
    let call = Call { run: Arc::new(run), metric: 0, number: 1, job: None };
    probe.with_commands(commands).measure(&call).await
}

#[tokio::test]
async fn the_exit_code_of_a_command_decides_the_outcome() {
    use Answer::{Ended, Endless, Refused, Silent};
    let no_code = json!({"status": "Failure", "message": "container not found (\"game\")"});
    let rows: [(Answer, HookPhase, Option<&str>, &str); 11] = [
        (
            Ended(vec![printed(STDOUT, "3 "), printed(STDOUT, "players\n"), exit(0)]),
            Successful,
            Some("3 players"),
            "",
        ),
        (
            // The protocol opens each channel with an empty message.
            Ended(vec![printed(STDOUT, ""), printed(STDERR, "odd"), exit(0)]),
            Successful,
            Some(""),
            "",
        ),
        (
            Ended(vec![printed(STDERR, "3 players\n"), exit(1)]),
            Failed,
            None,
            "the command exited with code 1: 3 players",
        ),
        (Ended(vec![exit(127)]), Error, None, "the command could not be run: exit code 127"),
        (
            Ended(vec![printed(STATUS, &no_code.to_string())]),
            Error,
            None,
            "the command has no exit code: container not found (\"game\")",
        ),
        (
            Ended(vec![printed(STATUS, "no JSON")]),
            Error,
            None,
            "the connection was lost before the command exited, so it may still be running",
        ),
        (
            Ended(vec![printed(STDOUT, "3")]),
            Error,
            None,
            "the connection was lost before the command exited, so it may still be running",
        ),
        (
            Ended(vec![]),
            Error,
            None,
            "the connection was lost before the command exited, so it may still be running",
        ),
        (Silent, Error, None, "the command did not exit within 1 s, and may still be running"),
        (Endless, Error, None, "the command printed more than 1 MiB"),
        (
            Refused,
            Error,
            None,
            "pods \"game-1\" is forbidden: an administrator can allow it with the chart's value hooks.exec",
        ),
    ];
    for (answer, phase, value, message) in rows {
        let server = Arc::new(ApiServer::answering(answer));
        let outcome = measured(&server, run(&["/game/ctl"])).await;
        let shown = outcome.message.unwrap_or_default();
        assert_eq!((outcome.phase, shown.as_str()), (phase, message));
        assert_eq!(outcome.value.as_deref(), value);
        assert_eq!(server.commands().len(), 1);
    }
}

#[tokio::test]
async fn the_value_of_an_argument_is_neither_split_nor_expanded() {
    let server = Arc::new(ApiServer::answering(Answer::Ended(vec![exit(0)])));
    let command = ["/game/ctl", "--map={{ args.map }}", ""];
    let outcome = measured(&server, run(&command)).await;
    assert_eq!(outcome.phase, Successful, "{outcome:?}");
    let query = server.commands().remove(0);
    assert_eq!(
        query.trim_start_matches('&'),
        "stdout=true&stderr=true&container=game\
         &command=%2Fgame%2Fctl&command=--map%3Da+b%3B+%24%28c%29&command="
    );
}

/// A command is run only in the run's own pod, and only if a workload controls that pod.
#[tokio::test]
async fn a_command_that_is_not_allowed_is_not_started() {
    let plain = || run(&["/game/ctl", "{{ args.map }}"]);
    let created_by_user = || {
        let mut run = plain();
        run.metadata.owner_references = None;
        run.metadata.annotations = None;
        run
    };
    let with_argument = |name: &str, value: &str| {
        let mut run = plain();
        let mut args = run.spec.args.iter_mut();
        let argument = args.find(|argument| argument.name == name);
        argument.expect("the argument").value = Some(value.to_owned());
        run
    };
    let mut run_for_other_pod = plain();
    run_for_other_pod.metadata.annotations =
        Some([(RUN_POD_UID.to_owned(), "older".to_owned())].into());
    let mut run_for_step = plain();
    let label = WorkloadKind::GameDeployment.type_label().to_owned();
    run_for_step.metadata.labels = Some([(label, HookPoint::Step.as_str().to_owned())].into());
    let mut run_with_secret = with_argument("map", "");
    let key = json!({"secretKeyRef": {"name": "hooks", "key": "token"}});
    let args = run_with_secret.spec.args.iter_mut();
    for argument in args.filter(|it| it.name == "map") {
        argument.value = None;
        argument.value_from = Some(serde_json::from_value(key.clone()).expect("a source"));
    }
    let long = "x".repeat(17 << 10);
    let rows = [
        (
            run_for_other_pod,
            "GameDeployment",
            "pod game-1 is not the one that the run was created for",
        ),
        (plain(), "ReplicaSet", "pod game-1 belongs to no GameDeployment"),
        (created_by_user(), "ReplicaSet", "pod game-1 belongs to no GameDeployment"),
        (run_for_step, "GameDeployment", "a canary step concerns no pod"),
        (
            with_argument("PodNamespace", "other"),
            "GameDeployment",
            "pods of namespace other are not accessible",
        ),
        (
            with_argument("PodName", "../nodes/a"),
            "GameDeployment",
            "\"../nodes/a\" is not an object name",
        ),
        (
            with_argument("container", "none"),
            "GameDeployment",
            "pod game-1 has no container none: use one of game",
        ),
        (run_with_secret, "GameDeployment", "a secret argument would be readable in the audit log"),
        (
            run(&["/game/ctl", &long]),
            "GameDeployment",
            "command: it is longer than 16 KiB with its arguments filled in",
        ),
    ];
    for (run, controller, expected) in rows {
        let mut server = ApiServer::answering(Answer::Ended(vec![exit(0)]));
        server.controller = controller;
        let server = Arc::new(server);
        let outcome = measured(&server, run).await;
        let shown = outcome.message.unwrap_or_default();
        assert_eq!(outcome.phase, Error, "{shown}");
        assert!(shown.starts_with(expected), "{shown}");
        assert_eq!(server.commands(), [""; 0]);
    }
    let server = Arc::new(ApiServer::answering(Answer::Ended(vec![exit(0)])));
    assert_eq!(measured(&server, created_by_user()).await.phase, Successful);
}

#[tokio::test]
async fn replacing_the_pod_during_the_command_is_an_error() {
    let mut server = ApiServer::answering(Answer::Ended(vec![exit(0)]));
    server.uids = ["pod-uid", "newer"];
    let outcome = measured(&Arc::new(server), run(&["/game/ctl"])).await;
    let shown = outcome.message.unwrap_or_default();
    assert_eq!(outcome.phase, Error, "{shown}");
    assert!(shown.starts_with("pod game-1 was replaced"), "{shown}");
}

#[tokio::test]
async fn no_command_is_run_in_a_namespace_that_is_not_listed() {
    let server = Arc::new(ApiServer::answering(Answer::Ended(vec![exit(0)])));
    let commands = Commands::In(ExecNamespaces::from_iter(["other"]));
    let outcome = measured_with(commands, &server, run(&["/game/ctl"])).await;
    let shown = outcome.message.unwrap_or_default();
    assert_eq!(
        shown,
        "hooks must not run commands in namespace games: an administrator can allow it with the chart's \
         value hooks.exec"
    );
    assert_eq!(outcome.phase, Error);
    assert_eq!(server.reads.load(Ordering::Relaxed), 0);
}

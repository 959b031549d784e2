//! A web server for hooks. Tests set its answers.
//!
//! It listens on all loopback addresses, and simulated pods have loopback addresses. So a call to a pod's
//! address on this server's port also arrives here, and answers may differ by pod.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The server. It stops when dropped.
pub struct HookServer {
    port: u16,
    script: Arc<Mutex<Script>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Script {
    answers: HashMap<String, Answer>,
    /// Answers that are given first, each once.
    queued: HashMap<String, VecDeque<Answer>>,
    by_pod: HashMap<(IpAddr, String), Answer>,
    /// The answer for all other paths.
    default: Option<Answer>,
    calls: Vec<Call>,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// 200 with this JSON.
    Json(Value),
    /// 200 with this text.
    Text(String),
    /// A status without a body.
    Status(u16),
    /// A status with a body.
    StatusAndText(u16, String),
    /// The inner answer, after a delay.
    Delayed(Duration, Box<Answer>),
    /// No answer.
    Never,
}

/// A call that the server received.
#[derive(Clone, Debug)]
pub struct Call {
    /// GET, POST or PUT.
    pub method: String,
    /// Path, without the query.
    pub path: String,
    /// Headers, with names in lower case.
    pub headers: HashMap<String, String>,
    /// Body.
    pub body: String,
    /// The address that was called.
    pub address: IpAddr,
}

/// The answer in the examples of the documentation.
pub fn example_answer() -> Answer {
    Answer::Json(json!({"name": "bryan", "male": "yes", "age": 45}))
}

impl HookServer {
    /// Starts a server on a free port. Each path returns [`example_answer`] until a test sets another answer.
    pub async fn start() -> Result<Self> {
        Self::start_on(0).await
    }

    /// Starts a server on this port.
    pub async fn start_on(port: u16) -> Result<Self> {
        Self::start_at((Ipv4Addr::UNSPECIFIED, port).into()).await
    }

    /// Starts a server at this address.
    pub async fn start_at(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let port = listener.local_addr()?.port();
        let script = Arc::new(Mutex::new(Script::default()));
        let router = Router::new().fallback(answer).with_state(script.clone());
        let service = router.into_make_service_with_connect_info::<LocalAddress>();
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, service).await {
                eprintln!("hook server: {error}");
            }
        });
        Ok(HookServer { port, script, task })
    }

    /// The server's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a path at 127.0.0.1.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Sets the answer for a path.
    pub fn answer(&self, path: &str, answer: Answer) {
        self.script().answers.insert(path.to_owned(), answer);
    }

    /// Sets the answer for all paths that have none of their own.
    pub fn answer_all(&self, answer: Answer) {
        self.script().default = Some(answer);
    }

    /// Makes a path return these answers in order, and then its usual one.
    pub fn answer_in_sequence(&self, path: &str, answers: impl IntoIterator<Item = Answer>) {
        let answers = answers.into_iter().collect();
        self.script().queued.insert(path.to_owned(), answers);
    }

    /// Sets the answer for a path at one pod's address.
    pub fn answer_for(&self, pod: IpAddr, path: &str, answer: Answer) {
        self.script().by_pod.insert((pod, path.to_owned()), answer);
    }

    /// The calls to a path so far.
    pub fn calls(&self, path: &str) -> Vec<Call> {
        let script = self.script();
        let calls = script.calls.iter().filter(|call| call.path == path);
        calls.cloned().collect()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HookServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The local address of a connection.
#[derive(Clone, Copy)]
struct LocalAddress(IpAddr);

impl Connected<IncomingStream<'_, TcpListener>> for LocalAddress {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        LocalAddress(stream.io().local_addr().unwrap_or(unknown).ip())
    }
}

async fn answer(
    State(script): State<Arc<Mutex<Script>>>,
    ConnectInfo(LocalAddress(address)): ConnectInfo<LocalAddress>,
    method: axum::http::Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let text =
        |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let call = Call {
        method: method.to_string(),
        path: uri.path().to_owned(),
        headers: headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
        address,
    };
    let answer = {
        let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
        let queued = script.queued.get_mut(&call.path).and_then(VecDeque::pop_front);
        let pod_answer = script.by_pod.get(&(address, call.path.clone())).cloned();
        let answer = queued
            .or(pod_answer)
            .or_else(|| script.answers.get(&call.path).cloned())
            .or_else(|| script.default.clone());
        script.calls.push(call);
        answer.unwrap_or_else(example_answer)
    };
    respond(answer).await
}

async fn respond(mut answer: Answer) -> Response {
    loop {
        match answer {
            Answer::Json(value) => return axum::Json(value).into_response(),
            Answer::Text(text) => return text.into_response(),
            Answer::Status(code) => {
                let status = StatusCode::from_u16(code);
                return status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR).into_response();
            }
            Answer::StatusAndText(code, text) => {
                let status = StatusCode::from_u16(code);
                return (status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), text).into_response();
            }
            Answer::Delayed(time, then) => {
                tokio::time::sleep(time).await;
                answer = *then;
            }
            Answer::Never => std::future::pending().await,
        }
    }
}

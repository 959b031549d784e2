//! Measurements with servers that respond as the test specifies, byte by byte.

mod answers;
mod cluster;
mod connections;
mod credentials;
mod exec;
mod jobs;
mod load;
mod prometheus;
mod table;
mod web;
mod web_servers;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::{Call, HttpOptions, Probe};
use gamekeeper_core::api::{Argument, HookRun, HookRunSpec, Metric};
use gamekeeper_core::hook_run::Outcome;

/// What the server does with one connection, after it has read the request.
#[derive(Clone)]
enum Reply {
    /// Sends these bytes and closes the connection.
    Bytes(Vec<u8>),
    /// Sends these bytes and keeps the connection open. The result of the server's next read is recorded.
    Kept(Vec<u8>),
    /// Sends these bytes once the semaphore has a permit, and closes the connection.
    Late(Arc<Semaphore>, Vec<u8>),
    /// Sends a head, then one byte per second, forever.
    Trickle,
    /// Sends a body that never ends.
    Endless,
    /// Sends nothing and keeps the connection open.
    Silence,
    /// Sends the beginning of a long body, then nothing, and keeps the connection open.
    Stuck,
}

struct Server {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts a server. The first connection gets the first reply, the second gets the second, and so on. When no
    /// replies are left, each further connection gets the last one.
    async fn start(answers: &[Reply]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answers, recorded) = (answers.to_vec(), Arc::clone(&requests));
        tokio::spawn(async move {
            let mut turn = 0;
            while let Ok((stream, _)) = listener.accept().await {
                let answer = answers[turn.min(answers.len() - 1)].clone();
                turn += 1;
                tokio::spawn(serve(stream, answer, Arc::clone(&recorded)));
            }
        });
        Server { url, requests }
    }

    async fn answering(status: &str, body: &str) -> Self {
        Self::start(&[response(status, "", body)]).await
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("requests").clone()
    }
}

fn response(status: &str, headers: &str, body: &str) -> Reply {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    );
    Reply::Bytes(text.into_bytes())
}

async fn serve(mut stream: TcpStream, answer: Reply, recorded: Arc<Mutex<Vec<String>>>) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !is_complete(&request) {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => request.extend_from_slice(&buffer[..length]),
        }
    }
    recorded.lock().expect("requests").push(String::from_utf8_lossy(&request).into_owned());
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n";
    match answer {
        Reply::Bytes(bytes) => {
            let _ = stream.write_all(&bytes).await;
        }
        Reply::Kept(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let end = stream.read(&mut buffer).await;
            let end = format!("{:?}", end.map_err(|error| error.kind()));
            recorded.lock().expect("requests").push(end);
        }
        Reply::Late(permits, bytes) => {
            let _permit = permits.acquire().await;
            let _ = stream.write_all(&bytes).await;
        }
        Reply::Trickle => {
            let _ = stream.write_all(head).await;
            while stream.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        Reply::Endless => {
            let _ = stream.write_all(head).await;
            while stream.write_all(&[b'x'; 65_536]).await.is_ok() {}
        }
        Reply::Stuck => {
            let _ = stream.write_all(head).await;
            let _ = stream.write_all(&[b'x'; 65_536]).await;
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }
        Reply::Silence => tokio::time::sleep(Duration::from_secs(3600)).await,
    }
}

fn is_complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.and_then(|length| length.trim().parse().ok()).unwrap_or(0)
}

/// A web metric, in JSON as users write it. `more` contains the fields next to `name` and `provider`.
fn metric(web: serde_json::Value, more: serde_json::Value) -> Metric {
    let mut metric = json!({"name": "ready", "provider": {"web": web}});
    let fields = metric.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    serde_json::from_value(metric).expect("a metric")
}

async fn measure_with(metric: Metric, args: &[(&str, &str)], options: HttpOptions) -> Outcome {
    let args = args.iter().map(|(name, value)| Argument {
        name: (*name).into(),
        value: Some((*value).into()),
        value_from: None,
    });
    let spec =
        HookRunSpec { metrics: vec![metric], args: args.collect(), ..HookRunSpec::default() };
    let mut run = HookRun::new("run", spec);
    run.metadata.uid = Some("uid-1".into());
    let call = Call { run: Arc::new(run), metric: 0, number: 2, job: None };
    Probe::new(options, None).expect("a probe").measure(&call).await
}

/// Allows loopback addresses, because the servers of these tests are on this machine.
const HERE: HttpOptions = HttpOptions { allow_link_local: false, allow_loopback: true };

async fn measure(metric: Metric) -> Outcome {
    measure_with(metric, &[], HERE).await
}

/// The message without times and ports, which differ from run to run.
fn message(outcome: &Outcome, server: &Server) -> String {
    let message = outcome.message.clone().unwrap_or_default().replace(&server.url, "SERVER");
    let words = message.split(' ').collect::<Vec<_>>();
    let mut steady = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let timed = words.get(index + 1).is_some_and(|unit| unit.trim_end_matches(':') == "ms");
        steady.push(if timed { "N" } else { word });
    }
    steady.join(" ")
}

//! The DevTools protocol: JSON messages over one WebSocket, for all tabs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::wait::LIMIT;

/// The longest message: the accessibility tree of thousands of pods is long.
const MAX_MESSAGE: usize = 256 << 20;

/// The connection to a browser.
#[derive(Clone)]
pub(super) struct DevTools(Arc<Shared>);

struct Shared {
    next: AtomicU64,
    sender: tokio::sync::Mutex<SplitSink<WebSocketStream<TcpStream>, Message>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: HashMap<u64, oneshot::Sender<Value>>,
    /// Errors of pages, by session.
    errors: HashMap<String, Vec<String>>,
}

impl DevTools {
    /// Connects to the address that the browser has printed.
    pub(super) async fn connect(address: &str) -> Result<Self> {
        let host = address.strip_prefix("ws://").and_then(|rest| rest.split('/').next());
        let stream = TcpStream::connect(host.context("no host")?).await?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let (socket, _) = client_async_with_config(address, stream, Some(config)).await?;
        let (sender, receiver) = socket.split();
        let sender = tokio::sync::Mutex::new(sender);
        let shared = Shared { next: AtomicU64::new(1), sender, state: Mutex::default() };
        let devtools = DevTools(Arc::new(shared));
        tokio::spawn(devtools.clone().receive(receiver));
        Ok(devtools)
    }

    /// Calls a method of a tab, or of the browser, and returns its result.
    pub(super) async fn call(
        &self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let (answer, answered) = oneshot::channel();
        self.state().waiting.insert(id, answer);
        self.0.sender.lock().await.send(Message::text(message.to_string())).await?;
        let response = timeout(LIMIT, answered).await;
        let response = response.with_context(|| format!("{method} has no response"))??;
        if let Some(error) = response.get("error") {
            bail!("{method}: {error}");
        }
        Ok(response["result"].clone())
    }

    /// The errors that a tab has reported so far.
    pub(super) fn errors(&self, session: &str) -> Vec<String> {
        self.state().errors.get(session).cloned().unwrap_or_default()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn receive(self, mut receiver: SplitStream<WebSocketStream<TcpStream>>) {
        while let Some(Ok(message)) = receiver.next().await {
            let Ok(text) = message.to_text() else { continue };
            let Ok(message) = serde_json::from_str::<Value>(text) else { continue };
            let mut state = self.state();
            match message["id"].as_u64() {
                Some(id) => {
                    // A caller that has stopped waiting needs no response.
                    let _ = state.waiting.remove(&id).map(|waiting| waiting.send(message));
                }
                None => {
                    if let (Some(error), Some(session)) =
                        (error(&message), message["sessionId"].as_str())
                    {
                        state.errors.entry(session.to_owned()).or_default().push(error);
                    }
                }
            }
        }
    }
}

/// The error that an event reports: an exception, or a log entry such as a violation of the security policy.
fn error(event: &Value) -> Option<String> {
    let params = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
        "Log.entryAdded" if params["entry"]["level"] == "error" => {
            Some(params["entry"]["text"].as_str()?.to_owned())
        }
        _ => None,
    }
}

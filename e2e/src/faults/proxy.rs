//! The proxy. It uses TLS on both sides, and speaks HTTP/2, as the operator and a real API server do. It forwards the
//! client's own credentials, so that the API server logs the requests under the client's name.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use futures::stream::{iter, once};
use http::{HeaderMap, Request, Response, StatusCode, Uri, header, request};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kube::Config;
use kube::client::ConfigExt;
use kube::config::AuthInfo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;

use super::refusal::refusal;
use super::request::{RequestInfo, Verb};
use super::script::{Fault, Script, WatchRule};
use super::tally::Tally;
use super::watch::follow;
use crate::servers::authority::acceptor;

/// The body of a response to the client.
pub(super) type Outgoing = UnsyncBoxBody<Bytes, Broken>;

/// Why a body is incomplete.
#[derive(Debug)]
pub(super) struct Broken(pub &'static str);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Broken {}

impl Broken {
    /// The server's response broke off.
    const BY_SERVER: Broken = Broken("the server's response broke off");

    /// Returns the error after a pause. Without the pause, data sent right before the error would stay in the
    /// buffer.
    pub(super) async fn after_flush(why: &'static str) -> Self {
        sleep(Duration::from_millis(20)).await;
        Broken(why)
    }
}

/// The flow-control window of a stream, the same as the operator's.
const STREAM_WINDOW: u32 = 4 << 20;
/// The number of requests that are served at a time, as by an API server.
const MAX_STREAMS: u32 = 100;
/// The flow-control window of a connection.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// The proxy. It stops when dropped.
pub struct FaultProxy {
    url: String,
    ca: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// The state that all connections share.
struct Shared {
    server: Uri,
    http: Http<HttpsConnector<HttpConnector>, Full<Bytes>>,
    playing: watch::Sender<Arc<Playing>>,
    tally: Arc<Mutex<Tally>>,
}

/// A script, when it started, and how many requests each of its rules has matched.
pub(super) struct Playing {
    script: Script,
    start: Instant,
    matched: Vec<AtomicU32>,
}

impl Playing {
    fn new(script: Script) -> Arc<Self> {
        let rules = script.request_rules.iter();
        let matched = rules.map(|_| AtomicU32::new(0)).collect();
        Arc::new(Playing { script, start: Instant::now(), matched })
    }

    /// The fault that hits a request, if there is one.
    fn fault(&self, info: &RequestInfo) -> Option<Fault> {
        let rules = self.script.request_rules.iter().zip(&self.matched);
        let mut rules = rules.filter(|(rule, _)| rule.requests.applies_to(info));
        let hit = rules.find(|(rule, matched)| {
            let index = matched.fetch_add(1, Ordering::Relaxed);
            rule.frequency.hits(index)
        });
        hit.map(|(rule, _)| rule.fault)
    }

    /// The rule for watches of a resource at this time, with its start and end.
    pub(super) fn watch_rule(&self, resource: &str) -> Option<(&WatchRule, Instant, Instant)> {
        let time = self.start.elapsed();
        let mut rules = self.script.watch_rules.iter();
        let rule = rules.find(|rule| rule.resource == resource && rule.applies_at(time))?;
        Some((rule, self.start + rule.from, self.start + rule.until))
    }
}

impl FaultProxy {
    /// A proxy in front of a server, without faults. Credentials in the configuration are not used.
    pub async fn in_front_of(config: &Config) -> Result<Self> {
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        let tls = anonymous.rustls_client_config()?;
        let https = HttpsConnectorBuilder::new().with_tls_config(tls);
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        let https = https.https_or_http().enable_all_versions();
        let http = Http::builder(TokioExecutor::new())
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .build(https.wrap_connector(connector));
        let shared = Arc::new(Shared {
            server: config.cluster_url.clone(),
            http,
            playing: watch::Sender::new(Playing::new(Script::default())),
            tally: Arc::default(),
        });
        let (acceptor, ca) = acceptor(&["h2", "http/1.1"])?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}", listener.local_addr()?);
        let task = tokio::spawn(serve(listener, acceptor, Arc::clone(&shared)));
        Ok(FaultProxy { url, ca, shared, task })
    }

    /// The `server` of a kubeconfig that uses the proxy.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The CA of the proxy's certificate (PEM).
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// Plays a script from now on. Replaces the previous one.
    pub fn play(&self, script: Script) {
        self.shared.playing.send_replace(Playing::new(script));
    }

    /// Stops all faults. Delayed responses and events are sent immediately, and watches that have dropped
    /// events end.
    pub fn heal(&self) {
        self.play(Script::default());
    }

    /// How often each fault has happened so far.
    pub fn tally(&self) -> Tally {
        let tally = self.shared.tally.lock();
        tally.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(connection(stream, acceptor.clone(), Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    // The handshake fails if the client does not trust the certificate or is killed.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http2()
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.respond(request).await) }
    });
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

impl Shared {
    /// The response to a request: 502 if the server cannot be reached.
    async fn respond(&self, request: Request<Incoming>) -> Response<Outgoing> {
        self.try_respond(request).await.unwrap_or_else(|error| {
            let mut response = Response::new(whole(Bytes::from(format!("{error:#}"))));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        })
    }

    async fn try_respond(&self, request: Request<Incoming>) -> Result<Response<Outgoing>> {
        let info = RequestInfo::parse(request.method(), request.uri());
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let playing = self.playing.borrow().clone();
        let fault = playing.fault(&info);
        if let Some(fault) = fault {
            self.count(fault.name());
        }
        match fault {
            None if info.verb == Verb::Watch => {
                let response = self.forward(&head, body).await?;
                Ok(self.disturb_watch(&info, &head, response))
            }
            None => {
                let response = self.forward(&head, body).await?;
                Ok(response.map(|body| body.map_err(|_| Broken::BY_SERVER).boxed_unsync()))
            }
            Some(Fault::Delay(time)) => {
                let response = self.forward_and_read(&head, body).await?;
                let mut scripts = self.playing.subscribe();
                tokio::select! {
                    () = sleep(time) => {}
                    _ = scripts.changed() => {}
                }
                Ok(response.map(whole))
            }
            Some(Fault::Duplicate) => {
                self.forward_and_read(&head, body.clone()).await?;
                Ok(self.forward_and_read(&head, body).await?.map(whole))
            }
            Some(Fault::Truncate) => Ok(self.forward_and_read(&head, body).await?.map(half)),
            Some(fault) => {
                if fault == Fault::Lost {
                    self.forward_and_read(&head, body).await?;
                }
                let refused = refusal(fault).context("the fault has no refusal")?;
                Ok(refused.map(|body| whole(body.into())))
            }
        }
    }

    /// Forwards a request unchanged.
    async fn forward(&self, head: &request::Parts, body: Bytes) -> Result<Response<Incoming>> {
        let path = head.uri.path_and_query().context("the request has no path")?;
        let uri = Uri::builder()
            .scheme(self.server.scheme_str().unwrap_or("https"))
            .authority(self.server.authority().context("the server has no address")?.as_str())
            .path_and_query(path.as_str())
            .build()?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = end_to_end(head.headers.clone());
        let mut response = self.http.request(request).await?;
        let headers = std::mem::take(response.headers_mut());
        *response.headers_mut() = end_to_end(headers);
        Ok(response)
    }

    /// Forwards a request and reads the whole response.
    async fn forward_and_read(
        &self,
        head: &request::Parts,
        body: Bytes,
    ) -> Result<Response<Bytes>> {
        let (head, body) = self.forward(head, body).await?.into_parts();
        Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
    }

    /// Passes on the response to a watch, with the faults of the script.
    fn disturb_watch(
        &self,
        info: &RequestInfo,
        head: &request::Parts,
        response: Response<Incoming>,
    ) -> Response<Outgoing> {
        if response.status() != StatusCode::OK {
            return response.map(|body| body.map_err(|_| Broken::BY_SERVER).boxed_unsync());
        }
        let query = head.uri.query().unwrap_or_default();
        let tally = Arc::clone(&self.tally);
        let count = move |name| count(&tally, name);
        let playing = self.playing.subscribe();
        response.map(|body| follow(body, info.resource.clone(), query, playing, count))
    }

    fn count(&self, fault: &'static str) {
        count(&self.tally, fault);
    }
}

fn count(tally: &Mutex<Tally>, fault: &'static str) {
    tally.lock().unwrap_or_else(PoisonError::into_inner).count(fault);
}

/// The headers to pass on: all but `Host` and the hop-by-hop ones.
fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    for name in [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING, header::TE] {
        headers.remove(name);
    }
    headers
}

fn whole(body: Bytes) -> Outgoing {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// The first half of a body, after which the stream breaks off, although the headers announce the whole body.
fn half(body: Bytes) -> Outgoing {
    let first = Ok(Frame::data(body.slice(..body.len() / 2)));
    let error = once(async { Err(Broken::after_flush("cut off in the middle").await) });
    StreamBody::new(iter([first]).chain(error)).boxed_unsync()
}

//! The proxy: TLS on both sides, HTTP/2 as between the operator and a real API server, and the
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

use super::asked::{Asked, Verb};
use super::refusal::refusal;
use super::script::{Fault, Script, WatchRule};
use super::tally::Tally;
use super::watch::follow;
use crate::servers::authority::acceptor;

/// What goes back to the client.
pub(super) type Outgoing = UnsyncBoxBody<Bytes, Broken>;

/// Why a body breaks off.
#[derive(Debug)]
pub(super) struct Broken(pub &'static str);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Broken {}

impl Broken {
    /// To be sent after something else: without a pause that would never leave its buffer.
    pub(super) async fn after_what_was_sent(why: &'static str) -> Self {
        sleep(Duration::from_millis(20)).await;
        Broken(why)
    }
}

/// What may be under way on one stream, as the operator has it.
const STREAM_WINDOW: u32 = 4 << 20;
/// The same for a connection.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// The proxy. It ends when dropped.
pub struct FaultProxy {
    url: String,
    ca: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What all connections share.
struct Shared {
    server: Uri,
    http: Http<HttpsConnector<HttpConnector>, Full<Bytes>>,
    playing: watch::Sender<Arc<Playing>>,
    tally: Arc<Mutex<Tally>>,
}

/// A script, since when it is played, and how many requests each of its rules has been asked about.
pub(super) struct Playing {
    script: Script,
    begun: Instant,
    turns: Vec<AtomicU32>,
}

impl Playing {
    fn new(script: Script) -> Arc<Self> {
        let turns = script.requests.iter().map(|_| AtomicU32::new(0)).collect();
        Arc::new(Playing {
            script,
            begun: Instant::now(),
            turns,
        })
    }

    /// What happens to a request.
    fn fault(&self, asked: &Asked) -> Option<Fault> {
        let rules = self.script.requests.iter().zip(&self.turns);
        let mut rules = rules.filter(|(rule, _)| rule.which.applies_to(asked));
        let hit = rules.find(|(rule, turns)| {
            let before = turns.fetch_add(1, Ordering::Relaxed);
            rule.often.is_turn(before)
        });
        hit.map(|(rule, _)| rule.fault)
    }

    /// What happens to the watches of a resource now, and from and until when.
    pub(super) fn watch_rule(&self, resource: &str) -> Option<(&WatchRule, Instant, Instant)> {
        let time = self.begun.elapsed();
        let mut rules = self.script.watches.iter();
        let rule = rules.find(|rule| rule.resource == resource && rule.holds_at(time))?;
        Some((rule, self.begun + rule.from, self.begun + rule.until))
    }
}

impl FaultProxy {
    /// A proxy before a server, without faults. What the configuration has of credentials is not used.
    pub async fn before(config: &Config) -> Result<Self> {
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
        Ok(FaultProxy {
            url,
            ca,
            shared,
            task,
        })
    }

    /// What a kubeconfig calls it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The authority of its certificate (PEM).
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// Plays a script from now on, instead of the one before.
    pub fn play(&self, script: Script) {
        self.shared.playing.send_replace(Playing::new(script));
    }

    /// From now on there are no faults; what was held back comes at once, and watches that have told
    /// less than there was end.
    pub fn heal(&self) {
        self.play(Script::default());
    }

    /// The faults so far.
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
    // A client that does not trust the certificate, or is killed, goes away here.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http2()
        .max_concurrent_streams(1_000)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.answer(request).await) }
    });
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

impl Shared {
    /// The answer to a request. A server that cannot be reached is a bad gateway.
    async fn answer(&self, request: Request<Incoming>) -> Response<Outgoing> {
        self.try_answer(request).await.unwrap_or_else(|error| {
            let mut answer = Response::new(whole(Bytes::from(format!("{error:#}"))));
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
            answer
        })
    }

    async fn try_answer(&self, request: Request<Incoming>) -> Result<Response<Outgoing>> {
        let asked = Asked::of(request.method(), request.uri());
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let playing = self.playing.borrow().clone();
        let fault = playing.fault(&asked);
        if let Some(fault) = fault {
            self.count(fault.name());
        }
        match fault {
            None if asked.verb == Verb::Watch => {
                let answer = self.forward(&head, body).await?;
                Ok(self.followed(&asked, &head, answer))
            }
            None => {
                let answer = self.forward(&head, body).await?;
                Ok(answer.map(|body| body.map_err(|_| Broken("the server's")).boxed_unsync()))
            }
            Some(Fault::Late(time)) => {
                let answer = self.collected(&head, body).await?;
                let mut healed = self.playing.subscribe();
                tokio::select! {
                    () = sleep(time) => {}
                    _ = healed.changed() => {}
                }
                Ok(answer.map(whole))
            }
            Some(Fault::Twice) => {
                self.collected(&head, body.clone()).await?;
                Ok(self.collected(&head, body).await?.map(whole))
            }
            Some(Fault::Cut) => Ok(self.collected(&head, body).await?.map(half)),
            Some(fault) => {
                if fault == Fault::Lost {
                    self.collected(&head, body).await?;
                }
                let refused = refusal(fault).context("a fault that refuses")?;
                Ok(refused.map(|body| whole(body.into())))
            }
        }
    }

    /// Sends a request on as it came.
    async fn forward(&self, head: &request::Parts, body: Bytes) -> Result<Response<Incoming>> {
        let path = head.uri.path_and_query().context("a request has a path")?;
        let uri = Uri::builder()
            .scheme(self.server.scheme_str().unwrap_or("https"))
            .authority(
                self.server
                    .authority()
                    .context("a server has an address")?
                    .as_str(),
            )
            .path_and_query(path.as_str())
            .build()?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = end_to_end(head.headers.clone());
        let mut answer = self.http.request(request).await?;
        let headers = std::mem::take(answer.headers_mut());
        *answer.headers_mut() = end_to_end(headers);
        Ok(answer)
    }

    /// The same, and the whole answer.
    async fn collected(&self, head: &request::Parts, body: Bytes) -> Result<Response<Bytes>> {
        let (head, body) = self.forward(head, body).await?.into_parts();
        Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
    }

    /// A watch, as far as the script lets it through.
    fn followed(
        &self,
        asked: &Asked,
        head: &request::Parts,
        answer: Response<Incoming>,
    ) -> Response<Outgoing> {
        if answer.status() != StatusCode::OK {
            return answer.map(|body| body.map_err(|_| Broken("the server's")).boxed_unsync());
        }
        let query = head.uri.query().unwrap_or_default();
        let tally = Arc::clone(&self.tally);
        let count = move |name| count(&tally, name);
        let playing = self.playing.subscribe();
        answer.map(|body| follow(body, asked.resource.clone(), query, playing, count))
    }

    fn count(&self, fault: &'static str) {
        count(&self.tally, fault);
    }
}

fn count(tally: &Mutex<Tally>, fault: &'static str) {
    tally
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .count(fault);
}

/// Headers that are not about one connection alone.
fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    for name in [
        header::HOST,
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::TE,
    ] {
        headers.remove(name);
    }
    headers
}

fn whole(body: Bytes) -> Outgoing {
    Full::new(body)
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// The first half of a body, and then its connection breaks. The head has promised all of it.
fn half(body: Bytes) -> Outgoing {
    let first = Ok(Frame::data(body.slice(..body.len() / 2)));
    let breaks = once(async { Err(Broken::after_what_was_sent("cut in the middle").await) });
    StreamBody::new(iter([first]).chain(breaks)).boxed_unsync()
}

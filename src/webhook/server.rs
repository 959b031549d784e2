//! HTTPS: connections, the certificate of the moment, and the one route.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::review::{Answer, Question, Request, review};
use crate::admission::Templates;
use crate::cache::Cache;
use crate::expr::Guard;

/// Connections at a time; API servers keep few, and keep them.
const MAX_CONNECTIONS: usize = 256;
/// How long the beginning of a connection or request may take.
const BEGIN: Duration = Duration::from_secs(5);
/// Largest question: an object before and after, each at most what etcd takes.
const MAX_QUESTION: usize = 8 << 20;

/// The certificate that is served at the moment.
#[derive(Default)]
pub struct Serving(RwLock<Option<Arc<CertifiedKey>>>);

impl Serving {
    /// Whether there is one.
    pub fn is_ready(&self) -> bool {
        self.current().is_some()
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }

    /// From now on this one is served, to new connections.
    pub(super) fn serve(&self, key: CertifiedKey) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::new(key));
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Serving").field(&self.is_ready()).finish()
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

/// What answers are made with.
pub(super) struct Desk {
    pub guard: Guard,
    /// The one namespace that the cache knows; all when None.
    pub scope: Option<String>,
    pub cache: Box<dyn Fn() -> Option<Arc<Cache>> + Send + Sync>,
}

impl Desk {
    /// Answers a question; None while the caches are not filled.
    async fn answer(&self, request: Request) -> Option<Value> {
        let cache = (self.cache)().filter(|cache| cache.is_ready())?;
        if self
            .scope
            .as_ref()
            .is_some_and(|it| *it != request.namespace)
        {
            let answer = Answer {
                uid: request.uid,
                allowed: true,
                ..Answer::default()
            };
            return Some(answer.into_review());
        }
        let answer = self.guard.run(move || {
            let find = |name: &str| {
                let stored = cache.hook_templates.store().get(&request.namespace, name)?;
                Some(Arc::clone(&stored.object))
            };
            let templates = Templates {
                find: &find,
                place: "this namespace",
            };
            review(&request, &templates)
        });
        answer.await.ok().map(|answer| answer.into_review())
    }
}

async fn validate(
    State(desk): State<Arc<Desk>>,
    Json(question): Json<Question>,
) -> Result<Json<Value>, StatusCode> {
    let answer = desk.answer(question.request).await;
    answer.map(Json).ok_or(StatusCode::SERVICE_UNAVAILABLE)
}

/// Serves for as long as the process lives.
pub(super) async fn serve(listener: TcpListener, serving: Arc<Serving>, desk: Arc<Desk>) {
    let app = Router::new()
        .route("/validate", post(validate))
        .layer(DefaultBodyLimit::max(MAX_QUESTION))
        .with_state(desk);
    let mut tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_cert_resolver(serving);
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let turns = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Most often there are no file descriptors left.
                warn!(%error, "the webhook cannot accept connections");
                sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let (acceptor, app) = (acceptor.clone(), app.clone());
        tokio::spawn(async move {
            connection(stream, acceptor, app).await;
            drop(turn);
        });
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, app: Router) {
    // Without it, small answers wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let stream = match timeout(BEGIN, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(%error, "no TLS with a caller of the webhook"),
        Err(_) => return debug!("a caller of the webhook is silent"),
    };
    let mut http = Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(BEGIN);
    http.http2().timer(TokioTimer::new());
    let service = TowerToHyperService::new(app);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        debug!(%error, "a connection to the webhook ended");
    }
}

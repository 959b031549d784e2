//! HTTPS: the certificate of the moment, and the one route.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Json, Router};
use futures::StreamExt;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

use super::dry_run::DryRun;
use super::metrics::{AdmissionMetrics, RequestLabels};
use super::review::{AdmissionRequest, AdmissionResponse, AdmissionReview, review};
use crate::cache::Cache;
use crate::evaluation_pool::EvaluationPool;
use crate::inbound::{self, Caller, MemoryBudget};
use gamekeeper_core::admission::Templates;

/// How long a body may take to arrive; API servers wait for three seconds, answer included.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest body: an object before and after, each at most what etcd takes.
const MAX_BODY: usize = 8 << 20;

/// The certificate that is served at the moment.
#[derive(Default)]
pub(crate) struct ServingCertificate(RwLock<Option<Arc<CertifiedKey>>>);

impl ServingCertificate {
    /// Whether there is one.
    pub(crate) fn is_ready(&self) -> bool {
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

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Serving").field(&self.is_ready()).finish()
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

pub(super) struct Reviewer {
    pub evaluation: EvaluationPool,
    pub dry_run: DryRun,
    pub metrics: AdmissionMetrics,
    /// The one namespace that the cache knows; all when None.
    pub scope: Option<String>,
    pub cache: Box<dyn Fn() -> Option<Arc<Cache>> + Send + Sync>,
}

impl Reviewer {
    /// Answers a request; None while the caches are not filled. The memory is counted for as long as the
    /// request is held, also when the caller has gone.
    async fn answer(
        &self,
        request: AdmissionRequest,
        budget: MemoryBudget,
    ) -> Option<AdmissionResponse> {
        let cache = (self.cache)().filter(|cache| cache.is_ready())?;
        if self
            .scope
            .as_ref()
            .is_some_and(|it| *it != request.namespace)
        {
            return Some(AdmissionResponse {
                uid: request.uid,
                allowed: true,
                ..AdmissionResponse::default()
            });
        }
        let by_server = self.dry_run.judge(&request).await;
        let namespace = request.namespace.clone();
        let answer = self.evaluation.run(&namespace, move || {
            let _budget = budget;
            let find = |name: &str| {
                let stored = cache.hook_templates.store().get(&request.namespace, name)?;
                Some(Arc::clone(&stored.object))
            };
            let templates = Templates {
                find: &find,
                place: "this namespace",
            };
            review(&request, &templates, &by_server)
        });
        answer.await.ok()
    }
}

async fn validate(
    State(reviewer): State<Arc<Reviewer>>,
    Extension(caller): Extension<Arc<Caller>>,
    body: Body,
) -> Result<Json<Value>, StatusCode> {
    let mut budget = caller.budget();
    let read = timeout(BODY_TIMEOUT, read(body, &mut budget)).await;
    let review = read.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))?;
    let (asked, begun) = (RequestLabels::of(&review.request), Instant::now());
    let answer = reviewer.answer(review.request, budget).await;
    let allowed = answer.as_ref().map(|answer| answer.allowed);
    reviewer.metrics.reviewed(asked, allowed, begun.elapsed());
    let answer = answer.ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(Json(answer.into_review()))
}

/// Reads a body; each byte is counted before it is kept.
async fn read(body: Body, budget: &mut MemoryBudget) -> Result<AdmissionReview, StatusCode> {
    let mut chunks = body.into_data_stream();
    let mut text = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| StatusCode::BAD_REQUEST)?;
        if text.len() + chunk.len() > MAX_BODY {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let taken = budget.take(chunk.len());
        taken.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        text.extend_from_slice(&chunk);
    }
    let taken = budget.take_parsed(&text);
    taken.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    serde_json::from_slice(&text).map_err(|error| match error.is_data() {
        true => StatusCode::UNPROCESSABLE_ENTITY,
        false => StatusCode::BAD_REQUEST,
    })
}

/// Serves for as long as the process lives.
pub(super) async fn serve(
    listener: TcpListener,
    serving: Arc<ServingCertificate>,
    reviewer: Arc<Reviewer>,
) {
    let app = Router::new()
        .route("/validate", post(validate))
        .with_state(reviewer);
    let mut tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_cert_resolver(serving);
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    inbound::serve(listener, Some(acceptor), app).await;
}

//! The HTTPS server with its current certificate.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Json, Router};
use futures::StreamExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

use super::dry_run::DryRun;
use super::metrics::{AdmissionMetrics, RequestLabels};
use super::mutate::{defaulted, injected};
use super::neighbors::{Neighbors, concerns_sidecar_set};
use super::review::{AdmissionRequest, AdmissionResponse, AdmissionReview, review};
use crate::kinds::{Cache, Reaching};
use crate::runtime::evaluation_pool::EvaluationPool;
use crate::runtime::fair::{Capacity, NamespaceLimiter};
use crate::runtime::inbound;
use crate::runtime::inbound::{Caller, Connections, MemoryBudget};
use gamekeeper_core::admission::{Templates, is_dns_label};
use gamekeeper_core::hook_run::ExecNamespaces;
use gamekeeper_core::sidecar_set::Namespace;

/// The timeout for reading a body: longer than API servers wait for a response (three seconds, in the chart).
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// The places for reviews. Each address has some that no other can take: a pod that sends reviews must not make those of
/// an API server late, because objects whose review is late are accepted unchecked.
pub(super) const PLACES: Capacity = Capacity { shared: 64, per_namespace: 16, reserved: 4 };
/// How long a review may wait for its place.
const PLACE_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout for reading a namespace, well below the webhook's timeout in the chart.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest body, in bytes: enough for two objects of the maximum size in etcd.
const MAX_BODY: usize = 8 << 20;

/// The current certificate; None before the first one.
#[derive(Default)]
pub(crate) struct ServingCertificate(RwLock<Option<Arc<CertifiedKey>>>);

impl ServingCertificate {
    pub(crate) fn is_ready(&self) -> bool {
        self.current().is_some()
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }

    /// Replaces the certificate for new connections.
    pub(super) fn set(&self, key: CertifiedKey) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::new(key));
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServingCertificate").field(&self.is_ready()).finish()
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
    /// The places for reviews, by the caller's address.
    pub places: NamespaceLimiter,
    /// The only namespace that the cache holds; None if it holds all.
    pub scope: Option<String>,
    /// The namespaces in which hooks may run commands.
    pub commands: Arc<ExecNamespaces>,
    /// Reads namespaces whose labels may be newer than the cache.
    pub namespaces: Api<core::Namespace>,
    pub cache: Box<dyn Fn() -> Option<Arc<Cache>> + Send + Sync>,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// Validate an object.
    Validate,
    /// Set the defaults of a SidecarSet.
    Default,
    /// Inject the sidecars of a pod.
    Inject,
}

impl Reviewer {
    /// Reviews a request; None while the caches are not synced, if the namespace of a pod cannot be read, or if the
    /// review panics. The budget is held for as long as the request, even if the caller disconnects.
    async fn review(
        &self,
        purpose: Purpose,
        request: AdmissionRequest,
        budget: MemoryBudget,
        caller: &str,
    ) -> Option<AdmissionResponse> {
        let cache = (self.cache)()?;
        let is_ready = match purpose {
            Purpose::Validate => cache.is_ready(),
            // Pods wait for an answer, and it depends on nothing else.
            Purpose::Default | Purpose::Inject => cache.knows_sidecar_sets(),
        };
        if !is_ready {
            return None;
        }
        // SidecarSets have no namespace, and every operator can check them.
        let is_elsewhere =
            |scope: &String| !request.namespace.is_empty() && *scope != request.namespace;
        if self.scope.as_ref().is_some_and(is_elsewhere) {
            return Some(AdmissionResponse {
                uid: request.uid,
                allowed: true,
                ..AdmissionResponse::default()
            });
        }
        match purpose {
            Purpose::Validate => {
                let place = timeout(PLACE_TIMEOUT, self.places.take(caller)).await;
                let _place = place.ok()?;
                self.validate(cache, request, budget, caller).await
            }
            Purpose::Default => Some(defaulted(&request)),
            Purpose::Inject => {
                let sets = self.sets(&cache, &request.namespace).await?;
                Some(injected(&request, &sets))
            }
        }
    }

    async fn validate(
        &self,
        cache: Arc<Cache>,
        request: AdmissionRequest,
        budget: MemoryBudget,
        caller: &str,
    ) -> Option<AdmissionResponse> {
        let dry_run = self.dry_run.check(&request, caller).await;
        let request = Arc::new(request);
        let neighbors = self.neighbors(&cache, &request).await?;
        let namespace = request.namespace.clone();
        let commands = Arc::clone(&self.commands);
        let response = self.evaluation.run(&namespace, move || {
            let _budget = budget;
            let find = |name: &str| {
                let stored = cache.hook_templates.store().get(&request.namespace, name)?;
                Some(Arc::clone(&stored.object))
            };
            let templates = Templates { find: &find, place: "this namespace" };
            let sidecar_sets = cache.sidecar_sets.store().all();
            review(&request, &templates, &dry_run, &commands, &sidecar_sets, &neighbors)
        });
        response.await.ok()
    }

    /// The workloads with which a SidecarSet conflicts, and their namespaces. No namespace is cached before the first
    /// set exists.
    async fn neighbors(
        &self,
        cache: &Arc<Cache>,
        request: &Arc<AdmissionRequest>,
    ) -> Option<Neighbors> {
        let mut neighbors = match concerns_sidecar_set(request) {
            true => {
                // This compares the set with every workload of the cluster.
                let (cache, request) = (Arc::clone(cache), Arc::clone(request));
                let found = self.evaluation.run("", move || Neighbors::of(&request, &cache));
                found.await.ok()?
            }
            false => Neighbors::default(),
        };
        let unknown = neighbors.unknown_namespaces();
        let reads = unknown.iter().map(|name| self.read_namespace(name));
        let read = join_all(reads).await.into_iter().flatten();
        neighbors.namespaces.extend(read.map(|it| (it.name.clone(), it)));
        Some(neighbors)
    }

    /// The SidecarSets that reach the namespace of a pod of another controller; None if the namespace cannot be read.
    async fn sets(&self, cache: &Cache, name: &str) -> Option<Reaching> {
        let index = &cache.sidecars;
        if index.is_empty() {
            return Some(Reaching::default());
        }
        let is_open = |namespace: &Namespace| namespace.is_open_to_all(index.policy());
        let known = index.namespace(name).filter(|it| is_open(it));
        let namespace = match known {
            Some(namespace) => namespace,
            // The API server calls the webhook only for open namespaces, so this one's labels are newer than the cache.
            None => Arc::new(self.read_namespace(name).await?),
        };
        Some(match is_open(&namespace) {
            true => index.reaching_newer(&namespace),
            false => Reaching::default(),
        })
    }

    async fn read_namespace(&self, name: &str) -> Option<Namespace> {
        // The name becomes a part of the path, and it may come from any client that can connect to this port.
        if !is_dns_label(name) {
            return None;
        }
        let found = timeout(READ_TIMEOUT, self.namespaces.get_metadata(name)).await;
        let found = found.ok()?.ok()?;
        Some(Namespace { name: name.to_owned(), labels: found.metadata.labels.unwrap_or_default() })
    }
}

async fn validate(
    reviewer: State<Arc<Reviewer>>,
    caller: Extension<Arc<Caller>>,
    body: Body,
) -> Result<Json<Value>, StatusCode> {
    respond(Purpose::Validate, reviewer, caller, body).await
}

async fn default(
    reviewer: State<Arc<Reviewer>>,
    caller: Extension<Arc<Caller>>,
    body: Body,
) -> Result<Json<Value>, StatusCode> {
    respond(Purpose::Default, reviewer, caller, body).await
}

async fn inject(
    reviewer: State<Arc<Reviewer>>,
    caller: Extension<Arc<Caller>>,
    body: Body,
) -> Result<Json<Value>, StatusCode> {
    respond(Purpose::Inject, reviewer, caller, body).await
}

async fn respond(
    purpose: Purpose,
    State(reviewer): State<Arc<Reviewer>>,
    Extension(caller): Extension<Arc<Caller>>,
    body: Body,
) -> Result<Json<Value>, StatusCode> {
    let address = caller.address.clone();
    let mut budget = caller.budget();
    let read = timeout(BODY_TIMEOUT, read(body, &mut budget)).await;
    let review = read.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))?;
    let (labels, started) = (RequestLabels::of(&review.request), Instant::now());
    let response = reviewer.review(purpose, review.request, budget, &address).await;
    let allowed = response.as_ref().map(|response| response.allowed);
    reviewer.metrics.reviewed(labels, allowed, started.elapsed());
    let response = response.ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(Json(response.into_review()))
}

/// Reads a body, and counts its memory before it is used.
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

pub(super) async fn serve(
    listener: TcpListener,
    certificate: Arc<ServingCertificate>,
    reviewer: Arc<Reviewer>,
    connections: Connections,
) {
    let app = Router::new()
        .route("/validate", post(validate))
        .route("/default", post(default))
        .route("/inject", post(inject))
        .with_state(reviewer);
    let mut tls = ServerConfig::builder().with_no_client_auth().with_cert_resolver(certificate);
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    inbound::serve(listener, Some(acceptor), app, connections).await;
}

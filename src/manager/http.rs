//! The HTTP server for probes and metrics.
//!
//! Every pod in the cluster may reach the port, so it is served within the limits of [`crate::inbound`], and a
//! page of metrics is rendered once for all scrapes within a second, outside the threads that serve timers and
//! sockets.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Extension, Router};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::metrics::MetricsRegistry;
use crate::cache::Cache;
use crate::inbound::{Caller, MemoryBudget};
use crate::webhook::ServingCertificate;

/// The parts of the process that the server reads; empty until they have started.
#[derive(Default)]
pub(super) struct Health {
    pub cache: OnceLock<Arc<Cache>>,
    /// Stays empty if there is no webhook.
    pub webhook: OnceLock<Arc<ServingCertificate>>,
    pub metrics: OnceLock<Arc<MetricsRegistry>>,
    page: CachedPage,
}

/// /healthz (the process responds), /readyz (the caches are synced, and the webhook has a certificate), /metrics.
pub(super) fn routes(health: Arc<Health>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(health)
}

async fn ready(State(health): State<Arc<Health>>) -> (StatusCode, String) {
    let not_ready = |why: String| (StatusCode::SERVICE_UNAVAILABLE, why);
    let Some(cache) = health.cache.get() else {
        return not_ready("the API server has not responded yet".into());
    };
    let missing = cache.missing();
    if !missing.is_empty() {
        return not_ready(format!("the caches are not synced yet: {missing:?}"));
    }
    match health.webhook.get().is_none_or(|it| it.is_ready()) {
        true => (StatusCode::OK, "ok".into()),
        false => not_ready("the webhook has no certificate yet".into()),
    }
}

/// The content type of the metrics page.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

async fn metrics(
    State(health): State<Arc<Health>>,
    Extension(caller): Extension<Arc<Caller>>,
) -> Result<impl IntoResponse, StatusCode> {
    let page = match health.metrics.get().cloned() {
        Some(metrics) => health.page.get(move || metrics.page()).await,
        None => Ok("# EOF\n".into()),
    };
    let page = page.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let mut budget = caller.budget();
    let taken = budget.take(page.len());
    taken.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let body = Bytes::from_owner(PageBody {
        page,
        _budget: budget,
    });
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], Body::from(body)))
}

/// A page that is being sent to a caller. It counts toward the caller's memory until it has been sent.
struct PageBody {
    page: Arc<str>,
    _budget: MemoryBudget,
}

impl AsRef<[u8]> for PageBody {
    fn as_ref(&self) -> &[u8] {
        self.page.as_bytes()
    }
}

/// How long a page is cached.
const PAGE_LIFETIME: Duration = Duration::from_secs(1);

/// The newest page of metrics, and when it was rendered.
#[derive(Default)]
struct CachedPage(Arc<Mutex<Option<Rendered>>>);

type Rendered = (Instant, Arc<str>);

impl CachedPage {
    /// The cached page, or a new one. At most one page is rendered at a time, even if the caller that requested it
    /// has disconnected.
    async fn get(
        &self,
        render: impl FnOnce() -> Result<String, fmt::Error> + Send + 'static,
    ) -> Result<Arc<str>, fmt::Error> {
        let mut cached = Arc::clone(&self.0).lock_owned().await;
        if let Some((rendered_at, page)) = &*cached
            && rendered_at.elapsed() < PAGE_LIFETIME
        {
            return Ok(Arc::clone(page));
        }
        let rendered = spawn_blocking(move || {
            let page: Arc<str> = render()?.into();
            *cached = Some((Instant::now(), Arc::clone(&page)));
            Ok(page)
        });
        rendered.await.unwrap_or(Err(fmt::Error))
    }
}

#[cfg(test)]
mod tests;

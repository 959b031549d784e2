//! The HTTP server for probes and metrics.
//!
//! Every pod in the cluster may reach the port, so it is served within the limits of [`crate::runtime::inbound`], and a
//! page of metrics is rendered once for all scrapes within a second, outside the threads that serve timers and
//! sockets.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use futures::stream;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::kinds::Cache;
use crate::metrics::{MetricsRegistry, Page};
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

async fn metrics(State(health): State<Arc<Health>>) -> Result<impl IntoResponse, StatusCode> {
    let page = match health.metrics.get().cloned() {
        Some(metrics) => health.page.get(move || metrics.page()).await,
        None => Ok(Arc::new(Page::of("# EOF\n"))),
    };
    let page = page.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    // The page exists once, however many callers it is sent to.
    let pieces = stream::unfold((page, 0), |(page, index)| async move {
        let piece = page.piece(index)?;
        Some((Ok::<_, Infallible>(piece), (page, index + 1)))
    });
    let body = Body::from_stream(pieces);
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], body))
}

/// How long a page is cached.
const PAGE_LIFETIME: Duration = Duration::from_secs(1);

/// The memory of the pages that are being sent, in bytes. A caller that reads slowly keeps a page for up to two minutes.
/// If such callers keep this much, all get the newest of these pages instead of a new one.
const MAX_PAGES: usize = 112 << 20;

/// The newest page of metrics, and those that are still being sent.
#[derive(Default)]
struct CachedPage(Arc<Mutex<Pages>>);

#[derive(Default)]
struct Pages {
    /// The newest page, and when it was rendered.
    newest: Option<(Instant, Arc<Page>)>,
    sent: Vec<Weak<Page>>,
}

impl Pages {
    /// The newest page, unless there should be a new one.
    fn current(&mut self) -> Option<Arc<Page>> {
        self.sent.retain(|page| page.strong_count() > 0);
        let (rendered_at, newest) = self.newest.as_ref()?;
        let sent = self.sent.iter().filter_map(Weak::upgrade);
        let memory: usize = sent.map(|page| page.length()).sum();
        let is_new = rendered_at.elapsed() < PAGE_LIFETIME;
        let is_full = memory + newest.length() > MAX_PAGES;
        (is_new || is_full).then(|| Arc::clone(newest))
    }

    fn add(&mut self, page: Page) -> Arc<Page> {
        let page = Arc::new(page);
        self.sent.push(Arc::downgrade(&page));
        self.newest = Some((Instant::now(), Arc::clone(&page)));
        page
    }
}

impl CachedPage {
    /// The cached page, or a new one. At most one page is rendered at a time, even if the caller that requested it
    /// has disconnected.
    async fn get(
        &self,
        render: impl FnOnce() -> Result<Page, fmt::Error> + Send + 'static,
    ) -> Result<Arc<Page>, fmt::Error> {
        let mut cached = Arc::clone(&self.0).lock_owned().await;
        if let Some(page) = cached.current() {
            return Ok(page);
        }
        let rendered = spawn_blocking(move || Ok(cached.add(render()?)));
        rendered.await.unwrap_or(Err(fmt::Error))
    }
}

#[cfg(test)]
mod tests;

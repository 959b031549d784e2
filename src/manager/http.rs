//! What the process says of itself over HTTP.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use super::metrics::Shown;
use crate::cache::Cache;
use crate::webhook::Serving;

/// What there is to say.
#[derive(Default)]
pub struct Health {
    /// The caches, once there are any.
    pub cache: OnceLock<Arc<Cache>>,
    /// The webhook's certificate, where there is a webhook.
    pub webhook: OnceLock<Arc<Serving>>,
    /// The metrics, once there are any.
    pub metrics: OnceLock<Shown>,
}

/// The routes: /healthz (the process answers), /readyz (the caches are filled, and the webhook has a
/// certificate), /metrics.
pub fn routes(health: Arc<Health>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(health)
}

async fn ready(State(health): State<Arc<Health>>) -> (StatusCode, &'static str) {
    let not_yet = |what| (StatusCode::SERVICE_UNAVAILABLE, what);
    if !health.cache.get().is_some_and(|cache| cache.is_ready()) {
        return not_yet("the caches are not filled yet");
    }
    match health.webhook.get().is_none_or(|it| it.is_ready()) {
        true => (StatusCode::OK, "ok"),
        false => not_yet("the webhook has no certificate yet"),
    }
}

/// What Prometheus is told about the page.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

async fn metrics(State(health): State<Arc<Health>>) -> Result<impl IntoResponse, StatusCode> {
    let page = match health.metrics.get() {
        Some(shown) => shown.page(),
        None => Ok("# EOF\n".to_owned()),
    };
    let page = page.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], page))
}

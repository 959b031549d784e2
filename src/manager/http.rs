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

async fn ready(State(health): State<Arc<Health>>) -> (StatusCode, String) {
    let not_yet = |what: String| (StatusCode::SERVICE_UNAVAILABLE, what);
    let Some(cache) = health.cache.get() else {
        return not_yet("the API server does not answer yet".into());
    };
    let missing = cache.missing();
    if !missing.is_empty() {
        return not_yet(format!("the caches are not filled yet: {missing:?}"));
    }
    match health.webhook.get().is_none_or(|it| it.is_ready()) {
        true => (StatusCode::OK, "ok".into()),
        false => not_yet("the webhook has no certificate yet".into()),
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

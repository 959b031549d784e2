//! What the process says of itself over HTTP.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use crate::cache::Cache;

/// What there is to say.
#[derive(Default)]
pub struct Health {
    /// The caches, once there are any.
    pub cache: OnceLock<Arc<Cache>>,
}

/// The routes: /healthz (the process answers), /readyz (the caches are filled).
pub fn routes(health: Arc<Health>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .with_state(health)
}

async fn ready(State(health): State<Arc<Health>>) -> (StatusCode, &'static str) {
    match health.cache.get().is_some_and(|cache| cache.is_ready()) {
        true => (StatusCode::OK, "ok"),
        false => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the caches are not filled yet",
        ),
    }
}

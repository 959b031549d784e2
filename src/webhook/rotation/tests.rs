//! Rotation against an API server that refuses writes.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::Value;
use tower::service_fn;

use super::*;

/// More writes than expected in a minute.
const TOO_MANY: usize = 100;

/// The number of writes in the first minute, if all responses have this code.
async fn writes_in_a_minute(code: u16) -> usize {
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    let service = service_fn(move |request: Request<Body>| {
        let is_write = request.method() != Method::GET;
        let count = counted.fetch_add(usize::from(is_write), Ordering::Relaxed);
        async move {
            if count >= TOO_MANY {
                std::future::pending::<()>().await;
            }
            let response: (u16, Value) = match is_write {
                true => (
                    code,
                    json!({"status": "Failure", "code": code, "message": "no"}),
                ),
                false => (
                    200,
                    json!({"metadata": {"name": "webhook", "resourceVersion": "1"}}),
                ),
            };
            let body = Body::from(response.1.to_string().into_bytes());
            Response::builder().status(response.0).body(body)
        }
    });
    let rotation = Rotation::new(
        Client::new(service, "games"),
        "games",
        "webhook",
        Duration::from_secs(90 * 86_400),
        true,
        Arc::new(ServingCertificate::default()),
        AdmissionMetrics::default(),
    );
    let minute = timeout(Duration::from_secs(60), rotation.run()).await;
    assert!(minute.is_err(), "the rotation ended");
    writes.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn refused_writes_are_retried_with_backoff() {
    for code in [403, 409, 422, 503] {
        // After 0, 1, 3, 7, 15 and 31 seconds.
        assert_eq!(writes_in_a_minute(code).await, 6, "{code}");
    }
}

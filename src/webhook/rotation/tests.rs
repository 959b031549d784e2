//! Rotation against an API server that refuses writes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::Value;
use tower::{Service, service_fn};

use super::*;

/// More writes than expected in a minute.
const TOO_MANY: usize = 100;

fn rotation<S>(service: S, state: watch::Sender<WebhookState>) -> Rotation
where
    S: Service<Request<Body>, Response = Response<Body>, Error = http::Error> + Send + 'static,
    S::Future: Send + 'static,
{
    Rotation::new(
        Client::new(service, "games"),
        "games",
        "webhook",
        Duration::from_secs(90 * 86_400),
        Arc::new(ServingCertificate::default()),
        AdmissionMetrics::default(),
        Some(state),
    )
}

/// The number of writes in the first minute, if the response to each of them has this code.
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
                true => (code, json!({"status": "Failure", "code": code, "message": "no"})),
                false => (200, json!({"metadata": {"name": "webhook", "resourceVersion": "1"}})),
            };
            let body = Body::from(response.1.to_string().into_bytes());
            Response::builder().status(response.0).body(body)
        }
    });
    let rotation = rotation(service, watch::Sender::default());
    let ended = timeout(Duration::from_secs(60), rotation.run()).await;
    assert!(ended.is_err(), "the rotation ended");
    writes.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn refused_writes_are_retried_with_backoff() {
    for code in [403, 409, 422, 503] {
        // After 0, 1, 3, 7, 15 and 31 seconds.
        assert_eq!(writes_in_a_minute(code).await, 6, "{code}");
    }
}

/// The state of the webhook after a second. `answer` gives the API server's response to a method and a resource.
async fn state_with(answer: fn(&Method, &str) -> (u16, Value)) -> WebhookState {
    let service = service_fn(move |request: Request<Body>| async move {
        let resource = request.uri().path().rsplit('/').nth(1).unwrap_or_default();
        let (code, body) = answer(request.method(), resource);
        let body = Body::from(body.to_string().into_bytes());
        Response::builder().status(code).body(body)
    });
    let (sender, receiver) = watch::channel(WebhookState::InForce);
    let run = rotation(service, sender).run();
    let ended = timeout(Duration::from_secs(1), run).await;
    assert!(ended.is_err(), "the rotation ended");
    receiver.borrow().clone()
}

/// How long after the start the certificate that was announced ten days ago is served. `trusted` is the CA bundle that
/// the webhook's configurations have at the start; None stands for the current one.
async fn promoted_after(trusted: Option<&str>) -> Duration {
    let lifetime = Duration::from_secs(90 * 86_400);
    let names = ["webhook.games.svc", "localhost"].map(str::to_owned);
    let created = Timestamp::now() - Duration::from_secs(10 * 86_400);
    let pair = || Pair::new(&names, created, lifetime).expect("a pair");
    let stored = Certificates { next: Some(pair()), ..Certificates::new(pair()) };
    let trusted = trusted.map_or_else(|| stored.bundle(), str::to_owned);
    let bundle = Arc::new(Mutex::new(STANDARD.encode(trusted)));
    let (promoted, mut promotion) = watch::channel(false);
    let service = service_fn(move |request: Request<Body>| {
        let (bundle, promoted) = (Arc::clone(&bundle), promoted.clone());
        let secret = json!({"metadata": {"name": "webhook"}, "data": stored.write()});
        async move {
            let is_secret = request.uri().path().contains("/secrets/");
            let (method, body) = (request.method().clone(), request.into_body());
            let body = body.collect_bytes().await.expect("a body");
            let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
            let response = match method {
                Method::PUT => {
                    promoted.send_replace(true);
                    sent
                }
                Method::GET if is_secret => secret,
                _ => {
                    let mut bundle = bundle.lock().expect("not poisoned");
                    if let Some(new) = sent.pointer("/1/value").and_then(Value::as_str) {
                        new.clone_into(&mut bundle);
                    }
                    let mut configuration = object().1;
                    configuration["webhooks"][0]["clientConfig"]["caBundle"] = json!(*bundle);
                    configuration
                }
            };
            Response::builder().body(Body::from(response.to_string().into_bytes()))
        }
    });
    let started = tokio::time::Instant::now();
    tokio::spawn(rotation(service, watch::Sender::default()).run());
    promotion.wait_for(|it| *it).await.expect("a promotion");
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_served_only_at_a_check_that_finds_its_authority_announced() {
    assert_eq!(promoted_after(None).await, Duration::ZERO);
    let [_, interval] = CHECK_INTERVALS;
    assert_eq!(promoted_after(Some("outdated")).await, interval);
}

fn status(code: u16) -> (u16, Value) {
    (code, json!({"status": "Failure", "code": code, "message": "no", "reason": "NotFound"}))
}

fn object() -> (u16, Value) {
    let client = json!({"url": "https://localhost:1/inject"});
    let webhook = json!({"name": "inject", "clientConfig": client, "admissionReviewVersions": ["v1"],
        "sideEffects": "None"});
    let metadata = json!({"name": "webhook", "resourceVersion": "1"});
    (200, json!({"metadata": metadata, "webhooks": [webhook]}))
}

#[tokio::test(start_paused = true)]
async fn the_webhook_state_follows_from_what_can_be_read_and_written() {
    const MUTATING: &str = "mutatingwebhookconfigurations";
    assert_eq!(state_with(|_, _| object()).await, WebhookState::InForce);
    let unconfigured = state_with(|_, resource| match resource {
        MUTATING => status(404),
        _ => object(),
    });
    assert_eq!(unconfigured.await, WebhookState::NotConfigured("webhook".to_owned()));
    let no_secret = state_with(|_, resource| match resource {
        "secrets" => status(404),
        _ => object(),
    });
    let WebhookState::NotTrusted(why) = no_secret.await else {
        panic!("without a Secret, the webhook must be NotTrusted");
    };
    assert!(why.starts_with("Secret webhook does not exist"), "{why}");
    let read_only = state_with(|method, resource| match (method, resource) {
        (&Method::PATCH, MUTATING) => status(403),
        _ => object(),
    });
    assert!(matches!(read_only.await, WebhookState::NotTrusted(_)));
}

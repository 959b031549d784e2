//! Reviews, certificates, and a real connection over TLS.

mod hostile;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::service_fn;

use super::AdmissionMetrics;
use super::certificates::{Certificates, Due, Pair, due, settling};
use super::dry_run::{DryRun, DryRunFindings};
use super::metrics::RequestLabels;
use super::review::{AdmissionRequest, AdmissionResponse, review};
use super::server::{Reviewer, ServingCertificate, serve};
use crate::cache::Cache;
use crate::evaluation_pool::EvaluationPool;
use gamekeeper_core::admission::{Finding, Templates};

fn template(condition: &str) -> Value {
    let web = json!({"url": "http://10.0.0.1"});
    let metric = json!({"name": "a", "successCondition": condition, "provider": {"web": web}});
    json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "HookTemplate",
        "metadata": {"name": "check"},
        "spec": {"metrics": [metric]},
    })
}

/// A namespace without HookTemplates.
const NO_TEMPLATES: Templates = Templates {
    find: &|_| None,
    place: "this namespace",
};

fn asked(operation: &str, object: Value, old_object: Value) -> AdmissionResponse {
    let request = AdmissionRequest {
        uid: "1".into(),
        operation: operation.into(),
        object,
        old_object,
        ..AdmissionRequest::default()
    };
    review(&request, &NO_TEMPLATES, &DryRunFindings::default())
}

const GOOD: &str = "result == \"1\"";
const BAD: &str = "players == \"1\"";

#[test]
fn a_refusal_has_the_form_of_the_api_servers_own() {
    let answer = asked("CREATE", template(BAD), Value::Null).into_review();
    let status = &answer["response"]["status"];
    let message =
        "Invalid value: \"players == \\\"1\\\"\": players is not known: write result or value";
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(422), &json!("Invalid"))
    );
    assert_eq!(
        status["details"],
        json!({
            "group": "tkex.tencent.com",
            "kind": "HookTemplate",
            "name": "check",
            "causes": [{
                "reason": "FieldValueInvalid",
                "field": "spec.metrics[0].successCondition",
                "message": message,
            }],
        })
    );
    assert!(asked("CREATE", template(GOOD), Value::Null).allowed);
}

#[test]
fn only_what_a_change_brings_in_is_refused() {
    let with = |mut object: Value, pointer: &str, value: Value| {
        object["metadata"][pointer] = value;
        object
    };
    let labels = json!({"a": "b"});
    let gone = json!("2026-01-01T00:00:00Z");
    for (what, object, old, allowed) in [
        ("a spec gets worse", template(BAD), template(GOOD), false),
        ("a spec gets better", template(GOOD), template(BAD), true),
        (
            "metadata",
            with(template(BAD), "labels", labels),
            template(BAD),
            true,
        ),
        (
            "a finalizer goes",
            with(template(BAD), "deletionTimestamp", gone),
            template(GOOD),
            true,
        ),
    ] {
        assert_eq!(asked("UPDATE", object, old).allowed, allowed, "{what}");
    }
    let mut other = template(BAD);
    other["spec"]["policy"] = json!("Ordered");
    let answer = asked("UPDATE", other, template(BAD));
    assert!(answer.allowed && answer.warnings.len() == 1, "{answer:?}");
    assert!(asked("DELETE", Value::Null, template(BAD)).allowed);
}

#[test]
fn the_api_server_is_heard_where_our_own_rules_are_silent() {
    let workload = |image: &str| {
        json!({
            "apiVersion": "tkex.tencent.com/v1alpha1",
            "kind": "GameDeployment",
            "metadata": {"name": "game"},
            "spec": {
                "selector": {"matchLabels": {"app": "game"}},
                "template": {"spec": {"containers": [{"name": "server", "image": image}]}},
            },
        })
    };
    let request = |object: Value, old_object: Value| AdmissionRequest {
        operation: if old_object.is_null() {
            "CREATE"
        } else {
            "UPDATE"
        }
        .into(),
        object,
        old_object,
        ..AdmissionRequest::default()
    };
    let image = "spec.template.spec.containers[0].image";
    let unknown = Finding::unknown("spec.template.spec.hostNetwrok");
    let mut by_server = DryRunFindings {
        object: vec![
            Finding::error(image, "Required value"),
            Finding::error("spec.template", "Invalid value: quantities"),
            unknown.clone(),
        ],
        ..DryRunFindings::default()
    };
    let answer = review(
        &request(workload(""), Value::Null),
        &NO_TEMPLATES,
        &by_server,
    );
    let message = answer.status.expect("a refusal")["message"].clone();
    let ours = "Required value: set the image of the container";
    assert_eq!(message, format!("{image}: {ours}; {unknown}"));

    let change = request(workload(""), workload("game:1"));
    by_server.old_object = vec![unknown.clone()];
    let answer = review(&change, &NO_TEMPLATES, &by_server);
    let message = answer.status.expect("a refusal")["message"].clone();
    assert_eq!(message, format!("{image}: {ours}"));
    assert_eq!(answer.warnings, [unknown.to_string()]);
}

#[test]
fn a_long_warning_is_cut() {
    let long = template(&format!("players == \"{}\"", "é".repeat(600)));
    let answer = asked("UPDATE", long.clone(), long);
    assert_eq!(answer.warnings[0].chars().count(), 503);
}

const LIFETIME: Duration = Duration::from_secs(900);

fn names() -> Vec<String> {
    vec!["webhook.games.svc".into(), "localhost".into()]
}

fn begun(now: Timestamp) -> Certificates {
    Certificates::begin(Pair::new(&names(), now, LIFETIME).expect("a pair"))
}

fn after(begin: Timestamp, seconds: u64) -> Timestamp {
    begin + Duration::from_secs(seconds)
}

/// What is due so many seconds after the beginning.
fn due_at(certificates: &Certificates, begin: Timestamp, seconds: u64, announced: bool) -> Due {
    let now = after(begin, seconds);
    due(Some(certificates), &names(), now, LIFETIME, announced)
}

#[test]
fn a_new_pair_is_announced_before_it_is_served_and_the_old_one_trusted_after() {
    let begin = Timestamp::now();
    assert_eq!(due(None, &names(), begin, LIFETIME, false), Due::Begin);
    let mut kept = begun(begin);
    for (seconds, expected) in [(0, Due::Nothing), (590, Due::Nothing), (610, Due::Announce)] {
        assert_eq!(due_at(&kept, begin, seconds, true), expected, "{seconds}");
    }
    let first = kept.current.clone();
    kept.next = Some(Pair::new(&names(), after(begin, 610), LIFETIME).expect("a pair"));
    let settled = 610 + settling(LIFETIME).as_secs();
    assert_eq!(due_at(&kept, begin, settled - 1, true), Due::Nothing);
    assert_eq!(
        due_at(&kept, begin, settled, false),
        Due::Nothing,
        "nobody knows it"
    );
    assert_eq!(due_at(&kept, begin, settled, true), Due::Promote);
    let bundle = kept.bundle();
    let kept = kept.promote();
    assert_eq!(kept.current.until, after(begin, 610 + 900));
    assert!(bundle.contains(&kept.current.authority) && bundle.contains(&first.authority));
    assert!(kept.bundle().contains(&first.authority));
    assert_eq!(due_at(&kept, begin, 890, true), Due::Nothing);
    assert_eq!(due_at(&kept, begin, 901, true), Due::Forget);
    assert_eq!(
        due_at(&begun(begin), begin, 901, true),
        Due::Begin,
        "it ran out"
    );
    let other = ["elsewhere".to_owned()];
    let renamed = due(Some(&begun(begin)), &other, begin, LIFETIME, true);
    assert_eq!(renamed, Due::Announce);
}

#[test]
fn a_secret_holds_all_of_it_and_what_cannot_be_served_counts_as_nothing() {
    let begin = Timestamp::from_second(1_800_000_000).expect("a time");
    let mut kept = begun(begin);
    assert_eq!(Certificates::read(&kept.write()), Some(kept.clone()));
    kept.next = Some(Pair::new(&names(), after(begin, 1), LIFETIME).expect("a pair"));
    kept.old = Some(("old".into(), begin));
    assert_eq!(Certificates::read(&kept.write()), Some(kept.clone()));
    let mut data = kept.write();
    let other = begun(begin).write();
    data.insert("next-tls.key".into(), other["tls.key"].clone());
    let read = Certificates::read(&data).expect("the current one is whole");
    assert_eq!((read.current, read.next), (kept.current, None));
    data.insert("tls.key".into(), other["tls.key"].clone());
    assert_eq!(Certificates::read(&data), None);
    assert_eq!(Certificates::read(&super::certificates::Data::new()), None);
}

async fn ask(address: &str, bundle: &str, review: &Value) -> Result<(u16, Value), reqwest::Error> {
    let authorities = reqwest::Certificate::from_pem_bundle(bundle.as_bytes()).expect("a bundle");
    let client = reqwest::Client::builder()
        .tls_certs_only(authorities)
        .no_proxy()
        .build()
        .expect("a client");
    let answer = client
        .post(format!("{address}/validate"))
        .json(review)
        .send()
        .await?;
    let status = answer.status().as_u16();
    Ok((status, answer.json().await.unwrap_or_default()))
}

/// A webhook that knows no HookTemplates, at this address.
async fn served(serving: &Arc<ServingCertificate>, metrics: AdmissionMetrics) -> String {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let reviewer = Reviewer {
        evaluation: EvaluationPool::start().expect("threads"),
        dry_run: DryRun::new(unused_client(), AdmissionMetrics::default()),
        metrics,
        scope: None,
        // One that watches nothing is filled from the start.
        cache: Box::new(|| Some(Arc::new(Cache::default()))),
    };
    tokio::spawn(serve(listener, Arc::clone(serving), Arc::new(reviewer)));
    format!("https://localhost:{port}")
}

/// An API server that must not be called.
fn unused_client() -> Client {
    let silent = service_fn(|_: http::Request<Body>| async {
        Err::<http::Response<Body>, _>(std::io::Error::other("nobody is there"))
    });
    Client::new(silent, "games")
}

#[tokio::test]
async fn new_connections_get_the_certificate_of_the_moment() {
    let now = Timestamp::now();
    let (first, second) = (begun(now), begun(now));
    let serving = Arc::new(ServingCertificate::default());
    let metrics = AdmissionMetrics::default();
    let address = served(&serving, metrics.clone()).await;
    let review = json!({"request": {"uid": "7", "operation": "CREATE", "object": template(BAD)}});

    assert!(
        ask(&address, &first.bundle(), &review).await.is_err(),
        "no certificate yet"
    );
    serving.serve(first.current.serving_key().expect("a key"));
    let (status, answer) = ask(&address, &first.bundle(), &review)
        .await
        .expect("an answer");
    assert_eq!(status, 200);
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["uid"], "7");
    assert_eq!(answer["response"]["allowed"], false);
    assert!(
        ask(&address, &second.bundle(), &review).await.is_err(),
        "not trusted"
    );

    serving.serve(second.current.serving_key().expect("a key"));
    assert!(ask(&address, &first.bundle(), &review).await.is_err());
    assert!(ask(&address, &second.bundle(), &review).await.is_ok());
    let (status, _) = ask(&address, &second.bundle(), &json!({"no": "request"}))
        .await
        .expect("an answer");
    assert_eq!(status, 422);
    let page = page(metrics);
    for line in [
        "gamekeeper_admission_requests_total{kind=\"HookTemplate\",operation=\"CREATE\",verdict=\"refused\"} 2",
        "gamekeeper_admission_request_duration_seconds_count{kind=\"HookTemplate\",operation=\"CREATE\"} 2",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}

fn page(metrics: AdmissionMetrics) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics));
    let mut page = String::new();
    encode(&mut page, &registry).expect("a page");
    page
}

#[test]
fn what_somebody_else_asks_makes_no_series_of_its_own_and_a_certificate_shows_its_end() {
    let metrics = AdmissionMetrics::default();
    let request = AdmissionRequest {
        operation: "CONNECT".into(),
        object: json!({"kind": "Anything"}),
        ..AdmissionRequest::default()
    };
    assert!(!page(metrics.clone()).contains("expiry_timestamp_seconds 1"));
    metrics.reviewed(RequestLabels::of(&request), None, Duration::from_millis(3));
    metrics.serves_until(Timestamp::from_second(1_800_000_000).expect("a time"));
    let page = page(metrics);
    for line in [
        "gamekeeper_admission_requests_total{kind=\"other\",operation=\"other\",verdict=\"failed_open\"} 1",
        "gamekeeper_admission_certificate_expiry_timestamp_seconds 1800000000.0",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}

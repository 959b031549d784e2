//! Reviews, certificates, and a real connection over TLS.

mod hostile;
mod inject;

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
use super::certificates::{Certificates, Due, Pair, announcement_time, due};
use super::dry_run::{DryRun, DryRunFindings};
use super::metrics::RequestLabels;
use super::neighbors::Neighbors;
use super::review::{AdmissionRequest, AdmissionResponse, review};
use super::server::{Reviewer, ServingCertificate, serve};
use crate::kinds::Cache;
use crate::runtime::evaluation_pool::EvaluationPool;
use crate::runtime::fair::NamespaceLimiter;
use crate::runtime::inbound::Connections;
use gamekeeper_core::admission::{Finding, Templates};
use gamekeeper_core::hook_run::ExecNamespaces;

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
const NO_TEMPLATES: Templates = Templates { find: &|_| None, place: "this namespace" };

fn reviewed(operation: &str, object: Value, old_object: Value) -> AdmissionResponse {
    let request = AdmissionRequest {
        uid: "1".into(),
        operation: operation.into(),
        object,
        old_object,
        ..AdmissionRequest::default()
    };
    let no_namespaces = ExecNamespaces::default();
    review(
        &request,
        &NO_TEMPLATES,
        &DryRunFindings::default(),
        &no_namespaces,
        &[],
        &Neighbors::default(),
    )
}

const GOOD: &str = "result == \"1\"";
const BAD: &str = "players == \"1\"";

#[test]
fn a_refusal_has_the_format_of_the_api_server() {
    let review = reviewed("CREATE", template(BAD), Value::Null).into_review();
    let status = &review["response"]["status"];
    let message =
        "Invalid value: \"players == \\\"1\\\"\": players is not known: write result or value";
    assert_eq!(review["response"]["allowed"], false);
    assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
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
    assert!(reviewed("CREATE", template(GOOD), Value::Null).allowed);
}

#[test]
fn only_new_errors_are_refused() {
    let changed = |mut object: Value, field: &str, value: Value| {
        object["metadata"][field] = value;
        object
    };
    let labels = json!({"a": "b"});
    let deleted = json!("2026-01-01T00:00:00Z");
    for (case, object, old, allowed) in [
        ("a new error", template(BAD), template(GOOD), false),
        ("a fixed error", template(GOOD), template(BAD), true),
        ("metadata", changed(template(BAD), "labels", labels), template(BAD), true),
        (
            "an object that is being deleted",
            changed(template(BAD), "deletionTimestamp", deleted),
            template(GOOD),
            true,
        ),
    ] {
        assert_eq!(reviewed("UPDATE", object, old).allowed, allowed, "{case}");
    }
    let mut other = template(BAD);
    other["spec"]["policy"] = json!("Ordered");
    let response = reviewed("UPDATE", other, template(BAD));
    assert!(response.allowed && response.warnings.len() == 1, "{response:?}");
    assert!(reviewed("DELETE", Value::Null, template(BAD)).allowed);
}

#[test]
fn a_bad_annotation_is_refused_even_if_the_spec_is_unchanged() {
    let game = |range: &str, replicas: i32| {
        json!({
            "apiVersion": "tkex.tencent.com/v1alpha1",
            "kind": "GameDeployment",
            "metadata": {"name": "game", "annotations": {
                "tkex.bkbcs.tencent.com/gamedeployment-index-on": "true",
                "tkex.bkbcs.tencent.com/gamedeployment-index-range": range,
            }},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "game"}},
                "template": {
                    "metadata": {"labels": {"app": "game"}},
                    "spec": {"containers": [{"name": "server", "image": "game:1"}]},
                },
            },
        })
    };
    let good = r#"{"podEndIndex": 9}"#;
    let is_allowed = |new: Value, old: Value| reviewed("UPDATE", new, old).allowed;
    assert!(!is_allowed(game("bad", 1), game(good, 1)));
    assert!(is_allowed(game("bad", 2), game("bad", 1)));
    assert!(is_allowed(game(good, 1), game("bad", 1)));
    let mut labeled = game("bad", 1);
    labeled["metadata"]["labels"] = json!({"a": "b"});
    assert!(is_allowed(labeled, game("bad", 1)));
}

#[test]
fn findings_of_the_api_server_are_used_for_fields_that_have_no_other_finding() {
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
        operation: if old_object.is_null() { "CREATE" } else { "UPDATE" }.into(),
        object,
        old_object,
        ..AdmissionRequest::default()
    };
    let image = "spec.template.spec.containers[0].image";
    let unknown = Finding::unknown("spec.template.spec.hostNetwrok");
    let mut dry_run = DryRunFindings {
        object: vec![
            Finding::error(image, "Required value"),
            Finding::error("spec.template", "Invalid value: quantities"),
            unknown.clone(),
        ],
        ..DryRunFindings::default()
    };
    let no_namespaces = ExecNamespaces::default();
    let create = request(workload(""), Value::Null);
    let response =
        review(&create, &NO_TEMPLATES, &dry_run, &no_namespaces, &[], &Neighbors::default());
    let message = response.status.expect("a refusal")["message"].clone();
    let advice = "Required value: set the image of the container";
    assert_eq!(message, format!("{image}: {advice}; {unknown}"));

    let update = request(workload(""), workload("game:1"));
    dry_run.old_object = vec![unknown.clone()];
    let response =
        review(&update, &NO_TEMPLATES, &dry_run, &no_namespaces, &[], &Neighbors::default());
    let message = response.status.expect("a refusal")["message"].clone();
    assert_eq!(message, format!("{image}: {advice}"));
    assert_eq!(response.warnings, [unknown.to_string()]);
}

#[test]
fn a_field_that_the_api_server_refuses_is_an_error_even_if_the_rules_only_warn_about_it() {
    let set = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "SidecarSet",
        "metadata": {"name": "log"},
        "spec": {
            "selector": {"matchLabels": {"app": "arena"}},
            "containers": [{"name": "log", "image": "log:1", "volumeMount": [], "newer": true}],
        },
    });
    let request =
        AdmissionRequest { operation: "CREATE".into(), object: set, ..AdmissionRequest::default() };
    let misspelled = Finding::unknown("spec.containers[0].volumeMount");
    let dry_run = DryRunFindings { object: vec![misspelled.clone()], ..DryRunFindings::default() };
    let response = review(
        &request,
        &NO_TEMPLATES,
        &dry_run,
        &ExecNamespaces::default(),
        &[],
        &Neighbors::default(),
    );
    let message = response.status.expect("a refusal")["message"].clone();
    assert_eq!(message, misspelled.to_string());
    // The API server may know a field that the operator's schema does not.
    let newer = Finding::unknown("spec.containers[0].newer");
    assert_eq!(response.warnings, [newer.to_string()]);
}

#[test]
fn a_command_gets_a_warning_where_hooks_must_not_run_commands() {
    let exec = json!({"container": "game", "command": ["/bin/idle"]});
    let mut object = template(GOOD);
    object["spec"]["metrics"][0]["provider"] = json!({"exec": exec});
    let warnings_in = |namespace: &str| {
        let request = AdmissionRequest {
            operation: "CREATE".into(),
            namespace: namespace.into(),
            object: object.clone(),
            ..AdmissionRequest::default()
        };
        let allowed = ExecNamespaces::from_iter(["games"]);
        let response = review(
            &request,
            &NO_TEMPLATES,
            &DryRunFindings::default(),
            &allowed,
            &[],
            &Neighbors::default(),
        );
        assert!(response.allowed);
        response.warnings
    };
    assert_eq!(warnings_in("games"), [""; 0]);
    assert_eq!(
        warnings_in("other"),
        [
            "spec.metrics[0].provider.exec: Forbidden: hooks must not run commands in namespace other: an \
             administrator can allow it with the chart's value hooks.exec"
        ]
    );
}

#[test]
fn a_long_warning_is_truncated() {
    let long = template(&format!("players == \"{}\"", "é".repeat(600)));
    let response = reviewed("UPDATE", long.clone(), long);
    assert_eq!(response.warnings[0].chars().count(), 503);
}

#[test]
fn a_refusal_of_a_long_object_is_short() {
    let metric = |number: usize| {
        json!({"name": format!("m-{number}"), "successCondition": BAD, "interval": "x".repeat(100_000),
            "provider": {"web": {"url": "http://game"}}})
    };
    let metrics: Vec<Value> = (0..32).map(metric).collect();
    let containers: Vec<Value> =
        (0..200).map(|it| json!({"name": format!("{it}{}", "A".repeat(100_000))})).collect();
    let hooks =
        json!({"kind": "HookTemplate", "metadata": {"name": "a"}, "spec": {"metrics": metrics}});
    let workload = json!({
        "kind": "GameDeployment", "metadata": {"name": "a"},
        "spec": {
            "selector": {"matchLabels": {"app": "game"}},
            "template": {"metadata": {"labels": {"app": "game"}}, "spec": {"containers": containers}},
        },
    });
    for object in [hooks, workload] {
        let response = reviewed("CREATE", object, Value::Null);
        assert!(!response.allowed);
        let length = response.into_review().to_string().len();
        assert!((1_000..250_000).contains(&length), "{length} bytes");
    }
}

const LIFETIME: Duration = Duration::from_secs(900);

fn names() -> Vec<String> {
    vec!["webhook.games.svc".into(), "localhost".into()]
}

fn new_certificates(now: Timestamp) -> Certificates {
    Certificates::new(Pair::new(&names(), now, LIFETIME).expect("a pair"))
}

fn seconds_after(start: Timestamp, seconds: u64) -> Timestamp {
    start + Duration::from_secs(seconds)
}

/// What is due this many seconds after the start.
fn due_at(certificates: &Certificates, start: Timestamp, seconds: u64, announced: bool) -> Due {
    let now = seconds_after(start, seconds);
    due(Some(certificates), &names(), now, LIFETIME, announced)
}

#[test]
fn a_new_pair_is_announced_before_it_is_served_and_the_old_one_stays_trusted() {
    let start = Timestamp::now();
    assert_eq!(due(None, &names(), start, LIFETIME, false), Due::Create);
    let mut stored = new_certificates(start);
    for (seconds, expected) in [(0, Due::Nothing), (590, Due::Nothing), (610, Due::Announce)] {
        assert_eq!(due_at(&stored, start, seconds, true), expected, "{seconds}");
    }
    let first = stored.current.clone();
    stored.next = Some(Pair::new(&names(), seconds_after(start, 610), LIFETIME).expect("a pair"));
    let trusted_after = 610 + announcement_time(LIFETIME).as_secs();
    assert_eq!(due_at(&stored, start, trusted_after - 1, true), Due::Nothing);
    let not_announced = due_at(&stored, start, trusted_after, false);
    assert_eq!(not_announced, Due::Nothing);
    assert_eq!(due_at(&stored, start, trusted_after, true), Due::Promote);
    let bundle = stored.bundle();
    let stored = stored.promote();
    assert_eq!(stored.current.until, seconds_after(start, 610 + 900));
    assert!(bundle.contains(&stored.current.authority) && bundle.contains(&first.authority));
    assert!(stored.bundle().contains(&first.authority));
    assert_eq!(due_at(&stored, start, 890, true), Due::Nothing);
    assert_eq!(due_at(&stored, start, 901, true), Due::RemoveOld);
    let expired = due_at(&new_certificates(start), start, 901, true);
    assert_eq!(expired, Due::Create);
    let other = ["elsewhere".to_owned()];
    let renamed = due(Some(&new_certificates(start)), &other, start, LIFETIME, true);
    assert_eq!(renamed, Due::Announce);
}

#[test]
fn invalid_certificates_in_a_secret_are_ignored() {
    let start = Timestamp::from_second(1_800_000_000).expect("a time");
    let mut stored = new_certificates(start);
    assert_eq!(Certificates::read(&stored.write()), Some(stored.clone()));
    stored.next = Some(Pair::new(&names(), seconds_after(start, 1), LIFETIME).expect("a pair"));
    stored.old = Some(("old".into(), start));
    assert_eq!(Certificates::read(&stored.write()), Some(stored.clone()));
    let mut data = stored.write();
    let other = new_certificates(start).write();
    data.insert("next-tls.key".into(), other["tls.key"].clone());
    let read = Certificates::read(&data).expect("the current one is valid");
    assert_eq!((read.current, read.next), (stored.current, None));
    data.insert("tls.key".into(), other["tls.key"].clone());
    assert_eq!(Certificates::read(&data), None);
    assert_eq!(Certificates::read(&super::certificates::Data::new()), None);
}

async fn post(address: &str, bundle: &str, review: &Value) -> Result<(u16, Value), reqwest::Error> {
    post_to(&format!("{address}/validate"), bundle, review).await
}

async fn post_to(url: &str, bundle: &str, review: &Value) -> Result<(u16, Value), reqwest::Error> {
    let authorities = reqwest::Certificate::from_pem_bundle(bundle.as_bytes()).expect("a bundle");
    let client = reqwest::Client::builder()
        .tls_certs_only(authorities)
        .no_proxy()
        .build()
        .expect("a client");
    let response = client.post(url).json(review).send().await?;
    let status = response.status().as_u16();
    Ok((status, response.json().await.unwrap_or_default()))
}

/// Starts a webhook without HookTemplates; returns its address.
async fn start_webhook(certificate: &Arc<ServingCertificate>, metrics: AdmissionMetrics) -> String {
    start_webhook_with(certificate, metrics, unused_client()).await
}

/// The same, with this client for dry runs.
async fn start_webhook_with(
    certificate: &Arc<ServingCertificate>,
    metrics: AdmissionMetrics,
    client: Client,
) -> String {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let reviewer = Reviewer {
        evaluation: EvaluationPool::start().expect("threads"),
        dry_run: DryRun::new(client, "own".into(), AdmissionMetrics::default()),
        places: NamespaceLimiter::new(super::server::PLACES),
        metrics,
        scope: None,
        commands: Arc::default(),
        namespaces: kube::Api::all(unused_client()),
        // A cache without watches is synced from the start.
        cache: Box::new(|| Some(Arc::new(Cache::default()))),
    };
    let connections = Connections::default();
    let (certificate, reviewer) = (Arc::clone(certificate), Arc::new(reviewer));
    tokio::spawn(serve(listener, certificate, reviewer, connections));
    format!("https://localhost:{port}")
}

/// A client of an API server that must not be called.
fn unused_client() -> Client {
    let unreachable = service_fn(|_: http::Request<Body>| async {
        Err::<http::Response<Body>, _>(std::io::Error::other("not reachable"))
    });
    Client::new(unreachable, "games")
}

#[tokio::test]
async fn new_connections_get_the_current_certificate() {
    let now = Timestamp::now();
    let (first, second) = (new_certificates(now), new_certificates(now));
    let certificate = Arc::new(ServingCertificate::default());
    let metrics = AdmissionMetrics::default();
    let address = start_webhook(&certificate, metrics.clone()).await;
    let review = json!({"request": {"uid": "7", "operation": "CREATE", "object": template(BAD)}});

    let without_certificate = post(&address, &first.bundle(), &review).await;
    assert!(without_certificate.is_err());
    certificate.set(first.current.serving_key().expect("a key"));
    let response = post(&address, &first.bundle(), &review).await;
    let (status, body) = response.expect("a response");
    assert_eq!(status, 200);
    assert_eq!(body["kind"], "AdmissionReview");
    assert_eq!(body["response"]["uid"], "7");
    assert_eq!(body["response"]["allowed"], false);
    let not_trusted = post(&address, &second.bundle(), &review).await;
    assert!(not_trusted.is_err());

    certificate.set(second.current.serving_key().expect("a key"));
    assert!(post(&address, &first.bundle(), &review).await.is_err());
    assert!(post(&address, &second.bundle(), &review).await.is_ok());
    let response = post(&address, &second.bundle(), &json!({"no": "request"})).await;
    assert_eq!(response.expect("a response").0, 422);
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
fn unknown_kinds_and_operations_share_a_series_and_the_expiry_is_exported() {
    let metrics = AdmissionMetrics::default();
    let request = AdmissionRequest {
        operation: "CONNECT".into(),
        object: json!({"kind": "Anything"}),
        ..AdmissionRequest::default()
    };
    assert!(!page(metrics.clone()).contains("expiry_timestamp_seconds 1"));
    metrics.reviewed(RequestLabels::of(&request), None, Duration::from_millis(3));
    metrics.set_certificate_expiry(Timestamp::from_second(1_800_000_000).expect("a time"));
    let page = page(metrics);
    for line in [
        "gamekeeper_admission_requests_total{kind=\"other\",operation=\"other\",verdict=\"failed_open\"} 1",
        "gamekeeper_admission_certificate_expiry_timestamp_seconds 1800000000.0",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}

/// Pods of other controllers wait for an answer, which depends on the sets alone.
#[tokio::test]
async fn a_pod_is_answered_before_namespaces_are_listed() {
    let certificate = Arc::new(ServingCertificate::default());
    let address = start_webhook(&certificate, AdmissionMetrics::default()).await;
    let certificates = new_certificates(Timestamp::now());
    certificate.set(certificates.current.serving_key().expect("a key"));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}});
    let review = json!({"request": {"uid": "7", "operation": "CREATE", "object": pod}});
    let url = format!("{address}/inject");
    let (status, body) = post_to(&url, &certificates.bundle(), &review).await.expect("a response");
    assert_eq!((status, &body["response"]["allowed"]), (200, &json!(true)));
}

/// Maps take many times the length of their text.
#[tokio::test]
async fn a_review_that_would_fill_the_memory_is_not_parsed() {
    let certificate = Arc::new(ServingCertificate::default());
    let address = start_webhook(&certificate, AdmissionMetrics::default()).await;
    let certificates = new_certificates(Timestamp::now());
    certificate.set(certificates.current.serving_key().expect("a key"));
    for (maps, expected) in [(10_000, 200), (120_000, 503)] {
        let object = json!({"kind": "Other", "spec": vec![json!({}); maps]});
        let review = json!({"request": {"uid": "7", "operation": "CREATE", "object": object}});
        let answer = post(&address, &certificates.bundle(), &review).await;
        assert_eq!(answer.expect("a response").0, expected, "{maps} maps");
    }
}

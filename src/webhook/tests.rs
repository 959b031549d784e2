//! Reviews, certificates, and a real connection over TLS.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::certificates::{Certificates, Due, Pair, due, settling};
use super::review::{Answer, Request, review};
use super::server::{Desk, Serving, serve};
use crate::admission::Templates;
use crate::cache::Cache;
use crate::expr::Guard;

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

fn asked(operation: &str, object: Value, old_object: Value) -> Answer {
    let request = Request {
        uid: "1".into(),
        operation: operation.into(),
        object,
        old_object,
        ..Request::default()
    };
    let templates = Templates {
        find: &|_| None,
        place: "this namespace",
    };
    review(&request, &templates)
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

async fn ask(
    address: &str,
    bundle: &str,
    question: &Value,
) -> Result<(u16, Value), reqwest::Error> {
    let authorities = reqwest::Certificate::from_pem_bundle(bundle.as_bytes()).expect("a bundle");
    let client = reqwest::Client::builder()
        .tls_certs_only(authorities)
        .no_proxy()
        .build()
        .expect("a client");
    let answer = client
        .post(format!("{address}/validate"))
        .json(question)
        .send()
        .await?;
    let status = answer.status().as_u16();
    Ok((status, answer.json().await.unwrap_or_default()))
}

#[tokio::test]
async fn new_connections_get_the_certificate_of_the_moment() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let now = Timestamp::now();
    let (first, second) = (begun(now), begun(now));
    let serving = Arc::new(Serving::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let address = format!("https://localhost:{port}");
    let desk = Desk {
        guard: Guard::start().expect("threads"),
        scope: None,
        // One that watches nothing is filled from the start.
        cache: Box::new(|| Some(Arc::new(Cache::default()))),
    };
    tokio::spawn(serve(listener, Arc::clone(&serving), Arc::new(desk)));
    let question = json!({"request": {"uid": "7", "operation": "CREATE", "object": template(BAD)}});

    assert!(
        ask(&address, &first.bundle(), &question).await.is_err(),
        "no certificate yet"
    );
    serving.serve(first.current.serving_key().expect("a key"));
    let (status, answer) = ask(&address, &first.bundle(), &question)
        .await
        .expect("an answer");
    assert_eq!(status, 200);
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["uid"], "7");
    assert_eq!(answer["response"]["allowed"], false);
    assert!(
        ask(&address, &second.bundle(), &question).await.is_err(),
        "not trusted"
    );

    serving.serve(second.current.serving_key().expect("a key"));
    assert!(ask(&address, &first.bundle(), &question).await.is_err());
    assert!(ask(&address, &second.bundle(), &question).await.is_ok());
    let (status, _) = ask(&address, &second.bundle(), &json!({"no": "request"}))
        .await
        .expect("an answer");
    assert_eq!(status, 422);
}

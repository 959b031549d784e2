//! Dry runs against an API server that answers what a real one was seen to answer.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Response, StatusCode};
use kube::client::Body;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tower::service_fn;

use super::*;

fn workload(template_spec: Value) -> Value {
    json!({
        "kind": "GameDeployment",
        "metadata": {"name": "game"},
        "spec": {
            "replicas": 1,
            "template": {"metadata": {"labels": {"app": "game"}}, "spec": template_spec},
        },
    })
}

fn containers(image: &str) -> Value {
    json!({"containers": [{"name": "server", "image": image}]})
}

fn request(object: Value, old_object: Value) -> AdmissionRequest {
    let operation = if old_object.is_null() {
        "CREATE"
    } else {
        "UPDATE"
    };
    AdmissionRequest {
        namespace: "games".into(),
        operation: operation.into(),
        object,
        old_object,
        ..AdmissionRequest::default()
    }
}

/// An API server, and what it was asked: path and body.
struct Server {
    client: Client,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    metrics: AdmissionMetrics,
}

impl Server {
    /// One that answers each template so.
    fn answering(answer: impl Fn(&Value) -> (u16, Value) + Clone + Send + Sync + 'static) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let service = service_fn(move |request: HttpRequest<Body>| {
            let (answer, noted) = (answer.clone(), Arc::clone(&noted));
            async move {
                let path = request.uri().to_string();
                let body = request.into_body().collect_bytes().await?;
                let body: Value = serde_json::from_slice(&body)?;
                let (code, said) = answer(&body["template"]);
                let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                noted.push((path, body));
                let code = StatusCode::from_u16(code).expect("a code");
                let answer = Response::builder().status(code);
                let answer = answer.body(Body::from(said.to_string().into_bytes()));
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(answer.expect("an answer"))
            }
        });
        Server {
            client: Client::new(service, "games"),
            asked,
            metrics: AdmissionMetrics::default(),
        }
    }

    async fn judge(&self, request: &AdmissionRequest) -> DryRunFindings {
        let dry_run = DryRun::new(self.client.clone(), self.metrics.clone());
        dry_run.judge(request).await
    }

    fn asked(&self) -> Vec<(String, Value)> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut asked)
    }

    fn has_counted(&self, outcome: &str) -> bool {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.metrics.clone()));
        let mut page = String::new();
        encode(&mut page, &registry).expect("a page");
        let name = "gamekeeper_admission_template_dry_runs_total";
        page.contains(&format!("{name}{{outcome=\"{outcome}\"}} 1\n"))
    }
}

fn refusal(code: u16, message: &str, details: Value) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Whatever", "details": details, "code": code,
    });
    (code, status)
}

fn invalid(causes: &[(&str, &str)]) -> (u16, Value) {
    let cause = |(field, message): &(&str, &str)| json!({"field": field, "message": message, "reason": "Any"});
    let causes: Vec<Value> = causes.iter().map(cause).collect();
    refusal(
        422,
        "is invalid",
        json!({"kind": "PodTemplate", "name": "x", "causes": causes}),
    )
}

async fn said_to(spec: Value, answer: (u16, Value)) -> Vec<String> {
    let server = Server::answering(move |_| answer.clone());
    let judgement = server.judge(&request(workload(spec), Value::Null)).await;
    assert!(server.has_counted("refused"));
    judgement.object.iter().map(Finding::to_string).collect()
}

#[tokio::test]
async fn each_cause_is_told_at_the_field_of_the_workload() {
    let answer = invalid(&[
        ("template.spec.containers[0].image", "Required value"),
        ("template.labels", "Invalid value: \"a b\": no"),
    ]);
    assert_eq!(
        said_to(containers("a"), answer).await,
        [
            "spec.template.spec.containers[0].image: Required value",
            "spec.template.metadata.labels: Invalid value: \"a b\": no",
        ]
    );
}

#[tokio::test]
async fn unknown_fields_are_told_one_by_one_and_other_types_in_the_servers_words() {
    let prefix = "PodTemplate in version \"v1\" cannot be handled as a PodTemplate: ";
    let bad_request = |why: &str| refusal(400, &format!("{prefix}{why}"), Value::Null);
    let unknown = "strict decoding error: unknown field \"template.spec.containers[0].imgae\", \
                   unknown field \"template.metadata.a\\\"b, c\"";
    assert_eq!(
        said_to(containers("a"), bad_request(unknown)).await,
        [
            "spec.template.spec.containers[0].imgae: unknown field \
             \"spec.template.spec.containers[0].imgae\"",
            "spec.template.metadata.a\"b, c: unknown field \"spec.template.metadata.a\\\"b, c\"",
        ]
    );
    let type_ =
        "json: cannot unmarshal string into Go struct field X.template.spec.x of type int32";
    assert_eq!(
        said_to(containers("a"), bad_request(type_)).await,
        [format!("spec.template: Invalid value: {type_}")]
    );
}

#[tokio::test]
async fn nobody_is_asked_unless_the_template_is_another() {
    let server = Server::answering(|_| (201, json!({})));
    let before = workload(containers("a"));
    let mut scaled = before.clone();
    scaled["spec"]["replicas"] = json!(2);
    let mut going = workload(containers("b"));
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let hooks = json!({"kind": "HookTemplate", "spec": {"metrics": []}});
    for (object, old) in [
        (scaled, before.clone()),
        (going, before.clone()),
        (hooks, Value::Null),
    ] {
        server.judge(&request(object, old)).await;
    }
    assert_eq!(server.asked(), []);
    server
        .judge(&request(workload(containers("b")), before))
        .await;
    let asked = server.asked();
    let (path, body) = &asked[0];
    assert_eq!(asked.len(), 1);
    let expected = "/api/v1/namespaces/games/podtemplates?dryRun=All&fieldValidation=Strict&";
    assert!(path.starts_with(expected), "{path}");
    assert_eq!(body["template"]["spec"], containers("b"));
    assert!(server.has_counted("accepted"));
}

#[tokio::test]
async fn of_a_change_it_is_known_what_was_wrong_before() {
    let server = Server::answering(|template| {
        let image = template["spec"]["containers"][0]["image"].as_str();
        match image {
            Some("good") => (201, json!({})),
            _ => invalid(&[("template.spec.x", "Invalid value")]),
        }
    });
    for (old, was_wrong) in [("good", false), ("bad", true)] {
        let changed = request(workload(containers("worse")), workload(containers(old)));
        let judgement = server.judge(&changed).await;
        assert_eq!(judgement.object.len(), 1);
        assert_eq!(judgement.old_object == judgement.object, was_wrong, "{old}");
    }
}

#[tokio::test]
async fn claims_are_volumes_and_each_other_volume_keeps_its_place() {
    let answer = invalid(&[
        ("template.spec.volumes[1].name", "Invalid value"),
        ("template.spec.volumes[2].name", "Invalid value of a claim"),
    ]);
    let server = Server::answering(move |_| answer.clone());
    let volumes = json!([{"name": "maps", "emptyDir": {}}, {"name": "logs", "emptyDir": {}}]);
    let mut set = workload(json!({"containers": [], "volumes": volumes}));
    set["spec"]["volumeClaimTemplates"] =
        json!([{"metadata": {"name": "maps"}}, {"metadata": {"name": "World"}}]);
    let judgement = server.judge(&request(set, Value::Null)).await;
    let (_, body) = &server.asked()[0];
    let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    assert_eq!(
        body["template"]["spec"]["volumes"],
        json!([claim("maps"), {"name": "logs", "emptyDir": {}}, claim("World")])
    );
    assert_eq!(
        judgement.object,
        [Finding::error(
            "spec.template.spec.volumes[1].name",
            "Invalid value"
        )]
    );
}

#[tokio::test]
async fn what_is_no_verdict_on_the_template_lets_it_pass() {
    let policy =
        "podtemplates \"x\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no";
    for (answer, outcome) in [
        (
            refusal(
                403,
                "podtemplates is forbidden: User cannot create",
                Value::Null,
            ),
            "forbidden",
        ),
        (
            refusal(429, "too many requests", Value::Null),
            "unavailable",
        ),
        (
            refusal(500, "etcdserver: leader changed", Value::Null),
            "unavailable",
        ),
        (
            refusal(504, "request did not complete within 2s", Value::Null),
            "unavailable",
        ),
        (
            refusal(
                400,
                "admission webhook \"w\" does not support dry run",
                Value::Null,
            ),
            "unclear",
        ),
        (
            refusal(404, "namespaces \"games\" not found", Value::Null),
            "unclear",
        ),
        (
            refusal(
                422,
                policy,
                json!({"kind": "podtemplates", "causes": [{"message": "no"}]}),
            ),
            "unclear",
        ),
        (invalid(&[("metadata.name", "Invalid value")]), "unclear"),
    ] {
        let message = answer.1["message"].to_string();
        let server = Server::answering(move |_| answer.clone());
        let judgement = server
            .judge(&request(workload(containers("a")), Value::Null))
            .await;
        assert_eq!(judgement.object, [], "{message}");
        assert!(server.has_counted(outcome), "{message}");
    }
}

#[tokio::test]
async fn what_is_no_namespace_is_no_part_of_a_path() {
    let server = Server::answering(|_| (201, json!({})));
    for namespace in ["games/podtemplates?", "../..", "games%2f", ""] {
        let mut request = request(workload(containers("a")), Value::Null);
        request.namespace = namespace.to_owned();
        let judgement = server.judge(&request).await;
        assert_eq!(judgement.object, [], "{namespace}");
    }
    assert_eq!(server.asked(), []);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_long_for_a_server_that_is_silent() {
    let service = service_fn(|_: HttpRequest<Body>| {
        std::future::pending::<Result<Response<Body>, std::io::Error>>()
    });
    let server = Server {
        client: Client::new(service, "games"),
        ..Server::answering(|_| (201, json!({})))
    };
    let begun = tokio::time::Instant::now();
    let judgement = server
        .judge(&request(workload(containers("a")), Value::Null))
        .await;
    assert!(begun.elapsed() <= Duration::from_millis(2_100));
    assert_eq!(judgement.object, []);
    assert!(server.has_counted("timeout"));
}

#[test]
fn what_is_logged_of_a_request_is_cut_to_the_length_of_a_name() {
    let long = "ä".repeat(1 << 20);
    assert_eq!(cut(&long).chars().count(), MAX_NAME);
    assert_eq!(cut("lobby"), "lobby");
}

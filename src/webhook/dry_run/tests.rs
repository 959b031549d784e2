//! Dry runs against a fake API server with recorded responses.

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
    let operation = if old_object.is_null() { "CREATE" } else { "UPDATE" };
    AdmissionRequest {
        namespace: "games".into(),
        operation: operation.into(),
        object,
        old_object,
        ..AdmissionRequest::default()
    }
}

/// A fake API server, and the paths and bodies of the requests that it received.
struct Server {
    client: Client,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
    metrics: AdmissionMetrics,
}

impl Server {
    /// A server that responds to each template with the code and body that `respond` returns.
    fn responding(
        respond: impl Fn(&Value) -> (u16, Value) + Clone + Send + Sync + 'static,
    ) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&requests);
        let service = service_fn(move |request: HttpRequest<Body>| {
            let (respond, received) = (respond.clone(), Arc::clone(&received));
            async move {
                let path = request.uri().to_string();
                let body = request.into_body().collect_bytes().await?;
                let body: Value = serde_json::from_slice(&body)?;
                let (code, response) = respond(&body["template"]);
                let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
                received.push((path, body));
                let code = StatusCode::from_u16(code).expect("a code");
                let body = Body::from(response.to_string().into_bytes());
                let response = Response::builder().status(code).body(body);
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response.expect("a response"))
            }
        });
        Server {
            client: Client::new(service, "games"),
            requests,
            metrics: AdmissionMetrics::default(),
        }
    }

    async fn check(&self, request: &AdmissionRequest) -> DryRunFindings {
        let dry_run = DryRun::new(self.client.clone(), "own".into(), self.metrics.clone());
        dry_run.check(request, "10.0.0.1").await
    }

    fn requests(&self) -> Vec<(String, Value)> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut requests)
    }

    fn has_counted(&self, outcome: &str) -> bool {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.metrics.clone()));
        let mut page = String::new();
        encode(&mut page, &registry).expect("a page");
        let name = "gamekeeper_admission_template_dry_runs_total";
        page.contains(&format!("{name}{{kind=\"GameDeployment\",outcome=\"{outcome}\"}} 1\n"))
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
    refusal(422, "is invalid", json!({"kind": "PodTemplate", "name": "x", "causes": causes}))
}

async fn finding_texts(spec: Value, response: (u16, Value)) -> Vec<String> {
    let server = Server::responding(move |_| response.clone());
    let findings = server.check(&request(workload(spec), Value::Null)).await;
    assert!(server.has_counted("refused"));
    findings.object.iter().map(Finding::to_string).collect()
}

#[tokio::test]
async fn findings_have_the_paths_of_the_workload() {
    let response = invalid(&[
        ("template.spec.containers[0].image", "Required value"),
        ("template.labels", "Invalid value: \"a b\": no"),
    ]);
    assert_eq!(
        finding_texts(containers("a"), response).await,
        [
            "spec.template.spec.containers[0].image: Required value",
            "spec.template.metadata.labels: Invalid value: \"a b\": no",
        ]
    );
}

#[tokio::test]
async fn unknown_fields_are_separate_findings_and_a_wrong_type_is_a_finding_about_the_template() {
    let prefix = "PodTemplate in version \"v1\" cannot be handled as a PodTemplate: ";
    let bad_request = |why: &str| refusal(400, &format!("{prefix}{why}"), Value::Null);
    let unknown = "strict decoding error: unknown field \"template.spec.containers[0].imgae\", \
                   unknown field \"template.metadata.a\\\"b, c\"";
    assert_eq!(
        finding_texts(containers("a"), bad_request(unknown)).await,
        [
            "spec.template.spec.containers[0].imgae: unknown field \
             \"spec.template.spec.containers[0].imgae\"",
            "spec.template.metadata.a\"b, c: unknown field \"spec.template.metadata.a\\\"b, c\"",
        ]
    );
    let wrong_type =
        "json: cannot unmarshal string into Go struct field X.template.spec.x of type int32";
    assert_eq!(
        finding_texts(containers("a"), bad_request(wrong_type)).await,
        [format!("spec.template: Invalid value: {wrong_type}")]
    );
}

#[tokio::test]
async fn only_changed_templates_are_sent() {
    let server = Server::responding(|_| (201, json!({})));
    let original = workload(containers("a"));
    let mut scaled = original.clone();
    scaled["spec"]["replicas"] = json!(2);
    let mut deleted = workload(containers("b"));
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let hooks = json!({"kind": "HookTemplate", "spec": {"metrics": []}});
    for (object, old) in
        [(scaled, original.clone()), (deleted, original.clone()), (hooks, Value::Null)]
    {
        server.check(&request(object, old)).await;
    }
    assert_eq!(server.requests(), []);
    server.check(&request(workload(containers("b")), original)).await;
    let requests = server.requests();
    let (path, body) = &requests[0];
    assert_eq!(requests.len(), 1);
    let expected = "/api/v1/namespaces/games/podtemplates?dryRun=All&fieldValidation=Strict&";
    assert!(path.starts_with(expected), "{path}");
    assert_eq!(body["template"]["spec"], containers("b"));
    assert!(server.has_counted("accepted"));
}

#[tokio::test]
async fn a_refused_change_also_reports_the_findings_of_the_old_template() {
    let server = Server::responding(|template| {
        let image = template["spec"]["containers"][0]["image"].as_str();
        match image {
            Some("good") => (201, json!({})),
            _ => invalid(&[("template.spec.x", "Invalid value")]),
        }
    });
    for (old, was_wrong) in [("good", false), ("bad", true)] {
        let changed = request(workload(containers("worse")), workload(containers(old)));
        let findings = server.check(&changed).await;
        assert_eq!(findings.object.len(), 1);
        assert_eq!(findings.old_object == findings.object, was_wrong, "{old}");
    }
}

#[tokio::test]
async fn claims_become_volumes_and_other_volumes_keep_their_index() {
    let response = invalid(&[
        ("template.spec.volumes[1].name", "Invalid value"),
        ("template.spec.volumes[2].name", "Invalid value of a claim"),
    ]);
    let server = Server::responding(move |_| response.clone());
    let volumes = json!([{"name": "maps", "emptyDir": {}}, {"name": "logs", "emptyDir": {}}]);
    let mut set = workload(json!({"containers": [], "volumes": volumes}));
    set["spec"]["volumeClaimTemplates"] =
        json!([{"metadata": {"name": "maps"}}, {"metadata": {"name": "World"}}]);
    let findings = server.check(&request(set, Value::Null)).await;
    let (_, body) = &server.requests()[0];
    let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    assert_eq!(
        body["template"]["spec"]["volumes"],
        json!([claim("maps"), {"name": "logs", "emptyDir": {}}, claim("World")])
    );
    assert_eq!(
        findings.object,
        [Finding::error("spec.template.spec.volumes[1].name", "Invalid value")]
    );
}

#[tokio::test]
async fn a_template_without_a_verdict_is_admitted() {
    let policy =
        "podtemplates \"x\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no";
    for (response, outcome) in [
        (refusal(403, "podtemplates is forbidden: User cannot create", Value::Null), "forbidden"),
        (refusal(429, "too many requests", Value::Null), "unavailable"),
        (refusal(500, "etcdserver: leader changed", Value::Null), "unavailable"),
        (refusal(504, "request did not complete within 2s", Value::Null), "unavailable"),
        (refusal(400, "admission webhook \"w\" does not support dry run", Value::Null), "unclear"),
        (refusal(404, "namespaces \"games\" not found", Value::Null), "unclear"),
        (
            refusal(422, policy, json!({"kind": "podtemplates", "causes": [{"message": "no"}]})),
            "unclear",
        ),
        (invalid(&[("metadata.name", "Invalid value")]), "unclear"),
    ] {
        let message = response.1["message"].to_string();
        let server = Server::responding(move |_| response.clone());
        let findings = server.check(&request(workload(containers("a")), Value::Null)).await;
        assert_eq!(findings.object, [], "{message}");
        assert!(server.has_counted(outcome), "{message}");
    }
}

#[tokio::test]
async fn an_invalid_namespace_is_not_used_in_a_path() {
    let server = Server::responding(|_| (201, json!({})));
    for namespace in ["games/podtemplates?", "../..", "games%2f", ""] {
        let mut request = request(workload(containers("a")), Value::Null);
        request.namespace = namespace.to_owned();
        let findings = server.check(&request).await;
        assert_eq!(findings.object, [], "{namespace}");
    }
    assert_eq!(server.requests(), []);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_times_out() {
    let service = service_fn(|_: HttpRequest<Body>| {
        std::future::pending::<Result<Response<Body>, std::io::Error>>()
    });
    let server = Server {
        client: Client::new(service, "games"),
        ..Server::responding(|_| (201, json!({})))
    };
    let started = tokio::time::Instant::now();
    let findings = server.check(&request(workload(containers("a")), Value::Null)).await;
    assert!(started.elapsed() <= Duration::from_millis(2_100));
    assert_eq!(findings.object, []);
    assert!(server.has_counted("timeout"));
}

/// A pod that has templates dry-run, and a tenant with many templates, must not make those of others late: a template
/// without a verdict is accepted.
#[tokio::test(start_paused = true)]
async fn neither_other_addresses_nor_other_namespaces_take_all_places() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&received);
    let service = service_fn(move |request: HttpRequest<Body>| {
        let path = request.uri().path().to_owned();
        log.lock().unwrap_or_else(PoisonError::into_inner).push(path);
        std::future::pending::<Result<Response<Body>, std::io::Error>>()
    });
    let client = Client::new(service, "games");
    let dry_run = Arc::new(DryRun::new(client, "own".into(), AdmissionMetrics::default()));
    let send = |caller: String, namespace: String| {
        let dry_run = Arc::clone(&dry_run);
        let mut request = request(workload(containers("a")), Value::Null);
        request.namespace = namespace;
        tokio::spawn(async move { dry_run.check(&request, &caller).await });
    };
    for pod in 0..4 {
        for number in 0..100 {
            send(format!("10.1.0.{pod}"), format!("forged-{number}"));
        }
    }
    for _ in 0..100 {
        send("10.0.0.1".to_owned(), "greedy".to_owned());
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let count = |namespace: &str| {
        let received = received.lock().unwrap_or_else(PoisonError::into_inner);
        received.iter().filter(|it| it.contains(namespace)).count()
    };
    assert_eq!(count("forged"), 32 + 4 * 2);
    assert_eq!(count("greedy"), 2, "the API server's own places");
    tokio::time::sleep(DRY_RUN_TIMEOUT).await;
    for _ in 0..100 {
        send("10.0.0.1".to_owned(), "greedy".to_owned());
    }
    send("10.0.0.1".to_owned(), "games".to_owned());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(count("greedy"), 2 + 4, "one tenant's share");
    assert_eq!(count("/games/"), 1);
}

#[test]
fn logged_parts_of_a_request_are_cut_to_the_length_of_a_name() {
    let long = "ä".repeat(1 << 20);
    assert_eq!(cut(&long).chars().count(), MAX_NAME);
    assert_eq!(cut("lobby"), "lobby");
}

#[tokio::test]
async fn containers_of_a_sidecar_set_are_sent_as_a_template_and_findings_have_the_sets_paths() {
    let set = |lists: Value| {
        let mut set = json!({"kind": "SidecarSet", "metadata": {"name": "log"}, "spec": lists});
        set["spec"]["selector"] = json!({"matchLabels": {"app": "game"}});
        set
    };
    let container = json!({
        "name": "log", "podInjectPolicy": "AfterAppContainer", "transferEnv": [],
        "shareVolumePolicy": {"type": "enabled"}, "upgradeStrategy": {"upgradeType": "ColdUpgrade"},
    });
    let volumes = json!([{"name": "logs", "emptyDir": {}}]);
    let full = set(json!({"containers": [container], "volumes": volumes}));
    let server = Server::responding(|_| {
        invalid(&[
            ("template.spec.containers[0].image", "Required value"),
            ("template.spec.volumes[0].name", "Invalid value: \"x\": no"),
        ])
    });
    let create = |object: &Value| AdmissionRequest {
        namespace: String::new(),
        ..request(object.clone(), Value::Null)
    };
    let findings = server.check(&create(&full)).await.object;
    let findings: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert_eq!(
        findings,
        [
            "spec.containers[0].image: Required value",
            "spec.volumes[0].name: Invalid value: \"x\": no",
        ]
    );
    let (path, body) = server.requests().remove(0);
    assert!(path.starts_with("/api/v1/namespaces/own/podtemplates?dryRun=All&"), "{path}");
    let expected = json!({"containers": [{"name": "log"}], "volumes": volumes});
    assert_eq!(body["template"]["spec"], expected);

    // An update of other fields is not sent.
    let mut paused = full.clone();
    paused["spec"]["injectionStrategy"] = json!({"paused": true});
    server.check(&request(paused, full)).await;
    assert_eq!(server.requests(), []);

    let prefix = "PodTemplate in version \"v1\" cannot be handled as a PodTemplate: ";
    let unknown = "strict decoding error: unknown field \"template.spec.initContainers[0].imgae\"";
    let refusal = refusal(400, &format!("{prefix}{unknown}"), Value::Null);
    let server = Server::responding(move |_| refusal.clone());
    let init = set(json!({"initContainers": [{"name": "setup", "imgae": "a"}]}));
    let findings = server.check(&create(&init)).await.object;
    assert_eq!(
        findings[0].to_string(),
        "spec.initContainers[0].imgae: unknown field \"spec.initContainers[0].imgae\""
    );
    let (_, body) = server.requests().remove(0);
    let containers = &body["template"]["spec"]["containers"];
    assert_eq!(containers[0]["image"], "any", "a pod needs a container: {containers}");
}

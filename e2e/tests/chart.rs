//! The Helm chart: what it renders, what it refuses, and its lifecycle on an empty cluster.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::addons::webhook::{configuration, tls_handshake};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::cluster::chart::{CHART, helm, render};
use e2e::cluster::control_plane::ControlPlane;
use e2e::cluster::operator::Operator;
use e2e::process::command::run;
use e2e::wait::eventually;
use e2e::workload::manifest::Game;
use serde_json::{Value, json};
use tokio::process::Command;

mod release;

e2e::tests![
    helm_lint_passes,
    each_part_can_be_left_out,
    wrong_values_are_refused_with_a_reason,
    the_permissions_are_minimal,
    commands_are_allowed_only_in_the_listed_namespaces,
    crds_alerts_and_dashboards_are_rendered_unchanged,
    install_upgrade_rollback_and_uninstall,
];

/// Namespace of the release, as in the README.
const SYSTEM: &str = "gamekeeper-system";
/// Namespace of the workloads.
const GAMES: &str = "games";

async fn helm_lint_passes(case: &mut Case) -> Result<()> {
    let mut lint = helm(&case.plane().helm);
    lint.args(["lint", "--strict", "--kube-version=1.36", CHART]);
    let error = run(&mut lint, "").await?;
    ensure!(error.contains("0 chart(s) failed"), "{error}");
    Ok(())
}

fn kinds(objects: &[Value]) -> BTreeSet<&str> {
    objects
        .iter()
        .filter_map(|it| it["kind"].as_str())
        .collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|it| it["kind"] == kind).collect()
}

async fn each_part_can_be_left_out(case: &mut Case) -> Result<()> {
    let program = &case.plane().helm;
    let usual = render(program, &[]).await?;
    let usual = kinds(&usual);
    for (value, kind) in [
        ("crds.install=false", "CustomResourceDefinition"),
        ("podDisruptionBudget.enabled=false", "PodDisruptionBudget"),
        ("priorityClass.create=false", "PriorityClass"),
        ("networkPolicy.enabled=false", "NetworkPolicy"),
        ("flowSchema.create=false", "FlowSchema"),
    ] {
        let objects = render(program, &["--set", value]).await?;
        let mut rest = kinds(&objects);
        ensure!(!rest.contains(kind), "{value} leaves {rest:?}");
        rest.insert(kind);
        ensure!(rest == usual, "{value} leaves {rest:?}");
    }
    for (value, kind) in [("metrics.serviceMonitor.enabled=true", "ServiceMonitor")] {
        let objects = render(program, &["--set", value]).await?;
        let more = kinds(&objects);
        ensure!(
            !usual.contains(kind) && more.contains(kind),
            "{value} renders {more:?}"
        );
    }
    let without = "admission.enabled=false,admission.deletionProtection=None,\
        admission.hookRunProtection=false";
    let without = render(program, &["--set", without]).await?;
    let left: Vec<&str> = usual.difference(&kinds(&without)).copied().collect();
    let admission = [
        "Secret",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    ];
    ensure!(left == admission, "without admission {left:?} are left out");
    let many = "image.digest=,image.tag=nightly,imagePullSecrets={a,b},podLabels.team=x,podAnnotations.a=b,\
        nodeSelector.pool=infra,tolerations[0].operator=Exists,topologySpreadConstraints=null,\
        priorityClass.create=false,priorityClass.name=high,replicas=0,fullnameOverride=keeper";
    let objects = render(program, &["--set", many]).await?;
    let deployment = of_kind(&objects, "Deployment")[0];
    let pod = &deployment["spec"]["template"]["spec"];
    ensure!(deployment["metadata"]["name"] == "keeper", "{deployment:#}");
    ensure!(
        pod["containers"][0]["image"] == "gamekeeper:nightly",
        "{pod:#}"
    );
    ensure!(pod["imagePullSecrets"][1]["name"] == "b", "{pod:#}");
    ensure!(pod["priorityClassName"] == "high", "{pod:#}");
    ensure!(pod["topologySpreadConstraints"].is_null(), "{pod:#}");
    Ok(())
}

async fn wrong_values_are_refused_with_a_reason(case: &mut Case) -> Result<()> {
    for (value, reason) in [
        ("replcas=3", "additional properties 'replcas' not allowed"),
        (
            "hooks.secret=x",
            "'/hooks': additional properties 'secret' not allowed",
        ),
        ("replicas=many", "'/replicas': got string, want integer"),
        ("replicas=-1", "'/replicas': minimum"),
        (
            "watchNamespace=Games",
            "'/watchNamespace': 'Games' does not match pattern",
        ),
        (
            "image.digest=latest",
            "'/image/digest': 'latest' does not match pattern",
        ),
        (
            "log.format=xml",
            "'/log/format': value must be one of 'text', 'json'",
        ),
        (
            "log.level=warning",
            "'/log/level': 'warning' does not match pattern",
        ),
        (
            "hooks.secrets[0].namespace=games",
            "missing property 'names'",
        ),
        ("hooks.jobs=yes", "'/hooks/jobs': got string, want boolean"),
        ("admission.port=8080", "'/admission/port'"),
        (
            "admission.deletionProtection=Some",
            "'/admission/deletionProtection': value must be one of",
        ),
        (
            "metrics.serviceMonitor.interval=often",
            "'/metrics/serviceMonitor/interval'",
        ),
        (
            "priorityClass.value=2000000000",
            "'/priorityClass/value': maximum",
        ),
        ("hooks.exec=games", "'/hooks/exec': got string, want array"),
        (
            "hooks.exec={games,games}",
            "'/hooks/exec': items at 0 and 1 are equal",
        ),
        (
            "watchNamespace=a,hooks.exec={b}",
            "no hook runs in namespace b, because watchNamespace is a",
        ),
        ("priorityClass.name=high", "set create to false"),
        (
            "watchNamespace=a,hooks.secrets[0].namespace=b,hooks.secrets[0].names={c}",
            "no hook runs in namespace b, because watchNamespace is a",
        ),
        (
            "hooks.secrets[0].namespace=a,hooks.secrets[0].names={b},\
            hooks.secrets[1].namespace=a,hooks.secrets[1].names={c}",
            "namespace a is listed twice: merge its names into one list",
        ),
    ] {
        let error = match render(&case.plane().helm, &["--set", value]).await {
            Ok(_) => anyhow::bail!("{value} is not refused"),
            Err(error) => format!("{error:#}"),
        };
        ensure!(error.contains(reason), "{value}: {error}");
    }
    Ok(())
}

async fn the_permissions_are_minimal(case: &mut Case) -> Result<()> {
    let program = &case.plane().helm;
    let everything = render(
        program,
        &["--set=hooks.allSecrets=true,admission.enabled=true"],
    )
    .await?;
    for role in everything.iter().filter(|it| it["rules"].is_array()) {
        ensure!(
            !role["rules"].to_string().contains('*'),
            "a wildcard: {role:#}"
        );
    }
    let rules = |objects: &[Value], kind: &str| {
        let roles = of_kind(objects, kind).into_iter();
        let rules = roles.flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default());
        rules.collect::<Vec<_>>()
    };
    let names = |rules: &[Value], resource: &str| {
        let about = |rule: &&Value| {
            rule["resources"]
                .to_string()
                .contains(&format!("\"{resource}\""))
        };
        rules
            .iter()
            .filter(about)
            .map(|rule| rule["resourceNames"].clone())
            .collect::<Vec<_>>()
    };
    let usual = render(program, &[]).await?;
    let everywhere = rules(&usual, "ClusterRole");
    ensure!(names(&everywhere, "secrets").is_empty(), "{everywhere:#?}");

    let named =
        "hooks.secrets[0].namespace=games,hooks.secrets[0].names={match-api},hooks.jobs=false";
    let scoped = render(program, &["--set", named, "--set=watchNamespace=games"]).await?;
    let everywhere = rules(&scoped, "ClusterRole");
    let configurations = names(&everywhere, "validatingwebhookconfigurations");
    ensure!(
        everywhere.len() == 2
            && names(&everywhere, "nodes").len() == 1
            && configurations == [serde_json::json!(["gamekeeper-webhook"])],
        "{everywhere:#?}"
    );
    let inside = rules(&scoped, "Role");
    ensure!(
        names(&inside, "secrets")
            == [
                serde_json::json!(["match-api"]),
                serde_json::json!(["gamekeeper-webhook"])
            ],
        "{inside:#?}"
    );
    ensure!(names(&inside, "jobs").is_empty(), "{inside:#?}");
    for role in of_kind(&scoped, "Role") {
        let name = role["metadata"]["name"].as_str().unwrap_or_default();
        let home = if name.ends_with("-lease") || name.ends_with("-webhook") {
            SYSTEM
        } else {
            GAMES
        };
        ensure!(role["metadata"]["namespace"] == home, "{role:#}");
    }
    Ok(())
}

async fn commands_are_allowed_only_in_the_listed_namespaces(case: &mut Case) -> Result<()> {
    let program = &case.plane().helm;
    let usual = Value::from(render(program, &["--set=hooks.allSecrets=true"]).await?).to_string();
    ensure!(!usual.contains("pods/exec"), "exec is on by default");
    ensure!(!usual.contains("--hook-exec"), "exec is on by default");

    let objects = render(program, &["--set=hooks.exec={games,more}"]).await?;
    let allows = |role: &&&Value| role["rules"].to_string().contains("pods/exec");
    ensure!(
        !of_kind(&objects, "ClusterRole")
            .iter()
            .any(|role| allows(&role))
    );
    let roles = of_kind(&objects, "Role");
    let roles: Vec<_> = roles.iter().filter(allows).collect();
    for (role, namespace) in roles.iter().zip(["games", "more"]) {
        let rules =
            json!([{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}]);
        ensure!(role["rules"] == rules, "{role:#}");
        ensure!(role["metadata"]["namespace"] == namespace, "{role:#}");
        let bindings = of_kind(&objects, "RoleBinding");
        let is_its = |it: &&Value| it["metadata"] == role["metadata"];
        let binding = bindings.into_iter().find(is_its).context("no binding")?;
        ensure!(binding["roleRef"]["name"] == role["metadata"]["name"]);
        ensure!(
            binding["subjects"][0]["name"] == "gamekeeper",
            "{binding:#}"
        );
    }
    ensure!(roles.len() == 2, "{roles:#?}");
    let deployment = of_kind(&objects, "Deployment")[0].to_string();
    ensure!(deployment.contains("\"--hook-exec-namespaces=games,more\""));
    Ok(())
}

async fn crds_alerts_and_dashboards_are_rendered_unchanged(case: &mut Case) -> Result<()> {
    let all = "metrics.alerts.enabled=true,metrics.dashboards.enabled=true";
    let objects = render(&case.plane().helm, &["--set", all]).await?;
    let file = |path: &str| -> Result<Value> {
        let text = std::fs::read_to_string(repository().join(path))?;
        serde_yaml_ng::from_str(&text).with_context(|| path.to_owned())
    };
    let crds = of_kind(&objects, "CustomResourceDefinition");
    ensure!(crds.len() == 4);
    for crd in crds {
        let plural = crd["spec"]["names"]["plural"].as_str().unwrap_or_default();
        ensure!(
            crd["spec"] == file(&format!("crds/{plural}.yaml"))?["spec"],
            "{plural}"
        );
        ensure!(
            crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep",
            "{plural}"
        );
    }
    let alerts = file("charts/gamekeeper/files/alerts.yaml")?;
    ensure!(of_kind(&objects, "PrometheusRule")[0]["spec"] == alerts);
    let dashboards = of_kind(&objects, "ConfigMap");
    ensure!(dashboards.len() == 2);
    for (name, shown) in dashboards
        .iter()
        .flat_map(|it| it["data"].as_object())
        .flatten()
    {
        let shown: Value = serde_json::from_str(shown.as_str().unwrap_or_default())?;
        let path = format!("charts/gamekeeper/files/dashboards/{name}");
        ensure!(shown == file(&path)?, "{name}");
    }
    Ok(())
}

/// Installs, upgrades, rolls back and uninstalls a release, and installs it for one namespace. The operator
/// runs with the permissions of the chart.
async fn install_upgrade_rollback_and_uninstall(case: &mut Case) -> Result<()> {
    let plane = ControlPlane::empty("chart").await?;
    let outcome = lifecycle(&plane, case.folder()).await;
    plane.stop().await?;
    outcome
}

async fn lifecycle(plane: &ControlPlane, folder: &Path) -> Result<()> {
    let kubectl = async |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        plane.kubectl(&words, "").await
    };
    release::nodes_with_common_addresses(plane).await?;
    for namespace in [SYSTEM, GAMES, "team"] {
        kubectl(&format!("create namespace {namespace}")).await?;
    }
    let restricted = "pod-security.kubernetes.io/enforce=restricted";
    kubectl(&format!("label namespace {SYSTEM} team {restricted}")).await?;

    let install = [
        "install",
        "gamekeeper",
        CHART,
        "--namespace",
        SYSTEM,
        // The interval between checks of a certificate is a fraction of its lifetime.
        "--set=extraArgs={--webhook-certificate-lifetime=10m}",
        "--wait",
        "--timeout=90s",
    ];
    let notes = plane.helm(&install).await?;
    ensure!(
        notes.contains("rollout status deployment/gamekeeper"),
        "{notes}"
    );
    kubectl(&format!(
        "rollout status deployment/gamekeeper -n {SYSTEM} --timeout=10s"
    ))
    .await?;
    let nodes = format!("get pods -n {SYSTEM} -o jsonpath={{.items[*].spec.nodeName}}");
    let nodes = kubectl(&nodes).await?;
    let apart: BTreeSet<&str> = nodes.split(' ').collect();
    ensure!(apart.len() == 2, "both operators on {apart:?}");
    release::services_reach_pods(plane).await?;
    let mut operator = Operator::installed(plane, SYSTEM, "gamekeeper", folder).await?;
    operator.start().await?;
    let game = Game::in_place(3).to_string();
    plane
        .kubectl(&["apply", "-n", GAMES, "-f", "-"], &game)
        .await?;
    until_ready(plane, 3).await?;
    let uid = kubectl(&format!(
        "get gamedeployments -n {GAMES} -o jsonpath={{..uid}}"
    ))
    .await?;

    let certificates = trusted_certificates(plane, &operator).await?;

    let newer = newer_chart(folder).await?;
    let upgrade = [
        "upgrade",
        "gamekeeper",
        &newer,
        "--namespace",
        SYSTEM,
        "--reset-then-reuse-values",
        "--wait",
        "--timeout=90s",
    ];
    plane.helm(&upgrade).await?;
    eventually(
        "the new short name is served",
        Duration::from_secs(30),
        async || kubectl(&format!("get brandnew -n {GAMES}")).await,
    )
    .await?;
    kubectl(&format!(
        "scale gamedeployment --all -n {GAMES} --replicas=4"
    ))
    .await?;
    until_ready(plane, 4).await?;
    let kept = trusted_certificates(plane, &operator).await?;
    ensure!(kept == certificates, "an upgrade changes the certificates");
    release::roll_back(plane).await?;
    let kept = trusted_certificates(plane, &operator).await?;
    ensure!(kept == certificates, "a rollback changes the certificates");
    release::upgrade_restores_secret(plane, &operator, &upgrade).await?;
    operator.terminate().await?;
    permitted(plane, &operator)?;

    plane
        .helm(&["uninstall", "gamekeeper", "--namespace", SYSTEM, "--wait"])
        .await?;
    kubectl("wait --for=condition=Established crd --all --timeout=10s").await?;
    let left = kubectl(
        "get clusterroles,clusterrolebindings,priorityclasses,deployments,services,roles,secrets,\
        validatingwebhookconfigurations,validatingadmissionpolicies,flowschemas \
        -A -l app.kubernetes.io/name=gamekeeper -o name",
    )
    .await?;
    ensure!(left.is_empty(), "uninstalling leaves {left}");
    let kept = kubectl(&format!(
        "get gamedeployments -n {GAMES} -o jsonpath={{..uid}}"
    ))
    .await?;
    ensure!(kept == uid, "{uid} became {kept}");

    scoped(plane, folder).await?;
    // The same release may reuse the CRDs; another one must take ownership of them.
    plane.helm(&install).await?;
    plane
        .helm(&["uninstall", "gamekeeper", "--namespace", SYSTEM])
        .await?;
    let other = ["install", "other", CHART, "--namespace", SYSTEM];
    let error = plane.helm(&other).await;
    let error = error.err().map(|error| format!("{error:#}"));
    ensure!(
        error
            .as_ref()
            .is_some_and(|it| it.contains("cannot be imported")),
        "{error:?}"
    );
    plane
        .helm(&[other.as_slice(), &["--take-ownership"]].concat())
        .await?;
    Ok(())
}

/// The webhook's Secret and CA bundle. Fails unless the operator serves a certificate that is trusted for
/// the Service.
async fn trusted_certificates(plane: &ControlPlane, operator: &Operator) -> Result<[Value; 2]> {
    let configuration = plane.get(&configuration("gamekeeper-webhook")).await?;
    let called = &configuration["webhooks"][0]["clientConfig"];
    let part = |name: &str| called["service"][name].as_str().unwrap_or_default();
    let host = format!("{}.{}.svc", part("name"), part("namespace"));
    ensure!(
        host == "gamekeeper-webhook.gamekeeper-system.svc",
        "{called:#}"
    );
    tls_handshake(&configuration, operator.webhook_port()?, &host).await?;
    let secret = format!("/api/v1/namespaces/{SYSTEM}/secrets/gamekeeper-webhook");
    let data = plane.get(&secret).await?["data"].clone();
    ensure!(data["tls.key"].is_string(), "the Secret is empty");
    Ok([data, called["caBundle"].clone()])
}

/// Installs a release that watches only the namespace of the workloads, with existing CRDs.
async fn scoped(plane: &ControlPlane, folder: &Path) -> Result<()> {
    let values = "crds.install=false,watchNamespace=games,\
        hooks.secrets[0].namespace=games,hooks.secrets[0].names={match-api}";
    let install = [
        "install",
        "keeper",
        CHART,
        "--namespace=team",
        "--set",
        values,
        "--wait",
    ];
    plane.helm(&install).await?;
    let mut operator = Operator::installed(plane, "team", "keeper-gamekeeper", folder).await?;
    operator.start().await?;
    plane
        .kubectl(
            &[
                "scale",
                "gamedeployment",
                "--all",
                "-n",
                GAMES,
                "--replicas=2",
            ],
            "",
        )
        .await?;
    until_ready(plane, 2).await?;
    operator.terminate().await?;
    permitted(plane, &operator)?;

    for (verb, resource, namespace, allowed) in [
        ("get", "secrets/match-api", GAMES, true),
        ("get", "secrets/other", GAMES, false),
        ("list", "secrets", GAMES, false),
        ("list", "pods", GAMES, true),
        ("list", "pods", SYSTEM, false),
        ("delete", "persistentvolumeclaims", GAMES, false),
        ("create", "podtemplates", GAMES, true),
        ("update", "podtemplates", GAMES, false),
        ("create", "podtemplates", SYSTEM, false),
    ] {
        let name = operator.username();
        let question = [
            "auth", "can-i", verb, resource, "-n", namespace, "--as", &name,
        ];
        let answer = plane.kubectl(&question, "").await.is_ok();
        ensure!(
            answer == allowed,
            "{verb} {resource} in {namespace}: {answer}"
        );
    }
    plane
        .helm(&["uninstall", "keeper", "--namespace=team"])
        .await?;
    Ok(())
}

/// Waits with `kubectl wait` until the workloads have this many updated pods and are ready.
async fn until_ready(plane: &ControlPlane, replicas: u32) -> Result<()> {
    let counts = format!("--for=jsonpath={{.status.updatedReadyReplicas}}={replicas}");
    for condition in [counts.as_str(), "--for=condition=Ready"] {
        let wait = [
            "wait",
            "gamedeployment",
            "--all",
            "-n",
            GAMES,
            "--timeout=60s",
            condition,
        ];
        plane.kubectl(&wait, "").await?;
    }
    Ok(())
}

/// Checks that no write of an operator was refused because of a missing permission.
fn permitted(plane: &ControlPlane, operator: &Operator) -> Result<()> {
    for namespace in [GAMES, SYSTEM, "team", ""] {
        let mut events = plane.audit.writes(namespace)?;
        events.retain(|event| event.user.username == operator.username());
        let refused: Vec<_> = events
            .iter()
            .filter_map(|it| it.missing_permission())
            .collect();
        ensure!(refused.is_empty(), "{refused:#?}");
    }
    Ok(())
}

/// A copy of the chart with a newer version, and a CRD with an additional short name.
async fn newer_chart(folder: &Path) -> Result<String> {
    let copy = folder.join("newer");
    let mut cp = Command::new("cp");
    cp.arg("-r").arg(repository().join(CHART)).arg(&copy);
    run(&mut cp, "").await?;
    for (file, old, new) in [
        ("Chart.yaml", "\nversion: 0.1.0\n", "\nversion: 0.1.1\n"),
        (
            "files/crds/gamedeployments.yaml",
            "    - gd\n",
            "    - gd\n    - brandnew\n",
        ),
    ] {
        let text = std::fs::read_to_string(copy.join(file))?;
        ensure!(text.contains(old), "{file} has no {old:?}");
        std::fs::write(copy.join(file), text.replacen(old, new, 1))?;
    }
    Ok(copy.to_string_lossy().into_owned())
}

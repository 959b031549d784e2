//! The Helm chart: what it renders, and what it refuses.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::cluster::chart::{CHART, helm, render};
use e2e::process::command::run;
use serde_json::{Value, json};

pub mod deleted_namespace;
mod guard;
pub mod ipv6;
pub mod lifecycle;
pub mod names;
pub mod platform;
mod release;
pub mod removal;
pub mod rendered;
pub mod settings;
pub mod sidecars;
pub mod unguard;
pub mod users;

/// Namespace of the release, as in the README.
const SYSTEM: &str = "gamekeeper-system";
/// Namespace of the workloads.
const GAMES: &str = "games";

#[e2e::test]
async fn helm_lint_passes(case: &mut Case) -> Result<()> {
    let mut lint = helm(&case.plane().helm);
    lint.args(["lint", "--strict", "--kube-version=1.36", CHART]);
    let output = run(&mut lint, "").await?;
    ensure!(output.contains("0 chart(s) failed"), "{output}");
    Ok(())
}

fn kinds(objects: &[Value]) -> BTreeSet<&str> {
    objects.iter().filter_map(|it| it["kind"].as_str()).collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|it| it["kind"] == kind).collect()
}

#[e2e::test]
async fn each_part_can_be_left_out(case: &mut Case) -> Result<()> {
    let program = &case.plane().helm;
    let defaults = render(program, &[]).await?;
    let defaults = kinds(&defaults);
    for (value, kind) in [
        ("crds.install=false", "CustomResourceDefinition"),
        ("podDisruptionBudget.enabled=false", "PodDisruptionBudget"),
        ("priorityClass.create=false", "PriorityClass"),
        ("networkPolicy.enabled=false", "NetworkPolicy"),
        ("flowSchema.create=false", "FlowSchema"),
        ("sidecars.enabled=false", "MutatingWebhookConfiguration"),
    ] {
        let objects = render(program, &["--set", value]).await?;
        let mut rendered = kinds(&objects);
        ensure!(!rendered.contains(kind), "{value} leaves {rendered:?}");
        rendered.insert(kind);
        ensure!(rendered == defaults, "{value} leaves {rendered:?}");
    }
    for (value, kind) in [("metrics.serviceMonitor.enabled=true", "ServiceMonitor")] {
        let objects = render(program, &["--set", value]).await?;
        let rendered = kinds(&objects);
        ensure!(
            !defaults.contains(kind) && rendered.contains(kind),
            "{value} renders {rendered:?}"
        );
    }
    let values = "admission.enabled=false,admission.deletionProtection=None,\
        admission.hookRunProtection=false,admission.guardedPods=false";
    let objects = render(program, &["--set", values]).await?;
    let left_out: Vec<&str> = defaults.difference(&kinds(&objects)).copied().collect();
    let admission = [
        "MutatingWebhookConfiguration",
        "Secret",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    ];
    ensure!(left_out == admission, "without admission, {left_out:?} are left out");
    let values = "image.digest=,image.tag=nightly,imagePullSecrets={a,b},podLabels.team=x,podAnnotations.a=b,\
        nodeSelector.pool=infra,tolerations[0].operator=Exists,topologySpreadConstraints=null,\
        priorityClass.create=false,priorityClass.name=high,replicas=0,fullnameOverride=keeper";
    let objects = render(program, &["--set", values]).await?;
    let deployment = of_kind(&objects, "Deployment")[0];
    let pod = &deployment["spec"]["template"]["spec"];
    ensure!(deployment["metadata"]["name"] == "keeper", "{deployment:#}");
    ensure!(pod["containers"][0]["image"] == "gamekeeper:nightly", "{pod:#}");
    ensure!(pod["imagePullSecrets"][1]["name"] == "b", "{pod:#}");
    ensure!(pod["priorityClassName"] == "high", "{pod:#}");
    ensure!(pod["topologySpreadConstraints"].is_null(), "{pod:#}");
    for (value, name) in [
        ("guardedPods.priorityClass.create=true", "gamekeeper-guarded"),
        ("guardedPods.priorityClass.name=high", "high"),
    ] {
        let objects = render(program, &["--set", value]).await?;
        let args = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]
            ["args"];
        let args = args.as_array().context("no arguments")?;
        let expected = format!("--guarded-priority-class={name}");
        ensure!(args.iter().any(|it| *it == expected.as_str()), "{args:?}");
    }
    Ok(())
}

#[e2e::test]
async fn wrong_values_are_refused_with_a_reason(case: &mut Case) -> Result<()> {
    for (value, reason) in [
        ("replcas=3", "additional properties 'replcas' not allowed"),
        ("hooks.secret=x", "'/hooks': additional properties 'secret' not allowed"),
        ("replicas=many", "'/replicas': got string, want integer"),
        ("replicas=-1", "'/replicas': minimum"),
        ("watchNamespace=Games", "'/watchNamespace': 'Games' does not match pattern"),
        ("image.digest=latest", "'/image/digest': 'latest' does not match pattern"),
        ("log.format=xml", "'/log/format': value must be one of 'text', 'json'"),
        ("log.level=warning", "'/log/level': 'warning' does not match pattern"),
        ("hooks.secrets[0].namespace=games", "missing property 'names'"),
        ("hooks.jobs=yes", "'/hooks/jobs': got string, want boolean"),
        ("admission.port=8080", "admission.port: 8080 is the port of metrics.port"),
        (
            "admission.deletionProtection=Some",
            "'/admission/deletionProtection': value must be one of",
        ),
        ("metrics.serviceMonitor.interval=often", "'/metrics/serviceMonitor/interval'"),
        ("priorityClass.value=2000000000", "'/priorityClass/value': maximum"),
        ("hooks.exec=games", "'/hooks/exec': got string, want array"),
        ("hooks.exec={games,games}", "'/hooks/exec': items at 0 and 1 are equal"),
        (
            "watchNamespace=a,hooks.exec={b}",
            "no hook runs in namespace b, because watchNamespace is a",
        ),
        ("sidecars.namespaces=Some", "'/sidecars/namespaces': value must be one of"),
        (
            "priorityClass.name=high",
            "priorityClass: to use an existing PriorityClass (name), set create to false",
        ),
        (
            "guardedPods.priorityClass.create=true,guardedPods.priorityClass.name=high",
            "guardedPods.priorityClass: to use an existing PriorityClass (name), set create to false",
        ),
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

#[e2e::test]
async fn the_permissions_are_minimal(case: &mut Case) -> Result<()> {
    let program = &case.plane().helm;
    let everything =
        render(program, &["--set=hooks.allSecrets=true,admission.enabled=true"]).await?;
    for role in everything.iter().filter(|it| it["rules"].is_array()) {
        ensure!(!role["rules"].to_string().contains('*'), "a wildcard: {role:#}");
    }
    let rules = |objects: &[Value], kind: &str| {
        let roles = of_kind(objects, kind).into_iter();
        // The roles of users are tested with users, in `users`.
        let roles = roles.filter(|role| {
            let name = role["metadata"]["name"].as_str().unwrap_or_default();
            !["-view", "-edit", "-admin"].iter().any(|it| name.ends_with(it))
        });
        let rules = roles.flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default());
        rules.collect::<Vec<_>>()
    };
    let names = |rules: &[Value], resource: &str| {
        let has_resource =
            |rule: &&Value| rule["resources"].to_string().contains(&format!("\"{resource}\""));
        rules
            .iter()
            .filter(has_resource)
            .map(|rule| rule["resourceNames"].clone())
            .collect::<Vec<_>>()
    };
    let defaults = render(program, &[]).await?;
    let cluster_rules = rules(&defaults, "ClusterRole");
    ensure!(names(&cluster_rules, "secrets").is_empty(), "{cluster_rules:#?}");

    let values =
        "hooks.secrets[0].namespace=games,hooks.secrets[0].names={match-api},hooks.jobs=false";
    let scoped = render(program, &["--set", values, "--set=watchNamespace=games"]).await?;
    let cluster_rules = rules(&scoped, "ClusterRole");
    let configurations = names(&cluster_rules, "validatingwebhookconfigurations");
    ensure!(
        cluster_rules.len() == 8
            && names(&cluster_rules, "nodes").len() == 1
            // One rule for the watched namespace, and one for all namespaces, which SidecarSets need.
            && names(&cluster_rules, "namespaces") == [json!(["games"]), Value::Null]
            && configurations == [serde_json::json!(["gamekeeper-webhook"])],
        "{cluster_rules:#?}"
    );
    let values = ["--set=watchNamespace=games,sidecars.enabled=false"];
    let without_sidecars = render(program, &values).await?;
    ensure!(rules(&without_sidecars, "ClusterRole").len() == 3, "{without_sidecars:#?}");
    let revision_rules =
        |objects: &[Value]| names(&rules(objects, "Role"), "controllerrevisions").len();
    // One rule for revisions of workloads, and one for those of SidecarSets.
    ensure!(revision_rules(&scoped) == 2 && revision_rules(&without_sidecars) == 1);
    ensure!(of_kind(&without_sidecars, "MutatingWebhookConfiguration").is_empty());
    let admission = of_kind(&without_sidecars, "ValidatingWebhookConfiguration");
    ensure!(!format!("{admission:?}").contains("sidecarsets"));
    let namespaced_rules = rules(&scoped, "Role");
    ensure!(
        names(&namespaced_rules, "secrets")
            == [serde_json::json!(["match-api"]), serde_json::json!(["gamekeeper-webhook"])],
        "{namespaced_rules:#?}"
    );
    ensure!(names(&namespaced_rules, "jobs").is_empty(), "{namespaced_rules:#?}");
    for role in of_kind(&scoped, "Role") {
        let name = role["metadata"]["name"].as_str().unwrap_or_default();
        let system_suffixes = ["-lease", "-webhook", "-unguard", "-sidecars"];
        let expected =
            if system_suffixes.iter().any(|it| name.ends_with(it)) { SYSTEM } else { GAMES };
        ensure!(role["metadata"]["namespace"] == expected, "{role:#}");
    }
    Ok(())
}

#[e2e::test]
async fn commands_are_allowed_only_in_the_listed_namespaces(case: &mut Case) -> Result<()> {
    let program = &case.plane().helm;
    let defaults =
        Value::from(render(program, &["--set=hooks.allSecrets=true"]).await?).to_string();
    ensure!(!defaults.contains("pods/exec"), "exec is on by default");
    ensure!(!defaults.contains("--hook-exec"), "exec is on by default");

    let objects = render(program, &["--set=hooks.exec={games,more}"]).await?;
    let allows_exec = |role: &&&Value| role["rules"].to_string().contains("pods/exec");
    ensure!(!of_kind(&objects, "ClusterRole").iter().any(|role| allows_exec(&role)));
    let roles = of_kind(&objects, "Role");
    let roles: Vec<_> = roles.iter().filter(allows_exec).collect();
    for (role, namespace) in roles.iter().zip(["games", "more"]) {
        let rules =
            json!([{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}]);
        ensure!(role["rules"] == rules, "{role:#}");
        ensure!(role["metadata"]["namespace"] == namespace, "{role:#}");
        let bindings = of_kind(&objects, "RoleBinding");
        let has_same_metadata = |it: &&Value| it["metadata"] == role["metadata"];
        let binding = bindings.into_iter().find(has_same_metadata).context("no binding")?;
        ensure!(binding["roleRef"]["name"] == role["metadata"]["name"]);
        ensure!(binding["subjects"][0]["name"] == "gamekeeper", "{binding:#}");
    }
    ensure!(roles.len() == 2, "{roles:#?}");
    let deployment = of_kind(&objects, "Deployment")[0].to_string();
    ensure!(deployment.contains("\"--hook-exec-namespaces=games,more\""));
    Ok(())
}

#[e2e::test]
async fn crds_alerts_and_dashboards_are_rendered_unchanged(case: &mut Case) -> Result<()> {
    let values = "metrics.alerts.enabled=true,metrics.dashboards.enabled=true";
    let objects = render(&case.plane().helm, &["--set", values]).await?;
    let file = |path: &str| -> Result<Value> {
        let text = std::fs::read_to_string(repository().join(path))?;
        serde_yaml_ng::from_str(&text).with_context(|| path.to_owned())
    };
    let crds = of_kind(&objects, "CustomResourceDefinition");
    ensure!(crds.len() == 5);
    for crd in crds {
        let plural = crd["spec"]["names"]["plural"].as_str().unwrap_or_default();
        ensure!(crd["spec"] == file(&format!("crds/{plural}.yaml"))?["spec"], "{plural}");
        // Deleting a CRD deletes all workloads of its kind, so no tool deletes it with the release.
        for (tool, keep) in [
            ("helm.sh/resource-policy", "keep"),
            ("argocd.argoproj.io/sync-options", "Prune=false,Delete=false"),
            ("kustomize.toolkit.fluxcd.io/prune", "disabled"),
        ] {
            let annotation = &crd["metadata"]["annotations"][tool];
            ensure!(*annotation == keep, "{plural}: {tool}: {annotation}");
        }
    }
    let alerts = file("charts/gamekeeper/files/alerts.yaml")?;
    ensure!(of_kind(&objects, "PrometheusRule")[0]["spec"] == alerts);
    let mut dashboards = BTreeSet::new();
    for map in of_kind(&objects, "ConfigMap") {
        for (name, rendered) in map["data"].as_object().context("no data")? {
            let rendered: Value = serde_json::from_str(rendered.as_str().unwrap_or_default())?;
            let path = format!("charts/gamekeeper/files/dashboards/{name}");
            ensure!(rendered == file(&path)?, "{name}");
            dashboards.insert(name.as_str());
        }
    }
    ensure!(dashboards == BTreeSet::from(["fleet.json", "rollout.json"]), "{dashboards:?}");
    Ok(())
}

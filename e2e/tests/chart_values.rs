//! What the chart renders for various values: no duplicates, no dropped values, and pods with restricted
//! security contexts, probes and resource limits.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::cluster::chart::{CHART, helm, render};
use e2e::documents::shell::Shell;
use e2e::process::command::{run, run_unchecked};
use serde_json::{Value, json};
use tokio::process::Command;

async fn object(case: &Case, kind: &str, values: &str) -> Result<Value> {
    let objects = render(&case.plane().helm, &["--set", values]).await?;
    let found = objects.into_iter().find(|it| it["kind"] == kind);
    found.with_context(|| format!("no {kind}"))
}

#[e2e::test]
async fn pods_are_restricted_probed_and_bounded(case: &mut Case) -> Result<()> {
    let deployment = object(case, "Deployment", "replicas=2").await?;
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let probe =
        |path: &str| json!({"httpGet": {"path": path, "port": "http"}, "timeoutSeconds": 5});
    for (found, expected) in [
        (&container["livenessProbe"], probe("/healthz")),
        (&container["readinessProbe"], probe("/readyz")),
        (
            &container["resources"],
            json!({"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}),
        ),
        (
            &container["securityContext"],
            json!({
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            }),
        ),
        (
            &pod["securityContext"],
            json!({
                // The image names its user. OpenShift assigns another one.
                "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
            }),
        ),
    ] {
        ensure!(*found == expected, "{found:#} is not {expected:#}");
    }
    // API servers call the webhook for a moment after its pod was told to end.
    let pre_stop = json!({"preStop": {"sleep": {"seconds": 5}}});
    ensure!(container["lifecycle"] == pre_stop, "{container:#}");
    let without = object(case, "Deployment", "admission.enabled=false").await?;
    let without = &without["spec"]["template"]["spec"]["containers"][0];
    ensure!(without["lifecycle"].is_null(), "{without:#}");
    let budget = object(case, "PodDisruptionBudget", "replicas=2").await?;
    let selector = &budget["spec"]["selector"];
    ensure!(budget["spec"]["maxUnavailable"] == 1, "{budget:#}");
    ensure!(*selector == deployment["spec"]["selector"], "{budget:#}");
    probes_use_the_default_port(case, container).await
}

/// The port of the probes is the one that the operator listens on by default.
async fn probes_use_the_default_port(case: &Case, container: &Value) -> Result<()> {
    let port = &container["ports"][0];
    ensure!(port["name"] == "http", "{container:#}");
    let listen = format!("[::]:{}", port["containerPort"]);
    let args = container["args"].as_array().context("no arguments")?;
    let argument = json!(format!("--listen={listen}"));
    ensure!(args.contains(&argument), "{container:#}");
    let mut help = Command::new(case.operator.binary());
    let help = run(help.args(["run", "--help"]), "").await?;
    let default = format!("[default: {listen}]");
    ensure!(help.contains(&default), "no {default} in:\n{help}");
    Ok(())
}

#[e2e::test]
async fn additions_to_pods_are_rendered_once(case: &mut Case) -> Result<()> {
    let name = "app\\.kubernetes\\.io/name";
    let values = format!(
        "podLabels.team=x,podLabels.{name}=other,extraArgs={{--leader-elect=false}},\
        extraEnv[0].name=TZ,extraEnv[0].value=Europe/Berlin,\
        serviceAccount.annotations.role=arn:x,topologySpreadConstraints[0].maxSkew=2,\
        topologySpreadConstraints[0].topologyKey=zone,\
        topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule,\
        topologySpreadConstraints[0].labelSelector.matchLabels.team=x,\
        metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.labels.{name}=other"
    );
    // `render` fails on duplicate keys. kubectl would keep the last one.
    let deployment = object(case, "Deployment", &values).await?;
    let template = &deployment["spec"]["template"];
    let labels = &template["metadata"]["labels"];
    ensure!(labels["team"] == "x", "{labels}");
    ensure!(labels["app.kubernetes.io/name"] == "gamekeeper", "{labels}");
    let spread = &template["spec"]["topologySpreadConstraints"][0];
    let given = json!({"matchLabels": {"team": "x"}});
    ensure!(spread["labelSelector"] == given, "{spread}");
    let container = &template["spec"]["containers"][0];
    let args = container["args"].as_array().context("no arguments")?;
    ensure!(args.contains(&json!("--leader-elect=false")), "{args:?}");
    let zone = json!([
        {"name": "MALLOC_ARENA_MAX", "value": "2"}, {"name": "TZ", "value": "Europe/Berlin"},
    ]);
    ensure!(container["env"] == zone, "{container:#}");
    let account = object(case, "ServiceAccount", &values).await?;
    ensure!(account["metadata"]["annotations"]["role"] == "arn:x", "{account:#}");
    let monitor = object(case, "ServiceMonitor", &values).await?;
    let labels = &monitor["metadata"]["labels"];
    ensure!(labels["app.kubernetes.io/name"] == "gamekeeper", "{labels}");
    Ok(())
}

/// Checks the labels and ports by which Services, ServiceMonitors and NetworkPolicies refer to pods and to each other.
#[e2e::test]
async fn referenced_labels_and_ports_exist(case: &mut Case) -> Result<()> {
    let values = "metrics.serviceMonitor.enabled=true,admission.port=10443";
    let objects = render(&case.plane().helm, &["--set", values]).await?;
    let named = |kind: &str, name: &str| {
        let matches = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == name;
        let found = objects.iter().find(matches);
        found.with_context(|| format!("no {kind} {name}"))
    };
    let template = &named("Deployment", "gamekeeper")?["spec"]["template"];
    let labels = &template["metadata"]["labels"];
    let container = &template["spec"]["containers"][0];
    let ports = container["ports"].as_array().context("no ports")?;
    let exists_on_container =
        |port: &Value| ports.iter().any(|it| it["name"] == *port || it["containerPort"] == *port);
    ensure!(exists_on_container(&json!(10443)), "{container:#}");
    let listen = json!("--webhook-listen=[::]:10443");
    let args = container["args"].as_array().context("no arguments")?;
    ensure!(args.contains(&listen), "{container:#}");

    let metrics = named("Service", "gamekeeper-metrics")?;
    let webhook = named("Service", "gamekeeper-webhook")?;
    for service in [metrics, webhook] {
        let spec = &service["spec"];
        let target = &spec["ports"][0]["targetPort"];
        ensure!(selects(&spec["selector"], labels), "{service:#}");
        ensure!(target.is_string() && exists_on_container(target), "{service:#}");
    }
    let policy = &named("NetworkPolicy", "gamekeeper")?["spec"];
    ensure!(selects(&policy["podSelector"]["matchLabels"], labels), "{policy:#}");
    let rules = policy["ingress"].as_array().context("no ingress rules")?;
    let allowed: Vec<_> = rules.iter().map(|rule| &rule["ports"][0]["port"]).collect();
    let all_exist =
        allowed.len() == ports.len() && allowed.iter().all(|port| exists_on_container(port));
    ensure!(all_exist, "{policy:#}");

    let monitor = &named("ServiceMonitor", "gamekeeper")?["spec"];
    let selector = &monitor["selector"]["matchLabels"];
    ensure!(selects(selector, &metrics["metadata"]["labels"]), "{monitor:#}");
    ensure!(!selects(selector, &webhook["metadata"]["labels"]), "{monitor:#}");
    let scraped = &monitor["endpoints"][0]["port"];
    ensure!(*scraped == metrics["spec"]["ports"][0]["name"], "{monitor:#}");
    Ok(())
}

/// Whether a selector is not empty and selects an object with these labels.
fn selects(selector: &Value, labels: &Value) -> bool {
    let selector = selector.as_object();
    selector.is_some_and(|it| !it.is_empty() && it.iter().all(|(key, value)| labels[key] == *value))
}

#[e2e::test]
async fn values_of_the_wrong_type_or_format_are_refused(case: &mut Case) -> Result<()> {
    for (value, reason) in [
        ("image.tag=12", "'/image/tag': got number, want string"),
        ("image.tag=a:b", "'/image/tag': 'a:b' does not match pattern"),
        ("extraArgs=--listen=x", "'/extraArgs': got string, want array"),
        ("extraEnv[0].value=x", "missing property 'name'"),
        ("metrics.alerts.stuckSeconds=1h", "got string, want integer"),
        ("metrics.alerts.runbookUrl=docs", "does not match pattern"),
    ] {
        let error = render(&case.plane().helm, &["--set", value]).await;
        let error = error.err().map(|error| format!("{error:#}"));
        let is_refused = error.as_ref().is_some_and(|error| error.contains(reason));
        ensure!(is_refused, "{value}: {error:?}");
    }
    Ok(())
}

#[e2e::test]
async fn alerts_have_the_thresholds_and_runbooks_of_the_values(case: &mut Case) -> Result<()> {
    let values = "metrics.alerts.enabled=true,metrics.alerts.stuckSeconds=2400,\
        metrics.alerts.hookWaitSeconds=10800,metrics.alerts.availablePercent=95,\
        metrics.alerts.runbookUrl=https://example.com/operations.md";
    let rendered = object(case, "PrometheusRule", values).await?;
    let rules = rendered["spec"]["groups"][0]["rules"].as_array();
    let rules = rules.context("no rules")?;
    let text = rendered.to_string();
    for (threshold, count) in [
        ("> 2400 # metrics.alerts.stuckSeconds", 3),
        ("<= 10800 # metrics.alerts.hookWaitSeconds", 1),
        ("> 10800 # metrics.alerts.hookWaitSeconds", 3),
        ("* 95 # metrics.alerts.availablePercent", 1),
    ] {
        let found = text.matches(threshold).count();
        ensure!(found == count, "{threshold} occurs {found} times: {text}");
    }
    let operations = std::fs::read_to_string(repository().join("docs/operations.md"))?;
    let headings = operations.lines().filter_map(|it| it.strip_prefix("## "));
    let anchors: Vec<String> =
        headings.map(|it| it.to_lowercase().replace('\'', "").replace(' ', "-")).collect();
    for rule in rules {
        let url = rule["annotations"]["runbook_url"].as_str();
        let anchor = url.and_then(|url| url.strip_prefix("https://example.com/operations.md#"));
        let exists = anchor.is_some_and(|it| anchors.iter().any(|anchor| anchor == it));
        ensure!(exists, "{rule:#}");
    }
    let rules = case.folder().join("rules.yaml");
    std::fs::write(&rules, rendered["spec"].to_string())?;
    let mut find = Command::new(repository().join("e2e/cluster/prometheus.sh"));
    let prometheus = run(&mut find, "").await?;
    let promtool = Path::new(prometheus.trim()).with_file_name("promtool");
    run(Command::new(promtool).args(["check", "rules"]).arg(&rules), "").await?;
    Ok(())
}

/// Tests a packaged chart, which has no access to the repository.
#[e2e::test]
async fn the_command_in_the_notes_creates_a_workload(case: &mut Case) -> Result<()> {
    let folder = case.folder().join("packaged");
    std::fs::create_dir_all(&folder)?;
    let mut package = helm(&case.plane().helm);
    package.args(["package", CHART, "--destination"]).arg(&folder);
    run(&mut package, "").await?;
    let values =
        format!("crds.install=false,fullnameOverride=notes,watchNamespace={}", case.namespace);
    let mut install = Command::new(&case.plane().helm);
    install.args(["install", "gamekeeper", "gamekeeper-0.1.0.tgz", "--dry-run=client"]);
    install.args(["--set", &values]);
    install.env("KUBECONFIG", &case.plane().kubeconfig);
    let printed = run(install.current_dir(&folder), "").await?;
    let (_, notes) = printed.split_once("NOTES:").context("no notes")?;
    let start = notes.find("kubectl apply").context("no command")?;
    let end = notes.find("\nEND\n").context("the command does not end")?;
    let shell = Shell::admin(case.plane()).await?;
    let mut command = shell.command(&format!("{}\nEND\n", &notes[start..end]));
    let applied = run_unchecked(command.current_dir(&folder)).await?;
    ensure!(applied.stdout.contains("hello created"), "{applied:?}");
    let ready = ["wait", "gamedeployment/hello", "--for=condition=Ready", "--timeout=300s"];
    case.kubectl(&ready).await?;
    Ok(())
}

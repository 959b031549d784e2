//! Without a SidecarSet, the support for SidecarSets costs nothing.

use anyhow::{Result, ensure};
use e2e::addons::webhook::Webhook;
use e2e::case::Case;
use e2e::workload::manifest::{Game, hook_template};
use judge::Counts;
use serde_json::{Value, json};

e2e::tests![without_a_set_the_operator_writes_as_if_sets_were_disabled];

/// The prefix of all annotations about sidecars.
const SIDECAR_ANNOTATIONS: &str = "sidecars.gamekeeper.tkex.tencent.com/";
/// The annotation of pods whose game is not their first container.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Resources that are written equally often in each run.
const FIXED: [&str; 4] = ["pods", "pods/status", "hookruns", "controllerrevisions"];
/// Kinds that are watched only if there is a set, as they are labeled in the metrics.
const KINDS_FOR_SETS: [&str; 2] = ["{kind=\"Namespace\"}", "{kind=\"SidecarSetRevision\"}"];

async fn without_a_set_the_operator_writes_as_if_sets_were_disabled(case: &mut Case) -> Result<()> {
    case.apply(hook_template("test", &case.hooks.url("/")))
        .await?;
    // The chart's default: SidecarSets are enabled, and the webhooks for them are installed.
    let installed = Webhook::install(case, "2160h").await?;
    installed.until_called(case).await?;
    let enabled = run_lifecycle(case).await?;
    installed.remove(case).await?;
    case.operator.terminate().await?;
    let mut plain = case.prepare_operator("plain").await?;
    plain.add_args(vec!["--sidecar-sets=false".to_owned()]);
    case.operator = plain;
    case.operator.start().await?;
    let disabled = run_lifecycle(case).await?;
    ensure!(
        enabled == disabled,
        "enabled: {enabled:#?}\ndisabled: {disabled:#?}"
    );
    Ok(())
}

/// Creates, scales, updates and deletes a workload while a pod of another controller exists. Returns the operator's
/// writes.
async fn run_lifecycle(case: &Case) -> Result<Counts> {
    let before = writes(case)?;
    let labels = json!({"app": "other"});
    case.apply(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "other"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "web:v1"}]},
            },
        },
    }))
    .await?;
    case.apply(Game::in_place(2).max_unavailable(1).pre_inplace("test"))
        .await?;
    case.until_settled(2).await?;
    case.scale(3).await?;
    case.until_settled(3).await?;
    case.set_image("game:v2").await?;
    case.until_settled(3).await?;
    case.eventually("all pods exist", async || {
        let pods = case.list("pods").await?;
        ensure!(pods.len() == 4, "{} pods", pods.len());
        pods.iter().try_for_each(ensure_no_sidecars)
    })
    .await?;
    let cached = cached_objects(case).await?;
    let has_game_pods = cached.iter().any(|it| it.ends_with("{kind=\"Pod\"} 3.0"));
    ensure!(has_game_pods, "{cached:#?}");
    // Neither namespaces nor revisions of sets are watched.
    let is_for_sets = |it: &String| KINDS_FOR_SETS.iter().any(|kind| it.contains(kind));
    let mut set_lines = cached.iter().filter(|it| is_for_sets(it));
    ensure!(set_lines.all(|it| it.ends_with(" 0.0")), "{cached:#?}");
    case.kubectl(&["delete", "--wait", &case.workload(), "deployment/other"])
        .await?;
    case.eventually("all pods are deleted", async || {
        let pods = case.list("pods").await?;
        ensure!(pods.is_empty(), "{} pods", pods.len());
        Ok(())
    })
    .await?;
    let mut writes = writes(case)?.since(&before);
    // Which writes conflict depends on timing.
    writes
        .0
        .retain(|kind, _| kind.code < 300 || kind.resource.starts_with("sidecarsets"));
    // So does how often a status or an event is written, but not whether it is written at all.
    for (kind, count) in &mut writes.0 {
        if !FIXED.contains(&kind.resource.as_str()) {
            *count = 1;
        }
    }
    Ok(writes)
}

/// The operator's writes to objects in the test's namespace and to cluster-scoped ones. Periodic writes are left out:
/// those to its lease, and those of its webhook's certificates, which API servers must trust even if there is no set.
fn writes(case: &Case) -> Result<Counts> {
    let mut events = case.plane().audit.writes("")?;
    events.extend(case.plane().audit.writes(&case.namespace)?);
    let operator = case.operator.username();
    Ok(Counts::of(&events, |event| {
        let resource = event.resource();
        let is_periodic = ["leases", "secrets"].contains(&resource)
            || resource.ends_with("webhookconfigurations");
        event.user.username == operator && !is_periodic
    }))
}

/// Checks that a pod has one container and no trace of sidecars.
fn ensure_no_sidecars(pod: &Value) -> Result<()> {
    let annotations = pod["metadata"]["annotations"].as_object();
    let mut keys = annotations.into_iter().flatten().map(|(key, _)| key);
    let is_marked =
        keys.any(|key| key.starts_with(SIDECAR_ANNOTATIONS) || key == DEFAULT_CONTAINER);
    let containers = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    let is_alone = containers == 1 && pod["spec"]["initContainers"].is_null();
    let is_injected = pod["spec"].to_string().contains("IS_INJECTED");
    ensure!(!is_marked && is_alone && !is_injected, "{pod:#}");
    Ok(())
}

/// The lines of the operator's metrics about its caches.
async fn cached_objects(case: &Case) -> Result<Vec<String>> {
    let (_, metrics) = case.operator.get("/metrics").await?;
    let lines = metrics.lines();
    let lines = lines.filter(|it| it.starts_with("gamekeeper_cached_objects{"));
    Ok(lines.map(str::to_owned).collect())
}

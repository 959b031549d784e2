//! Without a SidecarSet, the support for SidecarSets costs nothing.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use e2e::addons::webhook::Webhook;
use e2e::case::Case;
use e2e::workload::manifest::{Game, hook_template};
use jiff::Timestamp;
use judge::{Counts, Event, WriteKind};
use serde_json::{Value, json};

/// The prefix of all annotations about sidecars.
const SIDECAR_ANNOTATIONS: &str = "sidecars.gamekeeper.tkex.tencent.com/";
/// The annotation of pods whose game is not their first container.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Resources that are written equally often in each run.
const FIXED: [&str; 4] = ["pods", "pods/status", "hookruns", "controllerrevisions"];
/// Kinds that are always watched, as they are labeled in the metrics.
const WATCHED: [&str; 8] = [
    "GameDeployment",
    "GameStatefulSet",
    "HookRun",
    "HookTemplate",
    "Pod",
    "ControllerRevision",
    "Node",
    "PersistentVolumeClaim",
];

#[e2e::test]
async fn without_a_set_the_operator_writes_as_if_sets_were_disabled(case: &mut Case) -> Result<()> {
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    // The chart's default: SidecarSets are enabled, and the webhooks for them are installed.
    let installed = Webhook::install(case, "2160h").await?;
    installed.until_called(case).await?;
    // Neither namespaces nor revisions of sets are watched before there is a set.
    let enabled = run_lifecycle(case, &[&WATCHED[..], &["SidecarSet"]].concat()).await?;
    installed.remove(case).await?;
    case.operator.terminate().await?;
    let mut plain = case.prepare_operator("plain").await?;
    plain.add_args(vec!["--sidecar-sets=false".to_owned()]);
    case.operator = plain;
    case.operator.start().await?;
    let disabled = run_lifecycle(case, &WATCHED).await?;
    let differences = differences(&enabled, &disabled);
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

/// Creates, scales, updates and deletes a workload while a pod of another controller exists. Checks which kinds are
/// watched, and returns the operator's writes.
async fn run_lifecycle(case: &Case, watched: &[&str]) -> Result<Vec<Event>> {
    let started = Timestamp::now();
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
    case.apply(Game::in_place(2).max_unavailable(1).pre_inplace("test")).await?;
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
    let kinds = cached.iter().filter_map(|it| it.split('"').nth(1));
    ensure!(kinds.eq(watched.iter().copied()), "{cached:#?}");
    case.kubectl(&["delete", "--wait", &case.workload(), "deployment/other"]).await?;
    case.eventually("all pods are deleted", async || {
        let pods = case.list("pods").await?;
        ensure!(pods.is_empty(), "{} pods", pods.len());
        Ok(())
    })
    .await?;
    let mut writes = writes(case)?;
    writes.retain(|write| write.received >= started);
    Ok(writes)
}

/// The operator's writes to objects in the test's namespace and to cluster-scoped ones. Periodic writes are left out:
/// those to its lease, and those of its webhook's certificates, which API servers must trust even if there is no set.
fn writes(case: &Case) -> Result<Vec<Event>> {
    let mut events = case.plane().audit.writes("")?;
    events.extend(case.plane().audit.writes(&case.namespace)?);
    let operator = case.operator.username();
    events.retain(|event| {
        let resource = event.resource();
        let is_periodic = ["leases", "secrets"].contains(&resource)
            || resource.ends_with("webhookconfigurations");
        event.user.username == operator && !is_periodic
    });
    Ok(events)
}

/// The kinds of writes whose counts differ, and then these writes, one per line.
fn differences(enabled: &[Event], disabled: &[Event]) -> Vec<String> {
    let counts = [enabled, disabled].map(|writes| Counts::of(writes, |_| true));
    let kinds: BTreeSet<WriteKind> = [enabled, disabled]
        .into_iter()
        .flatten()
        .map(WriteKind::of)
        .filter(|kind| comparable(kind, &counts[0]) != comparable(kind, &counts[1]))
        .collect();
    let mut lines: Vec<String> = Vec::new();
    for kind in &kinds {
        let [enabled, disabled] = counts.each_ref().map(|counts| counts.kind(kind));
        lines.push(format!("{kind}: {enabled} with sets enabled, {disabled} with sets disabled"));
    }
    for (sets, writes) in [("enabled", enabled), ("disabled", disabled)] {
        let different = writes.iter().filter(|write| kinds.contains(&WriteKind::of(write)));
        lines.extend(different.map(|write| {
            let name = write.object_ref.as_ref().map_or("", |it| &it.name);
            let (received, verb, uri) = (write.received, &write.verb, &write.uri);
            format!("{sets}: {received} {verb} {uri} ({name})")
        }));
    }
    lines
}

/// How many writes of a kind there are, as far as that does not depend on timing.
fn comparable(kind: &WriteKind, counts: &Counts) -> usize {
    let is_conflict = kind.code >= 300 && !kind.resource.starts_with("sidecarsets");
    match counts.kind(kind) {
        _ if is_conflict => 0,
        count if FIXED.contains(&kind.resource.as_str()) => count,
        // How often a status or an event is written depends on timing, but not whether it is written at all.
        count => count.min(1),
    }
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

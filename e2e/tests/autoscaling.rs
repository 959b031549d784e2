//! Autoscalers: the HorizontalPodAutoscaler of kube-controller-manager, which reads a metric from an API on this
//! machine.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::{Answer, example_answer};
use e2e::servers::metrics_api::MetricsApi;
use e2e::workload::manifest::{Game, retrying_hook_template};
use e2e::workload::view::View;
use judge::object::text;
use serde_json::{Value, json};

/// The metric: as many pods as the players need.
const NEEDED: &str = "pods-needed";
/// How often the autoscaler looks at a metric before a test believes that it does not act on it.
const LOOKS: usize = 4;

/// An autoscaler of the workload under test, for at most 40 pods. Its target is one unit of [`NEEDED`] for each pod. It
/// scales in without delay.
fn autoscaler(case: &Case) -> Value {
    let workload = case.workload();
    let (kind, name) = workload.split_once('/').unwrap_or_default();
    let kind = match kind {
        "gamestatefulset" => "GameStatefulSet",
        _ => "GameDeployment",
    };
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "minReplicas": 1, "maxReplicas": 40,
            "scaleTargetRef": {"apiVersion": "tkex.tencent.com/v1alpha1", "kind": kind, "name": name},
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            "metrics": [{"type": "External", "external": {
                "metric": {"name": NEEDED}, "target": {"type": "AverageValue", "averageValue": "1"},
            }}],
        },
    })
}

#[e2e::test]
async fn an_autoscaler_does_not_call_deletions_off(case: &mut Case) -> Result<()> {
    let metrics = MetricsApi::register(case).await?;
    let mut played = play(case, &metrics, Game::rolling(40)).await;
    if played.is_ok() {
        case.use_stateful_set();
        played = play(case, &metrics, Game::parallel(40)).await;
    }
    metrics.unregister(case).await?;
    played
}

fn waiting(view: &View) -> usize {
    let pods = view.pods.iter();
    pods.filter(|pod| pod.waits_for_hook()).count()
}

/// Six of 40 pods wait for their hook. A metric of 36 is within 10 % of both numbers, so the autoscaler answers with the
/// number of pods that it believes to exist.
async fn play(case: &Case, metrics: &MetricsApi, game: Game) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(retrying_hook_template("test", &case.hooks.url("/"))).await?;
    metrics.set(NEEDED, 40);
    case.apply(game.pre_delete("test")).await?;
    case.until_settled(40).await?;
    case.apply(autoscaler(case)).await?;
    until_read(case, metrics).await?;

    metrics.set(NEEDED, 34);
    let has_six_waiting = |view: &View| view.number("/spec/replicas") == 34 && waiting(view) == 6;
    case.until("six pods wait for their hook", has_six_waiting).await?;
    metrics.set(NEEDED, 36);
    until_read(case, metrics).await?;
    let view = case.view().await?;
    view.ensure(has_six_waiting(&view) && view.pods.len() == 40)?;
    shows_what_serves(case).await?;

    // Beyond the tolerance, the metric decides.
    metrics.set(NEEDED, 39);
    case.until("five deletions are called off", |view| {
        view.number("/spec/replicas") == 39 && waiting(view) == 1
    })
    .await?;
    metrics.set(NEEDED, 30);
    case.until("ten pods wait", |view| waiting(view) == 10).await?;
    case.hooks.answer("/", example_answer());
    case.until_settled(30).await?;
    case.kubectl(&["delete", "hpa", "--all"]).await?;
    Ok(())
}

/// Waits until the autoscaler has looked at the metric several times since it was set.
async fn until_read(case: &Case, metrics: &MetricsApi) -> Result<()> {
    case.eventually("the autoscaler has read the metric", async || {
        let reads = metrics.reads(NEEDED);
        ensure!(reads >= LOOKS, "{reads} times");
        Ok(())
    })
    .await
}

/// kubectl shows the 34 pods that are not to be removed.
async fn shows_what_serves(case: &Case) -> Result<()> {
    let workload = case.workload();
    let (_, name) = workload.split_once('/').unwrap_or_default();
    let scale = case.table(&["get", &workload, "--subresource=scale"]).await?;
    ensure!(scale.column("DESIRED")? == ["34"] && scale.column("AVAILABLE")? == ["34"]);
    let hpa = case.table(&["get", "hpa", name]).await?;
    ensure!(hpa.column("REPLICAS")? == ["34"]);
    let wide = case.table(&["get", &workload, "-o", "wide"]).await?;
    ensure!(wide.column("ACTIVE")? == ["34"] && wide.column("TOTAL")? == ["40"]);
    let found = case.get(&format!("horizontalpodautoscalers/{name}")).await?;
    let average = text(&found, "/status/currentMetrics/0/external/current/averageValue");
    ensure!(average == "1059m", "{average} a pod");
    Ok(())
}

//! GameStatefulSets: the range of ordinals, and the order in which pods are created and deleted.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::SET;
use e2e::workload::manifest::Game;
use e2e::workload::table::WORKLOAD_COLUMNS;
use e2e::workload::view::View;
use jiff::Timestamp;
use judge::object::text;
use serde_json::json;

/// The names of the pods, in the order in which the operator created or deleted them (`verb`).
pub fn names_in_order(case: &Case, verb: &str) -> Result<Vec<String>> {
    let writes = writes_in_order(case)?.into_iter();
    let writes = writes.filter(|(found, _)| found == verb);
    Ok(writes.map(|(_, name)| name).collect())
}

/// The operator's creations and deletions of pods in order: the verb, and the name of the pod. They come from the audit
/// log, because polls can miss a state that does not last.
pub fn writes_in_order(case: &Case) -> Result<Vec<(String, String)>> {
    let events = case.events()?.into_iter();
    let pod_writes = events.filter(|event| {
        let object = event.object_ref.clone().unwrap_or_default();
        let is_pod = object.resource == "pods" && object.subresource.is_empty();
        let is_creation_or_deletion = ["create", "delete"].contains(&event.verb.as_str());
        is_creation_or_deletion && is_pod && event.succeeded() && event.is_write()
    });
    let verb_and_name = |event: judge::Event| {
        let sent = event.request_object.unwrap_or_default();
        let sent_name = sent.pointer("/metadata/name").and_then(|it| it.as_str());
        let sent_name = sent_name.map(str::to_owned);
        let name = sent_name.or_else(|| event.object_ref.map(|it| it.name));
        (event.verb, name.unwrap_or_default())
    };
    Ok(pod_writes.map(verb_and_name).collect())
}

fn names(ordinals: impl IntoIterator<Item = i64>) -> Vec<String> {
    let name = |ordinal| format!("{SET}-{ordinal}");
    ordinals.into_iter().map(name).collect()
}

/// Whether at most one pod is not ready.
fn has_at_most_one_unready(view: &View) -> bool {
    view.pods.iter().filter(|pod| !pod.is_ready()).count() <= 1
}

#[e2e::test]
async fn pods_are_created_upward_and_deleted_downward_one_at_a_time(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let game = Game::ordered(4)
        .annotated("stage.gamekeeper/ready-seconds", "1")
        .annotated("stage.gamekeeper/stop-seconds", "1");
    case.apply(game).await?;
    case.until("four pods are ready, created one at a time", |view| {
        assert!(has_at_most_one_unready(view), "{}", view.summary());
        view.counts() == [4; 5]
    })
    .await?;
    ensure!(names_in_order(case, "create")? == names(0..4));
    case.scale(1).await?;
    case.until("one pod is left, and the others were deleted one at a time", |view| {
        let terminating = view.pods.iter().filter(|pod| pod.is_terminating());
        assert!(terminating.count() <= 1, "{}", view.summary());
        view.counts() == [1; 5] && view.pods.len() == 1
    })
    .await?;
    ensure!(names_in_order(case, "delete")? == names([3, 2, 1]));
    Ok(())
}

#[e2e::test]
async fn parallel_pods_are_created_and_deleted_together(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    // Long enough for a slow machine to show that all pods terminate.
    let game = Game::parallel(6).annotated("stage.gamekeeper/stop-seconds", "30");
    case.apply(with_warm_up_gate(game)).await?;
    case.until("six pods exist at the same time, none of them ready", |view| {
        view.pods.len() == 6 && view.pods.iter().all(|pod| !pod.is_ready())
    })
    .await?;
    for ordinal in 0..6 {
        warm_up(case, ordinal).await?;
    }
    case.until_settled(6).await?;
    case.scale(0).await?;
    case.until("six pods terminate at the same time", |view| {
        view.pods.len() == 6 && view.pods.iter().all(|pod| pod.is_terminating())
    })
    .await?;
    case.until_counts([0; 5]).await?;
    Ok(())
}

/// Adds a readiness gate `warmed-up`, which the test opens with [`warm_up`].
fn with_warm_up_gate(game: Game) -> Game {
    let gates = json!([{"conditionType": "warmed-up"}]);
    game.set("/spec/template/spec/readinessGates", gates)
}

async fn warm_up(case: &Case, ordinal: i64) -> Result<()> {
    set_gate(case, ordinal, "True").await
}

async fn cool_down(case: &Case, ordinal: i64) -> Result<()> {
    set_gate(case, ordinal, "False").await
}

async fn set_gate(case: &Case, ordinal: i64, status: &str) -> Result<()> {
    let patch = json!({"status": {"conditions": [{"type": "warmed-up", "status": status}]}});
    let (name, patch) = (format!("{SET}-{ordinal}"), format!("-p={patch}"));
    let args = ["patch", "pod", &name, "--subresource=status", "--type=strategic", &patch];
    case.kubectl(&args).await?;
    Ok(())
}

#[e2e::test]
async fn ordered_scaling_halts_at_an_unhealthy_pod(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(with_warm_up_gate(Game::ordered(3))).await?;
    for ordinal in 0..3 {
        let waited_for = format!("pod {ordinal} exists");
        let exists = |view: &View| view.pods.len() as i64 == ordinal + 1;
        case.until(&waited_for, exists).await?;
        case.consistently("no further pod exists", 1, exists).await?;
        warm_up(case, ordinal).await?;
    }
    case.until_counts([3; 5]).await?;
    cool_down(case, 1).await?;
    case.until_counts([3, 3, 2, 2, 3]).await?;
    case.scale(5).await?;
    case.consistently("the scale-out halts", 2, |view| view.pods.len() == 3).await?;
    case.scale(2).await?;
    case.consistently("the scale-in halts", 2, |view| view.pods.len() == 3).await?;
    warm_up(case, 1).await?;
    let view = case.until_counts([2; 5]).await?;
    view.ensure(view.shape() == "0:v1 1:v1")
}

#[e2e::test]
async fn parallel_scaling_does_not_wait_for_an_unhealthy_pod(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(with_warm_up_gate(Game::parallel(3))).await?;
    case.until_counts([3, 3, 0, 0, 3]).await?;
    case.scale(5).await?;
    case.until_counts([5, 5, 0, 0, 5]).await?;
    case.scale(1).await?;
    let view = case.until_counts([1, 1, 0, 0, 1]).await?;
    view.ensure(view.shape() == "0:v1")
}

#[e2e::test]
async fn a_predecessor_is_recreated_despite_an_unhealthy_pod(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(with_warm_up_gate(Game::ordered(2))).await?;
    case.until("the first pod exists", |view| view.pods.len() == 1).await?;
    warm_up(case, 0).await?;
    let before = case.until("both pods exist", |view| view.pods.len() == 2).await?;
    let first = before.pods[0].uid();
    case.delete_pod(before.pods[0].name()).await?;
    case.until("the first pod is recreated", |view| {
        view.pods.len() == 2 && view.pods[0].uid() != first
    })
    .await?;
    warm_up(case, 0).await?;
    warm_up(case, 1).await?;
    case.until_counts([2; 5]).await?;
    Ok(())
}

#[e2e::test]
async fn ordinals_start_at_the_given_number(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(2).set("/spec/ordinals/start", 3)).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.shape() == "3:v1 4:v1")?;
    let index = "apps.kubernetes.io/pod-index";
    view.ensure(view.pods[0].label(index) == Some("3"))?;
    case.replace("/spec/ordinals/start", 4).await?;
    let view = case.until("the range has moved", |view| view.shape() == "4:v1 5:v1").await?;
    let kept = view.pod(&format!("{SET}-4"))?.uid().to_owned();
    case.replace("/spec/ordinals/start", 0).await?;
    let view = case
        .until("the range has moved back", |view| {
            view.shape() == "0:v1 1:v1" && view.pods.len() == 2
        })
        .await?;
    view.ensure(view.pods.iter().all(|pod| pod.uid() != kept))
}

#[e2e::test]
async fn min_ready_seconds_delay_the_next_pod(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(2).set("/spec/minReadySeconds", 8)).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.number("/status/availableReplicas") == 2)?;
    let conditions = view.pods[0].0["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|it| it["type"] == "Ready");
    let ready = ready.context("the first pod has no condition Ready")?;
    let ready: Timestamp = text(ready, "/lastTransitionTime").parse()?;
    let created: Timestamp = text(&view.pods[1].0, "/metadata/creationTimestamp").parse()?;
    // Both times are rounded down to whole seconds, and the operator counts from the first one.
    let waited = created.duration_since(ready).as_secs();
    ensure!(waited >= 8, "the second pod was created after {waited} s");
    Ok(())
}

#[e2e::test]
async fn kubectl_prints_and_scales_a_set(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(1)).await?;
    case.scale(3).await?;
    case.until_settled(3).await?;
    let table = case.table(&["get", "gamestatefulset"]).await?;
    ensure!(table.headings == WORKLOAD_COLUMNS, "{table:?}");
    ensure!(table.lines[0][..6] == [SET, "3", "3", "3", "3", "3"], "{table:?}");
    let wait = ["wait", "--for=condition=Ready", "--timeout=300s", "gsts", SET];
    case.kubectl(&wait).await?;
    let view = case.view().await?;
    let current = view.text("/status/currentRevision");
    view.ensure(!current.is_empty() && current == view.text("/status/updateRevision"))?;
    view.ensure(view.number("/status/currentReplicas") == 3)?;
    let scale = case.get(&format!("gamestatefulsets/{SET}/scale")).await?;
    ensure!(scale["status"]["selector"] == format!("app={SET}"), "{scale}");
    ensure!(scale["status"]["replicas"] == 3, "{scale}");
    Ok(())
}

/// An autoscaler's bounds apply even without metrics.
#[e2e::test]
async fn an_autoscaler_scales_a_set(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::parallel(2)).await?;
    case.until_settled(2).await?;
    let autoscaler = |least: i64, most: i64| {
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": SET},
            "spec": {
                "minReplicas": least, "maxReplicas": most,
                "scaleTargetRef": {
                    "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameStatefulSet", "name": SET,
                },
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
                }}],
            },
        })
    };
    case.apply(autoscaler(4, 6)).await?;
    case.until_settled(4).await?;
    case.apply(autoscaler(1, 3)).await?;
    let view = case.until_settled(3).await?;
    view.ensure(view.shape() == "0:v1 1:v1 2:v1")
}

#[e2e::test]
async fn a_set_scales_to_zero_and_back(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(2)).await?;
    let before = case.until_settled(2).await?;
    case.scale(0).await?;
    // The status does not count Terminating pods.
    let view = case
        .until("all pods are deleted", |view| {
            view.counts() == [0; 5] && view.is_observed() && view.pods.is_empty()
        })
        .await?;
    let revision = "/status/currentRevision";
    view.ensure(view.text(revision) == before.text(revision))?;
    case.scale(2).await?;
    case.until_settled(2).await?;
    Ok(())
}

//! What users of bk-bcs rely on besides its fields: hooks that poll, hooks that drain traffic at a load balancer, and
//! port pools. Also a default and a rounding that differ from those of bk-bcs.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::manifest;
use e2e::servers::hook_server::Answer;
use e2e::workload::manifest::Game;
use e2e::workload::view::{Run, View};
use judge::object::{annotation, is_true, text};
use serde_json::{Value, json};

use crate::batches::versions_of_pods;

/// A HookTemplate of `e2e/manifests/good/as-bk-bcs.yaml`.
fn template(name: &str) -> Result<Value> {
    let mut objects = manifest("e2e/manifests/good/as-bk-bcs.yaml")?.into_iter();
    let is_wanted = |it: &Value| it["kind"] == "HookTemplate" && it["metadata"]["name"] == name;
    let found = objects.find(is_wanted);
    found.with_context(|| format!("no HookTemplate {name}"))
}

/// Scales a workload to zero. Its hook makes up to `count` measurements, which fail until the server's answer changes.
async fn scale_to_zero_with_polling_hook(case: &Case, count: i64) -> Result<()> {
    let mut polling = template("players-gone")?;
    let metric = &mut polling["spec"]["metrics"][0];
    ensure!(metric["successfulLimit"] == 1 && metric["failureLimit"].is_null(), "{metric}");
    metric["count"] = json!(count);
    metric["interval"] = json!("1s");
    metric["provider"]["web"]["url"] = json!(case.hooks.url("/hook"));
    case.hooks.answer("/hook", Answer::Json(json!({"result": 0})));
    case.apply(polling).await?;
    case.apply(Game::in_place(1).pre_delete("players-gone")).await?;
    case.until_settled(1).await?;
    case.scale(0).await
}

/// Whether the pod still exists, and at least this many measurements of its hook have failed.
fn is_kept_after_failures(view: &View, times: i64) -> bool {
    let has_failed =
        |run: &Run| run.0["status"]["metricResults"][0]["failed"].as_i64() >= Some(times);
    view.pods.len() == 1 && view.runs.iter().any(has_failed)
}

#[e2e::test]
async fn a_polling_hook_keeps_its_pod_until_it_succeeds(case: &mut Case) -> Result<()> {
    scale_to_zero_with_polling_hook(case, 100).await?;
    case.until("failures do not end the hook", |view| {
        is_kept_after_failures(view, 3) && view.phases("PreDelete") == ["Running"]
    })
    .await?;
    case.hooks.answer("/hook", Answer::Json(json!({"result": 1})));
    case.until_settled(0).await?;
    Ok(())
}

#[e2e::test]
async fn a_hook_that_ends_without_success_keeps_its_pod(case: &mut Case) -> Result<()> {
    scale_to_zero_with_polling_hook(case, 2).await?;
    case.until("the hook ends", |view| {
        is_kept_after_failures(view, 2) && view.phases("PreDelete") == ["Inconclusive"]
    })
    .await?;
    case.consistently("the pod is kept", 3, |view| view.pods.len() == 1).await
}

#[e2e::test]
async fn hooks_drain_and_restore_traffic_at_a_load_balancer(case: &mut Case) -> Result<()> {
    const WEIGHT: &str = "networkextension.bkbcs.tencent.com/clb-weight";
    const READY: &str = "networkextension.bkbcs.tencent.com/clb-weight-ready";
    let mut traffic_gone = template("traffic-gone")?;
    // The hook must not end before the test reports that traffic is gone.
    traffic_gone["spec"]["metrics"][1]["count"] = json!(600);
    for template in [traffic_gone, template("back-in-service")?] {
        case.apply(template).await?;
    }
    let game = Game::in_place(1).max_unavailable(1);
    let game = game.pre_inplace("traffic-gone").post_inplace("back-in-service");
    case.apply(game).await?;
    case.until_settled(1).await?;
    case.set_image("game:v2").await?;
    let view = case
        .until("the hook sets the weight to 0", |view| {
            view.pods[0].annotation(WEIGHT) == Some("0") && view.pods[0].waits_for_hook()
        })
        .await?;
    case.consistently("the pod waits for the load balancer", 2, |view| {
        view.ready_with("game:v1") == 1
    })
    .await?;
    let ready = format!("{READY}=true");
    case.kubectl(&["annotate", "pod", view.pods[0].name(), &ready]).await?;
    let view = case.until_settled(1).await?;
    view.ensure(view.ready_with("game:v2") == 1)?;
    let deleting = view.pods[0].annotation(judge::names::DELETING);
    ensure!(deleting == Some("false"), "{deleting:?}");
    // The value "false" does not mark the pod, so the next update runs its hook before it changes anything.
    let removal = format!("{READY}-");
    case.kubectl(&["annotate", "pod", view.pods[0].name(), &removal]).await?;
    case.set_image("game:v3").await?;
    case.until("the next hook marks the pod again", |view| {
        view.pods[0].waits_for_hook() && view.phases("PreInplace") == ["Running"]
    })
    .await?;
    case.kubectl(&["annotate", "pod", view.pods[0].name(), &ready]).await?;
    let view = case.until_settled(1).await?;
    view.ensure(view.ready_with("game:v3") == 1 && is_true(&view.pods[0].0, "Ready"))
}

#[e2e::test]
async fn dry_runs_allocate_no_ports_from_pools(case: &mut Case) -> Result<()> {
    const POOLS: &str = "portpools.networkextension.bkbcs.tencent.com";
    let game = Game::rolling(1).annotated(POOLS, "matches TCP 8000 2");
    case.apply(game).await?;
    case.until_settled(1).await?;
    case.set_image("game:v2").await?;
    case.until_settled(1).await?;
    let (mut dry_runs, mut pods) = (0, 0);
    for event in case.plane().audit.requests(&case.namespace)? {
        let is_created = event.verb == "create" && event.resource() == "pods";
        let succeeded = event.succeeded();
        let Some(pod) = event.request_object.filter(|_| is_created) else {
            continue;
        };
        let is_dry_run = event.uri.contains("dryRun=All");
        ensure!(
            annotation(&pod, POOLS).is_some() != is_dry_run,
            "{} of {}: {pod:#}",
            event.uri,
            text(&pod, "/metadata/name")
        );
        match is_dry_run {
            true => dry_runs += 1,
            // A creation may fail and be repeated, for example because the namespace has no service account yet.
            false => pods += usize::from(succeeded),
        }
    }
    ensure!(dry_runs > 0 && pods == 2, "{dry_runs} dry runs, {pods} pods");
    Ok(())
}

#[e2e::test]
async fn by_default_a_fifth_of_the_pods_is_updated_at_a_time(case: &mut Case) -> Result<()> {
    case.apply(Game::rolling(10).annotated("stage.gamekeeper/ready-seconds", "2")).await?;
    case.until_settled(10).await?;
    case.set_image("game:v2").await?;
    case.until_settled(10).await?;
    let versions = versions_of_pods(case)?;
    let (mut active, mut ready) = (BTreeSet::new(), BTreeSet::new());
    let (mut fewest_ready, mut most_pods) = (usize::MAX, 0);
    let mut has_begun = false;
    for pod in &versions {
        // The kubelet takes a moment to remove a deleted pod, and its replacement may exist by then.
        match pod.is_terminating() {
            true => active.remove(pod.name()),
            false => active.insert(pod.name()),
        };
        match pod.is_ready() && !pod.is_terminating() {
            true => ready.insert(pod.name()),
            false => ready.remove(pod.name()),
        };
        most_pods = most_pods.max(active.len());
        has_begun |= ready.len() == 10;
        if has_begun {
            fewest_ready = fewest_ready.min(ready.len());
        }
    }
    ensure!(
        fewest_ready == 8 && most_pods == 10,
        "at least {fewest_ready} pods were ready, and there were at most {most_pods} pods"
    );
    Ok(())
}

#[e2e::test]
async fn a_percentage_partition_of_a_set_rounds_up(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let rolling = json!({"partition": "50%", "maxUnavailable": 5});
    let set = Game::parallel(5).set("/spec/updateStrategy/rollingUpdate", rolling);
    case.apply(set).await?;
    case.until_settled(5).await?;
    case.set_image("game:v2").await?;
    let shape = "0:v1 1:v1 2:v1 3:v2 4:v2";
    case.until("three of five pods keep their revision", |view| view.shape() == shape).await?;
    case.consistently("these pods are not updated", 2, |view| view.shape() == shape).await
}

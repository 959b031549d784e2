//! The examples in `docs/hooks.md`, each guarding the deletion of a pod, and the results of the example that it links.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::{manifest, repository};
use e2e::servers::hook_server::Answer;
use e2e::workload::manifest::Game;
use judge::object::text;
use serde_json::json;

use crate::run::{hook_run, status, until_phase};

/// Applies an example, with some text replaced, and a workload with this example as its PreDelete hook. Then scales the
/// workload to zero.
async fn scale_to_zero(
    case: &Case,
    provider: &str,
    name: &str,
    changes: &[(&str, &str)],
) -> Result<()> {
    let path = format!("examples/hooks/hook-template-{provider}.yaml");
    let mut example = std::fs::read_to_string(repository().join(path))?;
    for (from, to) in changes {
        ensure!(example.contains(from), "the example has no {from}");
        example = example.replace(from, to);
    }
    case.apply(example).await?;
    case.apply(Game::in_place(1).pre_delete(name)).await?;
    case.until_settled(1).await?;
    case.scale(0).await
}

/// Waits until this many measurements of the hook have failed. The pod must still exist.
async fn until_failures(case: &Case, failures: i64) -> Result<()> {
    case.until("the hook holds the pod", |view| {
        let has_failures = |run: &e2e::workload::view::Run| {
            let results = run.0["status"]["metricResults"].as_array();
            let mut results = results.into_iter().flatten();
            results.any(|result| result["failed"].as_i64() >= Some(failures))
        };
        view.pods.len() == 1 && view.runs.iter().any(has_failures)
    })
    .await?;
    Ok(())
}

#[e2e::test]
async fn the_web_example_waits_until_no_players_are_left(case: &mut Case) -> Result<()> {
    case.hooks.answer("/players", Answer::Json(json!({"online": 3})));
    let port = format!(":{}/", case.hooks.port());
    scale_to_zero(case, "web", "no-players", &[(":9091/", &port), ("10s", "1s")]).await?;
    until_failures(case, 2).await?;
    case.hooks.answer("/players", Answer::Json(json!({"online": 0})));
    case.until_settled(0).await?;
    Ok(())
}

#[e2e::test]
async fn the_prometheus_example_waits_until_the_pod_is_idle(case: &mut Case) -> Result<()> {
    let players = |value: &str| {
        Answer::Json(json!({"status": "success", "data": {
            "resultType": "vector", "result": [{"metric": {}, "value": [1.5, value]}],
        }}))
    };
    case.hooks.answer("/api/v1/query", players("2"));
    let server = case.hooks.url("");
    let changes = [("http://prometheus.monitoring:9090", server.as_str()), ("30s", "1s")];
    scale_to_zero(case, "prometheus", "idle-in-prometheus", &changes).await?;
    until_failures(case, 2).await?;
    case.hooks.answer("/api/v1/query", players("0"));
    case.until_settled(0).await?;
    Ok(())
}

#[e2e::test]
async fn the_kubernetes_example_waits_until_the_pod_is_drained(case: &mut Case) -> Result<()> {
    scale_to_zero(case, "kubernetes", "drained", &[("5s", "1s")]).await?;
    until_failures(case, 1).await?;
    let pod = case.view().await?.pods.remove(0).0;
    let drain = &pod["metadata"]["annotations"]["example.com/drain"];
    ensure!(drain == "true", "no drain annotation: {pod:#}");
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    case.kubectl(&["annotate", "pod", name, "example.com/drained=true"]).await?;
    case.until_settled(0).await?;
    Ok(())
}

#[e2e::test]
async fn the_job_example_waits_until_the_match_is_saved(case: &mut Case) -> Result<()> {
    scale_to_zero(case, "job", "match-saved", &[]).await?;
    // The Job is read from the audit log, because it is soon deleted with its run.
    case.eventually("the Job is created", async || {
        let mut writes = case.events()?;
        writes.retain(|it| it.verb == "create" && it.resource() == "jobs" && it.succeeded());
        let job = writes.first().and_then(|it| it.request_object.as_ref());
        let args = job.map(|job| &job["spec"]["template"]["spec"]["containers"][0]["args"]);
        ensure!(args.is_some_and(|args| args[0] == "--pod"), "{job:?}");
        Ok(())
    })
    .await?;
    // The judge checks that the pod was not deleted before its hook had succeeded.
    case.until_settled(0).await?;
    Ok(())
}

#[e2e::test]
async fn the_exec_example_waits_until_no_players_are_left(case: &mut Case) -> Result<()> {
    case.operator.terminate().await?;
    case.operator.allow_commands();
    case.operator.start().await?;
    let players = case.folder().join("players");
    std::fs::write(&players, "3\n")?;
    let command = format!("[cat, {}]", players.display());
    let changes = [("[/game/ctl, players, --count]", command.as_str()), ("10s", "1s")];
    scale_to_zero(case, "exec", "players-left", &changes).await?;
    until_failures(case, 2).await?;
    std::fs::write(&players, "0\n")?;
    case.until_settled(0).await?;
    Ok(())
}

/// Runs the metric of the example with a server of this test, which needs neither a CA nor a token.
#[e2e::test]
async fn the_example_in_doubt_passes_fails_or_measures_again(case: &mut Case) -> Result<()> {
    let documents = manifest("examples/features/hook-in-doubt.yaml")?;
    let template = documents.iter().find(|it| it["kind"] == "HookTemplate");
    let metric = &template.context("no HookTemplate")?["spec"]["metrics"][0];
    for state in ["idle", "ranked", "lobby"] {
        let path = format!("/{state}");
        case.hooks.answer(&path, Answer::Json(json!({"state": state})));
        let mut metric = metric.clone();
        metric["interval"] = json!("1s");
        let json_path = metric["provider"]["web"]["jsonPath"].take();
        metric["provider"] = json!({"web": {"url": case.hooks.url(&path), "jsonPath": json_path}});
        case.apply(hook_run(state, json!({"metrics": [metric]}))).await?;
    }
    for (state, phase, counter) in
        [("idle", "Successful", "successful"), ("ranked", "Failed", "failed")]
    {
        let ended = until_phase(case, state, phase).await?;
        let result = &ended["metricResults"][0];
        ensure!(result["count"] == 1 && result[counter] == 1, "{ended:#}");
    }
    case.eventually("an answer in doubt is measured again", async || {
        let running = status(case, "lobby").await?;
        let inconclusive = running["metricResults"][0]["inconclusive"].as_i64();
        let is_repeated = text(&running, "/phase") == "Running" && inconclusive >= Some(3);
        ensure!(is_repeated, "{running:#}");
        Ok(())
    })
    .await
}

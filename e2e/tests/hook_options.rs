//! Options of HookRuns: dry runs, measurement retention and TTL; and changes to templates and Secrets while
//! a run is active.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::Answer;
use e2e::workload::manifest::Game;
use judge::object::text;
use serde_json::{Value, json};

use crate::run::{hook_run, status, until_phase, web};

fn age(age: i64) -> Answer {
    Answer::Json(json!({"age": age}))
}

fn metric(case: &Case, name: &str, fields: Value) -> Value {
    let url = case.hooks.url(&format!("/{name}"));
    let mut metric = json!({
        "name": name,
        "successCondition": "asInt(result) > 30",
        "provider": {"web": {"url": url, "jsonPath": "{$.age}"}},
    });
    for (field, value) in fields.as_object().into_iter().flatten() {
        metric[field] = value.clone();
    }
    metric
}

#[e2e::test]
async fn a_dry_run_metric_is_shown_but_does_not_decide(case: &mut Case) -> Result<()> {
    case.hooks.answer("/trial-age", age(1));
    let metrics = json!([metric(case, "trial-age", json!({})), metric(case, "age", json!({}))]);
    for (run, rule) in [("tried", "trial-.*"), ("all", ".*")] {
        let spec = json!({"metrics": metrics, "dryRun": [{"metricName": rule}]});
        case.apply(hook_run(run, spec)).await?;
    }
    let tried = until_phase(case, "tried", "Successful").await?;
    let results = &tried["metricResults"];
    ensure!(results[0]["dryRun"] == true && results[0]["phase"] == "Failed", "{tried:#}");
    ensure!(results[1]["dryRun"].is_null() && results[1]["phase"] == "Successful", "{tried:#}");
    let all = until_phase(case, "all", "Successful").await?;
    ensure!(
        text(&all, "/message") == "all metrics are dry runs: none affects the result",
        "{all:#}"
    );
    Ok(())
}

#[e2e::test]
async fn measurement_retention_limits_the_measurements_of_a_run(case: &mut Case) -> Result<()> {
    let fields = json!({"count": 13, "interval": "1s"});
    let metrics = json!([
        metric(case, "few", fields.clone()),
        metric(case, "some", fields.clone()),
        metric(case, "many", fields),
    ]);
    let rules = json!([{"metricName": "few", "limit": 2}, {"metricName": "man.", "limit": 12}]);
    let spec = json!({"metrics": metrics, "measurementRetention": rules});
    case.apply(hook_run("kept", spec)).await?;
    let status = until_phase(case, "kept", "Successful").await?;
    for (index, kept) in [2, 10, 12].into_iter().enumerate() {
        let result = &status["metricResults"][index];
        let found = result["measurements"].as_array().map_or(0, Vec::len);
        ensure!(found == kept && result["count"] == 13, "{kept}: {result:#}");
    }
    Ok(())
}

#[e2e::test]
async fn a_ttl_deletes_a_run_unless_the_run_has_an_owner(case: &mut Case) -> Result<()> {
    case.hooks.answer("/failed", age(1));
    let ttl = json!({"secondsAfterSuccess": 2, "secondsAfterFailure": 3600});
    for name in ["passed", "failed"] {
        let mut run = web(case, name, json!({"successCondition": "asInt(result) > 30"}));
        run["spec"]["ttlStrategy"] = ttl.clone();
        case.apply(run).await?;
    }
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    case.apply(owner).await?;
    let owner = case.get("configmaps/owner").await?;
    let mut owned = web(case, "owned", json!({}));
    owned["spec"]["ttlStrategy"] = json!({"secondsAfterCompletion": 0});
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
        "uid": owner["metadata"]["uid"], "controller": true,
    }]);
    case.apply(owned).await?;
    case.eventually("the successful run is deleted", async || {
        ensure!(!case.hooks.calls("/passed").is_empty(), "no call");
        let runs = case.list("hookruns").await?;
        ensure!(runs.iter().all(|run| run["metadata"]["name"] != "passed"), "the run still exists");
        Ok(())
    })
    .await?;
    until_phase(case, "failed", "Failed").await?;
    until_phase(case, "owned", "Successful").await?;
    let others_exist = async || {
        status(case, "failed").await?;
        status(case, "owned").await?;
        Ok(())
    };
    let time = Duration::from_secs(2);
    e2e::wait::consistently("the other runs are kept", time, others_exist).await
}

#[e2e::test]
async fn a_run_keeps_its_copy_of_an_edited_template(case: &mut Case) -> Result<()> {
    let template = |path: &str| {
        let check = json!({
            "name": "age", "count": 4, "interval": "1s", "successCondition": "asInt(result) > 30",
            "provider": {"web": {"url": case.hooks.url(path), "jsonPath": "{$.age}"}},
        });
        json!({
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookTemplate",
            "metadata": {"name": "check"}, "spec": {"metrics": [check]},
        })
    };
    case.hooks.answer("/new", age(1));
    case.apply(template("/old")).await?;
    case.apply(Game::in_place(1).pre_delete("check")).await?;
    case.until_settled(1).await?;
    case.scale(0).await?;
    case.eventually("the run has started", async || {
        ensure!(!case.hooks.calls("/old").is_empty(), "no call");
        Ok(())
    })
    .await?;
    case.apply(template("/new")).await?;
    case.until_settled(0).await?;
    ensure!(case.hooks.calls("/old").len() == 4, "{} calls", case.hooks.calls("/old").len());
    ensure!(case.hooks.calls("/new").is_empty(), "the edited template was called");
    Ok(())
}

#[e2e::test]
async fn a_changed_secret_is_used_from_the_next_measurement(case: &mut Case) -> Result<()> {
    let secret = |token: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {"token": token},
            "metadata": {"name": "hook", "labels": {"tkex.tencent.com/hook-access": "true"}},
        })
    };
    case.apply(secret("first")).await?;
    // The hook measures until the server has seen the second token.
    case.hooks.answer("/signed", age(1));
    let fields = json!({
        "count": 1000, "interval": "1s", "failureLimit": 1000, "successfulLimit": 1,
        "successCondition": "asInt(result) > 30",
    });
    let mut run = web(case, "signed", fields);
    let web = &mut run["spec"]["metrics"][0]["provider"]["web"];
    web["authentication"] = json!({"bearer": {"token": {"name": "hook", "key": "token"}}});
    case.apply(run).await?;
    case.eventually("the hook is called", async || {
        ensure!(!case.hooks.calls("/signed").is_empty(), "no call");
        Ok(())
    })
    .await?;
    case.apply(secret("second")).await?;
    let changed_after = case.hooks.calls("/signed").len();
    let sent_token = |call: Option<&e2e::servers::hook_server::Call>| {
        call.and_then(|call| call.headers.get("authorization").cloned())
    };
    case.eventually("the second token is sent", async || {
        let calls = case.hooks.calls("/signed");
        let last = sent_token(calls.last()).context("no header")?;
        ensure!(last == "Bearer second", "{calls:?}");
        Ok(())
    })
    .await?;
    case.hooks.answer("/signed", age(45));
    until_phase(case, "signed", "Successful").await?;
    let calls = case.hooks.calls("/signed");
    let first = sent_token(calls.first());
    ensure!(first.context("no header")? == "Bearer first", "{calls:?}");
    // The first of the calls after the change may belong to a measurement that began before.
    let mut later = calls.iter().skip(changed_after + 1);
    let is_second = |token: Option<String>| token.is_some_and(|it| it == "Bearer second");
    ensure!(later.all(|call| is_second(sent_token(Some(call)))), "{calls:?}");
    Ok(())
}

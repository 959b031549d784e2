//! The operator's metrics in a real Prometheus, with the queries of the alerts, dashboards and runbooks.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use e2e::addons::prometheus::Prometheus;
use e2e::addons::webhook::Webhook;
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::documents::dashboard;
use e2e::servers::hook_server::Answer;
use e2e::workload::manifest::{Game, hook_template, retrying_hook_template};
use e2e::workload::{GAME, SET};
use serde_json::{Value, json};

/// Creates a GameDeployment whose rollout is paused by a failed hook after one of three pods was updated, while
/// another pod waits for its PreDelete hook; and a GameStatefulSet that was updated and scaled in to two pods.
async fn prepare(case: &Case) -> Result<()> {
    let age = |age: i64| Answer::Json(json!({"age": age}));
    case.hooks.answer("/gate", age(1));
    case.apply(hook_template("gate", &case.hooks.url("/gate"))).await?;
    case.apply(hook_template("ready", &case.hooks.url("/ready"))).await?;
    let players = retrying_hook_template("players", &case.hooks.url("/players"));
    case.apply(players).await?;
    let steps = json!([{"partition": 2}, {"hook": {"templateName": "gate"}}]);
    let game = Game::in_place(4).steps(steps).pre_delete("players");
    case.apply(game.pre_inplace("ready").guarded()).await?;
    case.apply(Game::parallel(3).updated_by("InplaceUpdate")).await?;
    case.until_settled(4).await?;
    case.scale(3).await?;
    case.until_settled(3).await?;
    case.set_image("game:v2").await?;
    case.until("the step's hook has failed", |view| {
        view.pause_reasons() == ["PausedByStepBasedHook"]
    })
    .await?;
    case.hooks.answer("/players", age(1));
    case.scale(2).await?;
    case.until("a pod waits", |view| view.phases("PreDelete") == ["Running"]).await?;
    let set = format!("gamestatefulset/{SET}");
    until_set_has(case, 3, "game:v1").await?;
    let image = "/spec/template/spec/containers/0/image";
    let update = json!([{"op": "replace", "path": image, "value": "game:v2"}]);
    case.patch(&set, update).await?;
    until_set_has(case, 3, "game:v2").await?;
    case.kubectl(&["scale", "--replicas=2", &set]).await?;
    until_set_has(case, 2, "game:v2").await
}

/// Waits until the set has this many pods, all ready and with this image.
async fn until_set_has(case: &Case, pods: i64, image: &str) -> Result<()> {
    case.eventually(&format!("{pods} pods of {image}"), async || {
        let set = case.get(&format!("gamestatefulsets/{SET}")).await?;
        let status = &set["status"];
        let found = &set["spec"]["template"]["spec"]["containers"][0]["image"];
        let is_ready = status["replicas"] == pods && status["updatedReadyReplicas"] == pods;
        let is_observed = status["observedGeneration"] == set["metadata"]["generation"];
        ensure!(is_ready && is_observed && found == image, "{set:#}");
        Ok(())
    })
    .await
}

#[e2e::test]
async fn dashboards_show_a_failed_step_and_a_waiting_pod(case: &mut Case) -> Result<()> {
    // An operator that loses its lease is restarted, and counts from zero again.
    case.operator.disable_leader_election();
    let webhook = Webhook::install(case, "2160h").await?;
    webhook.until_called(case).await?;
    let prometheus = Prometheus::scrape(case, &[case.operator.port()?]).await?;
    // Events before the first scrape would not count as an increase.
    prometheus.until(case, "gamekeeper_leader", 1.0).await?;
    prepare(case).await?;
    check_admission_metrics(case, &prometheus).await?;
    check_rollout_metrics(case, &prometheus).await?;
    check_hook_metrics(case, &prometheus).await?;
    check_queries_of_bk_bcs(case, &prometheus).await?;
    check_dashboards(case, &prometheus).await?;
    check_alerts(case, &prometheus).await?;
    check_labels(case).await?;
    resume_by_runbook(case, &prometheus).await?;
    case.hooks.answer("/players", Answer::Json(json!({"age": 45})));
    case.kubectl(&["delete", &case.workload()]).await?;
    case.eventually("the workload's series are dropped", async || {
        // The counts of ended pods are kept for ten minutes, so that they are scraped.
        let ended = "gamekeeper_guarded_pods_ended_total";
        let workload = format!("{{name=\"{GAME}\",__name__!=\"{ended}\"}}");
        let workload = prometheus.query(&workload).await?;
        let hooks = format!("{{owner=\"GameDeployment|{GAME}\"}}");
        let hooks = prometheus.query(&hooks).await?;
        let bk_bcs = prometheus.query("{gd!=\"\"}").await?;
        let series: Vec<_> = workload.iter().chain(&hooks).chain(&bk_bcs).collect();
        ensure!(series.is_empty(), "{series:?}");
        Ok(())
    })
    .await?;
    webhook.remove(case).await?;
    prometheus.stop().await
}

/// Checks the metrics of the webhook, after it has refused one workload.
async fn check_admission_metrics(case: &Case, prometheus: &Prometheus) -> Result<()> {
    let typo = Game::in_place(1).named("typo");
    let typo = typo.set("/spec/template/spec/hostNetwrok", true);
    let typo = typo.to_string();
    // The webhook admits a template on which the API server gives no verdict within two seconds, as under load.
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    case.until_refused("the template is refused", &apply, &typo, "hostNetwrok").await?;
    let requests = "gamekeeper_admission_requests_total";
    let dry_runs = "gamekeeper_admission_template_dry_runs_total";
    // SidecarSets and Clusters are cluster-scoped, so this webhook also reviews those of other tests.
    let workloads = "kind=~\"Game.*\"";
    let expiry = "gamekeeper_admission_certificate_expiry_timestamp_seconds";
    for (query, value) in [
        (
            format!(
                "{requests}{{kind=\"GameDeployment\", operation=\"CREATE\", verdict=\"refused\"}}"
            ),
            1.0,
        ),
        (
            format!(
                "{requests}{{kind=\"GameStatefulSet\", operation=\"CREATE\", verdict=\"allowed\"}}"
            ),
            1.0,
        ),
        (
            format!(
                "sum({requests}{{{workloads}, operation=\"UPDATE\", verdict=\"allowed\"}}) > bool 1"
            ),
            1.0,
        ),
        (format!("sum({requests}{{{workloads}, verdict=\"failed_open\"}})"), 0.0),
        (format!("{dry_runs}{{kind=\"GameDeployment\", outcome=\"refused\"}}"), 1.0),
        // Two workloads with two templates each. A patch that conflicts with another write causes one more dry run.
        // Some may have got no verdict in time.
        (format!("sum({dry_runs}{{{workloads}, outcome!=\"refused\"}}) >= bool 4"), 1.0),
        (format!("round(({expiry} - time()) / 86400)"), 90.0),
    ] {
        prometheus.until(case, &query, value).await?;
    }
    Ok(())
}

async fn check_rollout_metrics(case: &Case, prometheus: &Prometheus) -> Result<()> {
    let labels = format!("kind=\"GameDeployment\", name=\"{GAME}\"");
    let gd = format!("gd=\"{}/{GAME}\", status=\"success\"", case.namespace);
    let with_hook = "action=\"deletePod\", grace=\"true\"";
    let bk_bcs = "bkbcs_gamedeployment_pod";
    for (query, value) in [
        ("gamekeeper_leader".to_owned(), 1.0),
        (format!("gamekeeper_rollout_state{{{labels}, reason=\"PausedByStepBasedHook\"}}"), 1.0),
        (format!("gamekeeper_rollout_step{{{labels}}}"), 1.0),
        (format!("gamekeeper_rollout_steps{{{labels}}}"), 2.0),
        (format!("gamekeeper_pods{{{labels}, state=\"desired\"}}"), 2.0),
        (format!("gamekeeper_pods{{{labels}, state=\"existing\"}}"), 3.0),
        (format!("gamekeeper_pods{{{labels}, state=\"updated\"}}"), 1.0),
        (format!("{bk_bcs}_create_duration_seconds_count{{{gd}}}"), 4.0),
        (format!("{bk_bcs}_update_duration_seconds_count{{{gd}, action=\"inplaceUpdate\"}}"), 1.0),
        (format!("{bk_bcs}_delete_duration_seconds_count{{{gd}, {with_hook}}}"), 1.0),
        ("gamekeeper_cached_objects{kind=\"Pod\"}".to_owned(), 5.0),
    ] {
        prometheus.until(case, &query, value).await?;
    }
    let age = format!("gamekeeper_rollout_age_seconds{{{labels}}}");
    case.eventually("the rollout has an age", async || {
        let age = prometheus.value(&age).await?;
        ensure!((0.5..600.0).contains(&age), "{age}");
        Ok(())
    })
    .await
}

async fn check_hook_metrics(case: &Case, prometheus: &Prometheus) -> Result<()> {
    let labels = format!("kind=\"GameDeployment\", name=\"{GAME}\"");
    let owner = format!("owner=\"GameDeployment|{GAME}\"");
    let ended = "gamekeeper_hook_runs_ended_total";
    let created = "bkbcs_gameworkload_hookrun_create_duration_seconds_count";
    let executed = "bkbcs_hook_hookrun_exec_duration_seconds_count";
    for (query, value) in [
        (format!("{ended}{{point=\"Step\", phase=\"Failed\"}}"), 1.0),
        (format!("{ended}{{point=\"PreInplace\", phase=\"Successful\"}}"), 1.0),
        (format!("{ended}{{point=\"PreDelete\", phase=\"Successful\"}}"), 1.0),
        (format!("gamekeeper_hook_runs{{{labels}, point=\"PreDelete\", phase=\"Running\"}}"), 1.0),
        (format!("{created}{{objectKind=\"GameDeployment\", action=\"predelete\"}}"), 2.0),
        (format!("{executed}{{{owner}, status=\"failure\"}}"), 1.0),
        (format!("{executed}{{{owner}, status=\"success\"}}"), 2.0),
    ] {
        prometheus.until(case, &query, value).await?;
    }
    let wait = format!("gamekeeper_hook_wait_seconds{{{labels}, point=\"PreDelete\"}}");
    let current = async || prometheus.value(&wait).await;
    let before = case.eventually("a pod waits", current).await?;
    case.eventually("the wait grows", async || {
        let now = prometheus.value(&wait).await?;
        ensure!(now > before, "{now} after {before}");
        Ok(())
    })
    .await
}

/// Checks that each query of e2e/boards/bk-bcs.promql has the result that its heading states.
async fn check_queries_of_bk_bcs(case: &Case, prometheus: &Prometheus) -> Result<()> {
    let table = std::fs::read_to_string(repository().join("e2e/boards/bk-bcs.promql"))?;
    let mut counts = BTreeMap::<&str, usize>::new();
    let mut heading = "";
    let lines = table.lines().filter(|line| !line.starts_with("#!"));
    for line in lines.filter(|line| !line.is_empty()) {
        if let Some(comment) = line.strip_prefix("# ") {
            heading = comment.split_once(':').map_or("", |(heading, _)| heading);
            continue;
        }
        let query =
            line.replace("$namespace", &case.namespace).replace("$gd", GAME).replace("$gsts", SET);
        // After a late scrape, a query may return nothing until the next scrape.
        case.eventually(heading, async || {
            let answer = prometheus.query(&query).await?;
            let is_right = match heading {
                "answered" => !answer.is_empty(),
                "never" => answer.is_empty(),
                "quiet" => true,
                _ => anyhow::bail!("{line} has no heading"),
            };
            ensure!(is_right, "{heading}: {query} returns {answer:?}");
            Ok(())
        })
        .await?;
        *counts.entry(heading).or_default() += 1;
    }
    ensure!(counts.len() == 3 && counts["answered"] > 90, "{counts:?}");
    Ok(())
}

/// Panels that show 0 even without data, so their value must be at least 1.
const AT_LEAST_ONE: [&str; 4] = [
    "Not matching the spec",
    "Paused by a failed hook",
    "Longest wait to be deleted",
    // No policy is installed here.
    "Guards not in force",
];
/// Panels that have no data for a workload with neither steps nor hooks, such as the GameStatefulSet.
const HOOK_PANELS: [&str; 8] = [
    "Canary step",
    "Longest wait for a hook",
    "HookRuns",
    "HookRuns that ended",
    "Measurements",
    "Duration of a measurement",
    "Wait for hooks",
    "Matches ended without their hook",
];

async fn check_dashboards(case: &Case, prometheus: &Prometheus) -> Result<()> {
    for (kind, name) in [("GameDeployment", GAME), ("GameStatefulSet", SET)] {
        let variables = [
            ("cluster", ".*"),
            ("job", "gamekeeper"),
            ("kind", kind),
            ("namespace", case.namespace.as_str()),
            ("name", name),
        ];
        for board in ["fleet", "rollout"] {
            for query in dashboard::queries(board, &variables)? {
                let needs_hooks = HOOK_PANELS.contains(&&*query.source);
                case.eventually(board, async || {
                    let answer = prometheus.query(&query.expr).await?;
                    let mut values = answer.iter().map(|sample| sample.value);
                    let is_right = match AT_LEAST_ONE.contains(&&*query.source) {
                        _ if name == SET && board == "rollout" && needs_hooks => answer.is_empty(),
                        true => values.any(|value| value >= 1.0),
                        false => values.any(f64::is_finite),
                    };
                    ensure!(is_right, "{board} of {name}: {query:?} returns {answer:?}");
                    Ok(())
                })
                .await?;
            }
        }
    }
    Ok(())
}

/// Checks the alerts against real series. The promtool tests in e2e/alerts check when they fire.
async fn check_alerts(case: &Case, prometheus: &Prometheus) -> Result<()> {
    let path = repository().join("charts/gamekeeper/files/alerts.yaml");
    let alerts: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(path)?)?;
    let rules = alerts["groups"][0]["rules"].as_array().context("no rules")?;
    case.eventually("one alert fires", async || {
        let mut firing = Vec::new();
        for rule in rules {
            let expr = rule["expr"].as_str().context("no expression")?;
            if !prometheus.query(expr).await?.is_empty() {
                firing.push(rule["alert"].as_str().unwrap_or_default());
            }
        }
        ensure!(firing == ["GamekeeperRolloutPausedByHook"], "{firing:?}");
        Ok(())
    })
    .await
}

/// Checks that each series has the labels in docs/metrics.md.
async fn check_labels(case: &Case) -> Result<()> {
    let documented = documented_labels()?;
    let (_, page) = case.operator.get("/metrics").await?;
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once(['{', ' ']).context("not a series")?;
        let histogram = ["_bucket", "_count", "_sum"]
            .into_iter()
            .find_map(|suffix| documented.get(name.strip_suffix(suffix)?));
        let expected = documented.get(name).or(histogram);
        let expected = expected.with_context(|| format!("{name} is not documented"))?;
        let labels = rest.split_once("\"} ").map_or("", |(labels, _)| labels);
        let labels = labels.split("\",").filter(|label| !label.is_empty());
        let labels = labels.filter_map(|label| Some(label.split_once("=\"")?.0.to_owned()));
        let found: BTreeSet<String> = labels.filter(|label| label != "le").collect();
        ensure!(found == *expected, "{name}: {found:?}, not {expected:?}");
    }
    Ok(())
}

/// Resumes the rollout with the patch in docs/operations.md.
async fn resume_by_runbook(case: &Case, prometheus: &Prometheus) -> Result<()> {
    let runbook = std::fs::read_to_string(repository().join("docs/operations.md"))?;
    let resume = r#"{"spec":{"updateStrategy":{"paused":false}}}"#;
    ensure!(runbook.contains(resume), "the runbook shows a different patch");
    case.kubectl(&["patch", "gamedeployment", GAME, "--type=merge", "-p", resume]).await?;
    let not_paused = "absent(gamekeeper_rollout_state{reason=\"PausedByStepBasedHook\"})";
    prometheus.until(case, not_paused, 1.0).await
}

fn documented_labels() -> Result<BTreeMap<String, BTreeSet<String>>> {
    let page = std::fs::read_to_string(repository().join("docs/metrics.md"))?;
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let series = rows.filter_map(|row| {
        let (name, rest) = row.split_once('`')?;
        let labels = rest.split('|').nth(2)?.trim();
        let labels = labels.split(", ").filter(|label| !label.is_empty());
        Some((name.to_owned(), labels.map(str::to_owned).collect()))
    });
    Ok(series.collect())
}

#[e2e::test]
async fn refused_creations_are_shown_until_a_scale_in(case: &mut Case) -> Result<()> {
    let prometheus = Prometheus::scrape(case, &[case.operator.port()?]).await?;
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    let resources = "/spec/template/spec/containers/0/resources";
    case.apply(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"},
        "spec": {"hard": {"requests.cpu": "2"}},
    }))
    .await?;
    let excessive = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "excessive"},
        "spec": {"containers": [{"name": "game", "image": "game:v1", "resources": cpu("3")}]},
    })
    .to_string();
    // Pods that are created before the API server has observed the quota are not counted.
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    case.until_refused("the quota is in force", &apply, &excessive, "exceeded quota").await?;
    case.apply(Game::rolling(2).set(resources, cpu("1"))).await?;
    case.until_settled(2).await?;
    case.scale(3).await?;
    let controller = "controller=\"gamedeployment\"";
    let errors = format!("gamekeeper_reconcile_errors_total{{{controller}}}");
    let failed = "status=\"failure\"";
    for query in [
        format!("sum({errors}) > bool 1"),
        format!("sum(bkbcs_gamedeployment_reconcile_duration_seconds_count{{{failed}}}) > bool 1"),
        format!("sum(bkbcs_gamedeployment_pod_create_duration_seconds_count{{{failed}}}) > bool 0"),
        "rest_client_requests_total{method=\"POST\", code=\"403\"} > bool 0".to_owned(),
        "workqueue_retries_total{name=\"gamedeployment\"} > bool 1".to_owned(),
        "gamekeeper_rollout_age_seconds > bool 0".to_owned(),
        "gamekeeper_rollout_state{reason=\"FailedCreate\"}".to_owned(),
    ] {
        prometheus.until(case, &query, 1.0).await?;
    }
    check_queries_of_runbook(case, &prometheus).await?;
    case.scale(2).await?;
    case.until_settled(2).await?;
    let settled = "gamekeeper_rollout_state{reason=\"Complete\"}";
    prometheus.until(case, settled, 1.0).await?;
    let age = "gamekeeper_rollout_age_seconds";
    prometheus.until(case, age, 0.0).await?;
    prometheus.stop().await
}

/// Checks that the queries of docs/operations.md return something.
async fn check_queries_of_runbook(case: &Case, prometheus: &Prometheus) -> Result<()> {
    let runbook = std::fs::read_to_string(repository().join("docs/operations.md"))?;
    let lines = runbook.lines().filter_map(|line| line.strip_prefix("    "));
    let queries: Vec<_> = lines.filter(|line| line.contains("[15m]")).collect();
    ensure!(queries.len() == 2, "{queries:?}");
    for query in queries {
        // An increase needs two scrapes with another error between them.
        case.eventually(query, async || {
            ensure!(!prometheus.query(query).await?.is_empty(), "no answer");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[e2e::test]
async fn only_the_leader_exports_workload_metrics(case: &mut Case) -> Result<()> {
    let mut standby = case.prepare_operator("standby").await?;
    standby.start().await?;
    let ports = [case.operator.port()?, standby.port()?];
    let prometheus = Prometheus::scrape(case, &ports).await?;
    case.apply(Game::rolling(2)).await?;
    case.until_settled(2).await?;
    let sources = "count(gamekeeper_pods{state=\"desired\"})";
    prometheus.until(case, "count(gamekeeper_leader)", 2.0).await?;
    prometheus.until(case, "sum(gamekeeper_leader)", 1.0).await?;
    prometheus.until(case, sources, 1.0).await?;
    case.kill_operator().await?;
    let successor = format!("gamekeeper_leader{{instance=\"127.0.0.1:{}\"}}", ports[1]);
    prometheus.until(case, &successor, 1.0).await?;
    prometheus.until(case, sources, 1.0).await?;
    prometheus.until(case, "sum(gamekeeper_leader)", 1.0).await?;
    prometheus.stop().await?;
    standby.terminate().await
}

//! The walkthroughs of the documentation: every table and status that they show.
//!
//! Generations, hashes, names of pods, times and ages may differ. Where a document waits for a minute, these
//! tests wait for seconds.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::workload::GAME;
use e2e::workload::table::{Table, WORKLOAD_COLUMNS};
use e2e::workload::view::View;
use serde_json::Value;

pub mod canary;
pub mod crowded;
pub mod hooks;

/// Checks the counts that kubectl get gamedeployment prints.
async fn check_counts(case: &Case, counts: [i64; 5]) -> Result<()> {
    let table = case.table(&["get", "gamedeployment"]).await?;
    ensure!(table.headings == WORKLOAD_COLUMNS, "{table:?}");
    let numbers = counts.iter().map(ToString::to_string);
    let expected: Vec<String> = std::iter::once(GAME.to_owned()).chain(numbers).collect();
    let shown = table.without("AGE");
    ensure!(shown.lines == [expected], "{shown:?}");
    Ok(())
}

/// Checks that kubectl get pod prints exactly these pods as Running, with these RESTARTS.
async fn check_pods(case: &Case, restarts: &[(&str, i64)]) -> Result<()> {
    let table = case.table(&["get", "pod"]).await?;
    let expected: Vec<Vec<String>> = restarts
        .iter()
        .map(|(name, restarts)| {
            let ready = if case.has_mesh { "2/2" } else { "1/1" };
            let cells = [name, ready, "Running", &restarts.to_string()];
            cells.map(str::to_owned).to_vec()
        })
        .collect();
    let mut shown = table.without("AGE");
    for line in &mut shown.lines {
        // Drops the time of the last restart, as in "1 (5s ago)".
        line[3] = line[3].split(' ').next().unwrap_or_default().to_owned();
    }
    ensure!(shown.lines == expected, "{shown:?}");
    Ok(())
}

/// Checks the names and phases that kubectl get hookrun prints.
async fn check_runs(case: &Case, expected: &[(&str, &str)]) -> Result<()> {
    let printed = case.kubectl(&["get", "hookrun"]).await?;
    if expected.is_empty() {
        // "No resources found in NAMESPACE namespace." goes to stderr.
        ensure!(printed.is_empty(), "{printed}");
        return Ok(());
    }
    let table = Table::parse(&printed);
    ensure!(table.headings == ["NAME", "PHASE", "AGE"], "{table:?}");
    let names = table.column("NAME")?;
    let shown: Vec<(&str, &str)> = names.into_iter().zip(table.column("PHASE")?).collect();
    ensure!(shown == expected, "{shown:?} instead of {expected:?}");
    Ok(())
}

fn keys(value: &Value) -> BTreeSet<&str> {
    let object = value.as_object();
    object.map_or_else(BTreeSet::new, |object| object.keys().map(String::as_str).collect())
}

/// Checks that the status has exactly these fields, apart from those that are newer than the documents, and that it has
/// these numbers.
fn check_status(view: &View, fields: &[&str], numbers: [(&str, i64); 6]) -> Result<()> {
    let mut found = keys(&view.game["status"]);
    let newer = ["activeReplicas", "conditions", "currentRevision"];
    ensure!(newer.iter().all(|name| found.remove(name)), "{found:?}");
    found.remove("causes");
    let expected: BTreeSet<&str> = fields.iter().copied().collect();
    ensure!(found == expected, "fields {found:?} instead of {expected:?}");
    for (name, number) in numbers {
        let found = view.number(&format!("/status/{name}"));
        ensure!(found == number, "{name} is {found} instead of {number}");
    }
    Ok(())
}

fn counts_of_status(all: i64, updated: i64) -> [(&'static str, i64); 6] {
    [
        ("availableReplicas", all),
        ("collisionCount", 0),
        ("readyReplicas", all),
        ("replicas", all),
        ("updatedReadyReplicas", updated),
        ("updatedReplicas", updated),
    ]
}

/// An example manifest, with shorter durations and the URL of the test's server. `changes` are further replacements.
fn example(case: &Case, name: &str, changes: &[(&str, &str)]) -> Result<String> {
    let path = repository().join("examples").join(name);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let server = case.hooks.url("");
    let port = format!(":{}", case.hooks.port());
    let replacements = [
        ("http://1.1.1.1:9091", server.as_str()),
        (":9091", &port),
        ("gracePeriodSeconds: 30", "gracePeriodSeconds: 1"),
    ];
    let changes = replacements.iter().chain(changes);
    Ok(changes.fold(text, |text, (from, to)| text.replace(from, to)))
}

async fn create(case: &mut Case, template: String, game: String, replicas: i64) -> Result<View> {
    let printed = case.apply(template).await?;
    ensure!(printed == "hooktemplate.tkex.tencent.com/test created\n", "{printed}");
    match case.delivery {
        Some(style) => case.deliver(style, serde_yaml_ng::from_str(&game)?).await?,
        None => {
            let printed = case.apply(game).await?;
            let expected = format!("gamedeployment.tkex.tencent.com/{GAME} created\n");
            ensure!(printed == expected, "{printed}");
        }
    }
    let view = case.until_settled(replicas).await?;
    check_counts(case, [replicas; 5]).await?;
    Ok(view)
}

async fn update_to_python_3_5(case: &Case) -> Result<()> {
    case.change("/spec/template/spec/containers/0/image", "python:3.5").await
}

async fn scale(case: &Case, replicas: u32) -> Result<()> {
    if case.delivery.is_some() {
        return case.change("/spec/replicas", replicas).await;
    }
    let workload = format!("gamedeployment/{GAME}");
    let printed = case.kubectl(&["scale", &format!("--replicas={replicas}"), &workload]).await?;
    ensure!(printed == format!("gamedeployment.tkex.tencent.com/{GAME} scaled\n"), "{printed}");
    Ok(())
}

/// Checks that an object contains the expected fields. It may have more.
fn check_contains(found: &Value, expected: &Value) -> Result<()> {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (key, value) in expected {
                let inner = found.get(key).with_context(|| format!("no {key} in {found:?}"))?;
                check_contains(inner, value).with_context(|| key.clone())?;
            }
        }
        (Value::Array(found), Value::Array(expected)) => {
            ensure!(found.len() == expected.len(), "{found:?} instead of {expected:?}");
            for (found, expected) in found.iter().zip(expected) {
                check_contains(found, expected)?;
            }
        }
        _ => ensure!(found == expected, "{found} instead of {expected}"),
    }
    Ok(())
}

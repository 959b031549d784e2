//! The linter's table of what kubectl makes of files, compared with the real kubectl.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Deserializer, Value, json};

const HEAD: &str = "apiVersion: example.com/v1\nkind: Row\nmetadata: {name: row}\nspec:\n";

#[e2e::test]
async fn kubectl_reads_files_as_the_linters_table_says(case: &mut Case) -> Result<()> {
    let path = repository().join("core/src/lint/testdata/kubectl.json");
    let rows: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    ensure!(rows.len() >= 500, "{} rows", rows.len());
    let case = &*case;
    let checks = stream::iter(&rows).map(|row| check(case, row));
    checks.buffer_unordered(4).try_collect::<Vec<()>>().await?;
    Ok(())
}

async fn check(case: &Case, row: &Value) -> Result<()> {
    let (text, is_spec) = match row["spec"].as_str() {
        Some(spec) => {
            let lines = spec.split('\n').map(|line| format!("  {line}\n"));
            (HEAD.to_owned() + &lines.collect::<String>(), true)
        }
        None => (row["file"].as_str().context("a row has a file")?.to_owned(), false),
    };
    // A patch that changes nothing prints what kubectl has read, whatever its kind.
    let patch = ["patch", "--local", "--type=merge", "-p", "{}", "-f", "-", "-o", "json"];
    let read = match case.kubectl_with(&patch, &text).await {
        Ok(printed) => {
            let objects = Deserializer::from_str(&printed).into_iter::<Value>();
            Some(objects.collect::<serde_json::Result<Vec<_>>>()?)
        }
        Err(error) if format!("{error:#}").contains("no objects passed to patch") => {
            Some(Vec::new())
        }
        Err(error) => {
            let message = format!("{error:#}");
            let expected = row["refused"].as_str();
            let is_expected = expected.is_some_and(|expected| message.contains(expected));
            ensure!(is_expected, "{row}\nkubectl: {message}");
            None
        }
    };
    if let Some(objects) = read {
        let found = match is_spec {
            true => objects.first().map(|it| it["spec"].clone()).unwrap_or_default(),
            false => json!(objects),
        };
        ensure!(row.get("json") == Some(&found), "{row}\nkubectl: {found}");
    }
    Ok(())
}

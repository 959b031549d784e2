//! Admission warnings: manifests that are accepted, and the warnings that kubectl prints. The linter's unit tests use
//! the same files, except for those with warnings that only the webhook prints.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use e2e::addons::webhook::Webhook;
use e2e::case::Case;
use e2e::case::bad_manifest::manifests;
use e2e::process::command::run_unchecked;
use futures::{StreamExt, TryStreamExt};

const FOLDERS: [&str; 2] = ["e2e/manifests/warned", "e2e/manifests/warned/by-webhook"];
const TEMPLATES: &str = "e2e/manifests/warned/templates";
/// How many kubectl calls run at a time.
const CONCURRENCY: usize = 8;

#[e2e::test]
async fn manifests_are_accepted_with_the_expected_warnings(case: &mut Case) -> Result<()> {
    let webhook = Webhook::install(case, "2160h").await?;
    webhook.until_called(case).await?;
    for path in manifests(TEMPLATES)? {
        case.kubectl(&["apply", "-f", &path.to_string_lossy()]).await?;
    }
    let mut warned: Vec<PathBuf> = Vec::new();
    for folder in FOLDERS {
        warned.extend(manifests(folder)?);
    }
    ensure!(warned.len() >= 20, "only {} manifests", warned.len());
    case.eventually("the operator has observed the templates", async || {
        ensure!(
            !warnings(case, &warned).await?.contains("does not exist"),
            "a template is not known yet"
        );
        Ok(())
    })
    .await?;
    let wrong = warnings(case, &warned).await?;
    ensure!(wrong.is_empty(), "{wrong}");
    webhook.remove(case).await
}

/// Applies manifests as a dry run. Returns kubectl's output for those whose warnings are not as expected.
async fn warnings(case: &Case, paths: &[PathBuf]) -> Result<String> {
    let wrong: Vec<String> = futures::stream::iter(paths)
        .map(|path| unexpected_output(case, path))
        .buffered(CONCURRENCY)
        .try_filter_map(async |wrong| Ok(wrong))
        .try_collect()
        .await?;
    Ok(wrong.join("\n"))
}

/// kubectl's output for a manifest; None if it is what the comment at the top of the manifest expects.
async fn unexpected_output(case: &Case, path: &PathBuf) -> Result<Option<String>> {
    let text = std::fs::read_to_string(path)?;
    let comments = text.lines().map_while(|line| line.strip_prefix("# "));
    let expected = comments.filter(|line| !line.starts_with("after: "));
    let expected: BTreeSet<&str> =
        expected.map(|line| line.strip_prefix("expect: ").unwrap_or(line)).collect();
    let apply = ["apply", "--dry-run=server", "-f", &path.to_string_lossy()];
    let output = run_unchecked(&mut case.kubectl_command(&apply).await?).await?;
    let stderr = output.stderr.replace(&case.namespace, "NAMESPACE");
    let found: BTreeSet<&str> =
        stderr.lines().map(|line| line.strip_prefix("Warning: ").unwrap_or(line)).collect();
    let is_expected = output.code == 0 && found == expected;
    Ok((!is_expected).then(|| format!("{}:\n{stderr}", path.display())))
}

//! Manifests that must be refused. Each begins with the error that kubectl prints. The linter's unit tests
//! use the same files, so kubectl and the linter must print the same message.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};

use crate::case::Case;
use crate::checkout::repository;

/// The first minor version of Kubernetes that shows the wrong values of custom resources in its errors, rather than their
/// types.
const VALUES_SINCE: u32 = 36;
/// How many kubectl calls run at a time.
const CONCURRENCY: usize = 8;

/// A manifest that must be refused.
pub struct BadManifest {
    /// Its file.
    pub path: PathBuf,
    /// Its content.
    pub text: String,
    /// The manifest that must be applied before this one.
    pub after: Option<PathBuf>,
    /// The lines of the error: a set, because the API server lists several errors in no fixed order.
    message: BTreeSet<String>,
}

impl BadManifest {
    /// Reads a file. The comment at its top has an optional line `# after: FILE`, then `# expect: ` and the
    /// message, which may go on in the lines below.
    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let mut bad = BadManifest {
            path: path.to_owned(),
            after: None,
            message: BTreeSet::new(),
            text: text.clone(),
        };
        for line in text.lines().map_while(|line| line.strip_prefix("# ")) {
            if let Some(file) = line.strip_prefix("after: ") {
                bad.after = Some(repository().join("e2e/manifests").join(file));
            } else {
                let line = line.strip_prefix("expect: ").unwrap_or(line);
                bad.message.insert(line.to_owned());
            }
        }
        let path = path.display();
        ensure!(!bad.message.is_empty(), "{path} has no expected message");
        Ok(bad)
    }

    /// Reads all manifests of a folder.
    pub fn all(folder: &str) -> Result<Vec<Self>> {
        manifests(folder)?.iter().map(|path| Self::read(path)).collect()
    }

    /// The expected findings, as `FIELD: MESSAGE`.
    pub fn findings(&self) -> impl Iterator<Item = &str> {
        let lines = self.message.iter().map(|line| {
            let line =
                line.split_once(" is invalid:").map_or(line.as_str(), |(_, findings)| findings);
            line.trim_start_matches(['*', ' '])
        });
        lines.filter(|line| !line.is_empty())
    }

    /// Returns kubectl's error if it differs from the expected one. Warnings are ignored.
    async fn check(&self, case: &Case) -> Result<Option<String>> {
        let error = case.refused(&["apply", "-f", "-"], &self.text).await?;
        let (_, stderr) = error.split_once("stderr: ").context("kubectl printed no error")?;
        let lines = stderr.lines().filter(|line| !line.starts_with("Warning: "));
        let found: BTreeSet<String> = lines.map(|line| line.trim_end().into()).collect();
        let is_same = match case.plane().minor < VALUES_SINCE {
            true => self.is_same_but_for_values(&found),
            false => found == self.message,
        };
        Ok((!is_same).then(|| format!("{}:\n{stderr}", self.path.display())))
    }

    /// Whether an API server that does not show wrong values means the same error.
    fn is_same_but_for_values(&self, found: &BTreeSet<String>) -> bool {
        let is_expected =
            |line: &String| self.message.iter().any(|it| is_same_but_for_value(it, line));
        found.len() == self.message.len() && found.iter().all(is_expected)
    }

    /// Applies these manifests, and fails unless each is refused with its message.
    pub async fn check_all(bad: &[Self], case: &Case) -> Result<()> {
        let wrong: Vec<String> = futures::stream::iter(bad)
            .map(|bad| bad.check(case))
            .buffered(CONCURRENCY)
            .try_filter_map(async |wrong| Ok(wrong))
            .try_collect()
            .await?;
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }

    /// Applies the manifests that must exist before these.
    pub async fn prepare_all(bad: &[Self], case: &Case) -> Result<()> {
        let prerequisites: BTreeSet<_> = bad.iter().filter_map(|bad| bad.after.as_ref()).collect();
        for path in prerequisites {
            let apply = ["apply", "-f", &path.to_string_lossy()];
            case.kubectl(&apply).await?;
        }
        Ok(())
    }
}

/// Whether two lines are the same except for the wrong value: `found` shows its type, such as "object", or Go's name for
/// it. What follows the value is the message of our rule.
fn is_same_but_for_value(expected: &str, found: &str) -> bool {
    if let Some((field, _)) = found.split_once(" Duplicate value: ") {
        return expected.starts_with(&format!("{field} Duplicate value: "));
    }
    let Some((field, rest)) = found.split_once(" Invalid value: ") else {
        return expected == found;
    };
    let is_type = |text: &str| {
        let name = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        name.is_some_and(|name| name.chars().all(|it| it.is_ascii_lowercase()))
    };
    let message = rest.split_once(": ").filter(|(value, _)| is_type(value));
    let message = message.map_or(rest, |(_, message)| message);
    expected.starts_with(&format!("{field} Invalid value: ")) && expected.ends_with(message)
}

/// The manifests of a folder.
pub fn manifests(folder: &str) -> Result<Vec<PathBuf>> {
    let folder = repository().join(folder);
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "yaml"));
    paths.sort();
    Ok(paths)
}

//! Manifests that must be refused. Each begins with what kubectl says to it, so that the table of
//! them is what users read, and the linter is held to the same words.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};

use crate::case::Case;
use crate::checkout::repository;

/// kubectl calls at a time.
const SIDE_BY_SIDE: usize = 8;

/// A manifest that must be refused.
pub struct BadManifest {
    /// Its file.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
    /// What is applied before it.
    pub after: Option<PathBuf>,
    /// What kubectl says, line by line; the API server lists several errors in no fixed order.
    message: BTreeSet<String>,
}

impl BadManifest {
    /// Reads the comment at its top: `# after: FILE` if there is one, `# expect: ` and the message.
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
        let shown = path.display();
        ensure!(!bad.message.is_empty(), "{shown} expects nothing");
        Ok(bad)
    }

    /// Reads all of a folder.
    pub fn all(folder: &str) -> Result<Vec<Self>> {
        manifests(folder)?
            .iter()
            .map(|path| Self::read(path))
            .collect()
    }

    /// The findings that it is expected to have, as `FIELD: MESSAGE`.
    pub fn findings(&self) -> impl Iterator<Item = &str> {
        let lines = self.message.iter().map(|line| {
            let line = line
                .split_once(" is invalid:")
                .map_or(line.as_str(), |(_, it)| it);
            line.trim_start_matches(['*', ' '])
        });
        lines.filter(|line| !line.is_empty())
    }

    /// What is wrong with kubectl's answer, if anything. Warnings are another matter.
    async fn check(&self, case: &Case) -> Result<Option<String>> {
        let answer = case.refused(&["apply", "-f", "-"], &self.text).await?;
        let (_, stderr) = answer.split_once("stderr: ").context("kubectl says why")?;
        let lines = stderr.lines().filter(|line| !line.starts_with("Warning: "));
        let found: BTreeSet<String> = lines.map(|line| line.trim_end().into()).collect();
        Ok((found != self.message).then(|| format!("{}:\n{stderr}", self.path.display())))
    }

    /// Applies all of them, and fails unless each is refused in its words.
    pub async fn check_all(bad: &[Self], case: &Case) -> Result<()> {
        let wrong: Vec<String> = futures::stream::iter(bad)
            .map(|bad| bad.check(case))
            .buffered(SIDE_BY_SIDE)
            .try_filter_map(async |wrong| Ok(wrong))
            .try_collect()
            .await?;
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }

    /// Applies what is to be there before them.
    pub async fn prepare_all(bad: &[Self], case: &Case) -> Result<()> {
        let before: BTreeSet<_> = bad.iter().filter_map(|bad| bad.after.as_ref()).collect();
        for before in before {
            let apply = ["apply", "-f", &before.to_string_lossy()];
            case.kubectl(&apply).await?;
        }
        Ok(())
    }
}

/// The manifests of a folder.
pub fn manifests(folder: &str) -> Result<Vec<PathBuf>> {
    let folder = repository().join(folder);
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "yaml"));
    paths.sort();
    Ok(paths)
}

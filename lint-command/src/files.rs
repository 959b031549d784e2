//! The files to check.

use std::io::Read;
use std::path::{Path, PathBuf};

use gamekeeper_core::lint::Source;

/// A file that cannot be read, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub struct Unreadable(String, std::io::Error);

/// Reads files, the manifests in directories, and standard input.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Source>, Unreadable> {
    let mut sources = Vec::new();
    for path in paths {
        let unreadable = |error| Unreadable(path.display().to_string(), error);
        if path == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
            let name = "-".to_owned();
            sources.push(Source { name, text });
            continue;
        }
        let mut files = Vec::new();
        if path.is_dir() {
            manifests(path, &mut files).map_err(unreadable)?;
            files.sort();
        } else {
            files.push(path.clone());
        }
        for file in files {
            let name = file.display().to_string();
            let text = std::fs::read_to_string(&file);
            let text = text.map_err(|error| Unreadable(name.clone(), error))?;
            sources.push(Source { name, text });
        }
    }
    Ok(sources)
}

/// Appends the paths of the manifests in a directory and its subdirectories.
fn manifests(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if path.is_dir() {
            manifests(&path, files)?;
        } else if matches!(ending, Some("yaml" | "yml" | "json")) {
            files.push(path);
        }
    }
    Ok(())
}

//! The files to check.

use std::io::Read;
use std::path::{Path, PathBuf};

use gamekeeper_core::lint::Source;
use gamekeeper_core::lint::yaml::decode;

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
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map_err(unreadable)?;
            sources.push(Source { name: "-".to_owned(), text: decode(&bytes) });
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
            let bytes = std::fs::read(&file);
            let bytes = bytes.map_err(|error| Unreadable(name.clone(), error))?;
            sources.push(Source { name, text: decode(&bytes) });
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

//! The sources of the workspace, for tests that read them.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files in a folder and its subfolders.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the source");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let paths = paths.flat_map(|path| match path.is_dir() {
        true => files(&path),
        false => vec![path],
    });
    paths.filter(|path| path.extension().is_some_and(|it| it == "rs")).collect()
}

//! Programs of this workspace, built with the profile of the tests.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::checkout::repository;
use crate::process::command::run;

/// Integration tests of the packages whose programs are tested. `cargo test` builds the programs of a package with its
/// integration tests. The features are then those of all tests of the workspace, so that `make test` compiles no dependency
/// twice; `tests/layers.rs` lists what these features add to the released programs.
const INTEGRATION_TESTS: [&str; 2] = ["layers", "program"];
/// The packages.
const PACKAGES: [&str; 2] = ["gamekeeper", "kubectl-game"];

/// The path of a package's program, which has the same name as the package. The first call in a run builds all
/// programs, unless the environment variable GAMEKEEPER_PROGRAMS names a folder with others.
pub async fn program(package: &str) -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("GAMEKEEPER_PROGRAMS") {
        return Ok(Path::new(&folder).join(package));
    }
    static BUILT: OnceCell<()> = OnceCell::const_new();
    let executable = std::env::current_exe()?;
    let is_profile = |folder: &&Path| folder.ends_with("debug") || folder.ends_with("release");
    let folder = executable
        .ancestors()
        .find(is_profile)
        .context("this program is not in target/debug or target/release")?;
    BUILT.get_or_try_init(async || build(folder).await).await?;
    Ok(folder.join(package))
}

/// Builds all programs with the profile that this folder is for.
async fn build(folder: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    if folder.ends_with("release") {
        // Benchmarks measure what is released.
        build.args(["build", "--quiet", "--release", "--bins"]);
        build.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    } else {
        build.args(["test", "--quiet", "--workspace", "--no-run"]);
        build.args(INTEGRATION_TESTS.iter().flat_map(|test| ["--test", test]));
    }
    build.current_dir(repository());
    // These variables describe this package; if they were set, ring would be rebuilt.
    for (name, _) in std::env::vars_os() {
        let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        let name = name.to_string_lossy();
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            build.env_remove(&*name);
        }
    }
    run(&mut build, "").await?;
    Ok(())
}

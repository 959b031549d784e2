//! Programs of this workspace, built with the profile of the tests.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::checkout::repository;
use crate::process::command::run;

/// Builds the program of a package with the same name, once per run, and returns its path.
pub async fn program(package: &'static str) -> Result<PathBuf> {
    static BUILT: Mutex<Vec<&str>> = Mutex::const_new(Vec::new());
    let own = std::env::current_exe()?;
    let is_profile = |folder: &&Path| folder.ends_with("debug") || folder.ends_with("release");
    let folder = own
        .ancestors()
        .find(is_profile)
        .context("this runs from target/PROFILE")?;
    let mut built = BUILT.lock().await;
    if !built.contains(&package) {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", package, "--bin", package]);
        build.current_dir(repository());
        // These variables describe this package; if they were set, ring would be rebuilt.
        for (name, _) in std::env::vars_os() {
            let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_"];
            let name = name.to_string_lossy();
            if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
                build.env_remove(&*name);
            }
        }
        if folder.ends_with("release") {
            build.arg("--release");
        }
        run(&mut build, "").await?;
        built.push(package);
    }
    Ok(folder.join(package))
}

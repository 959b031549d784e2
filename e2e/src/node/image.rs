//! Images of one program with the libraries that it is linked against.

use std::path::Path;

use anyhow::{Context, Result};
use axum::body::Bytes;
use tokio::process::Command;

use crate::checkout::repository;
use crate::process::command::run;
use crate::servers::registry::Image;

/// Builds the layer of a program: the files of the operator's image, with this program in place of the operator.
/// Temporary files are written to `folder`.
pub(crate) async fn layer(program: &Path, folder: &Path) -> Result<Bytes> {
    let (files, archive) = (folder.join("image"), folder.join("image.tar"));
    // Debug symbols make up most of a program, and the node keeps its files in memory.
    let stripped = folder.join(program.file_name().unwrap_or_default());
    let mut strip = Command::new("strip");
    run(strip.arg("-o").arg(&stripped).arg(program), "").await?;
    let script = repository().join("e2e/image/files.sh");
    run(Command::new(script).arg(&stripped).arg(&files), "").await?;
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&files).arg("-cf").arg(&archive).arg(".");
    run(&mut tar, "").await?;
    let bytes = std::fs::read(&archive).with_context(|| archive.display().to_string())?;
    std::fs::remove_dir_all(&files)?;
    std::fs::remove_file(&archive)?;
    std::fs::remove_file(&stripped)?;
    Ok(bytes.into())
}

/// An image with this layer. It starts the program with these environment variables.
pub(crate) fn from_layer(layer: &Bytes, program: &Path, environment: &[String]) -> Image {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    Image {
        layer: layer.clone(),
        command: vec![format!("/{name}")],
        environment: environment.to_vec(),
    }
}

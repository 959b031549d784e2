//! The path of this repository, and its manifests.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// The root of the repository.
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The objects of a manifest. The path is relative to the root of the repository.
pub fn manifest(path: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(repository().join(path)).context(path.to_owned())?;
    let documents = serde_yaml_ng::Deserializer::from_str(&text).map(Value::deserialize);
    Ok(documents.collect::<Result<_, _>>()?)
}

//! Where the files of this repository are.

use std::path::PathBuf;

/// The top of the checkout.
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

//! Opens an address in the user's browser.

use std::process::{Command, Stdio};

/// Opens the address, or does nothing if there is no browser: the address has been printed.
pub fn open(address: &str) {
    let program = match cfg!(target_os = "macos") {
        true => "open",
        false => "xdg-open",
    };
    let mut command = Command::new(program);
    let quiet = command.arg(address).stdin(Stdio::null()).stdout(Stdio::null());
    drop(quiet.stderr(Stdio::null()).spawn());
}

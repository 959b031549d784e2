//! All end-to-end tests, in one program, so that they share one control plane.

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    e2e::trial::main(Vec::new())
}

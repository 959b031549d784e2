//! All end-to-end tests, in one program, so that they share one control plane.

use std::process::ExitCode;

mod api;
mod kubelet;

fn main() -> anyhow::Result<ExitCode> {
    let tests = [api::tests(), kubelet::tests()];
    e2e::trial::main(tests.into_iter().flatten().collect())
}

//! Tests on a node with a real kubelet and real containers, in addition to those on simulated nodes. On a machine
//! that cannot run such a node, they are skipped, and the reason is printed.

use std::process::ExitCode;

mod fixture;
mod in_place;
mod observation;
mod planted;
mod refused;
mod situations;

fn main() -> anyhow::Result<ExitCode> {
    let missing = tokio::runtime::Runtime::new()?.block_on(e2e::node::missing())?;
    if let Some(missing) = missing {
        println!("the tests on a real kubelet are skipped: {missing}");
        return Ok(ExitCode::SUCCESS);
    }
    e2e::trial::main(e2e::trial::all())
}

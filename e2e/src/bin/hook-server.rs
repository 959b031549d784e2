//! The web server of the walkthroughs: answers every call with the same person, on all loopback
//! addresses, so for every pod of the simulated nodes too.
//!
//! Usage: `hook-server [PORT]`, 9091 if none is given.

use anyhow::{Context, Result};
use e2e::servers::hook_server::HookServer;

#[tokio::main]
async fn main() -> Result<()> {
    let port = std::env::args().nth(1).map(|text| text.parse()).transpose();
    let port = port.context("usage: hook-server [PORT]")?.unwrap_or(9091);
    let server = HookServer::listen(port)
        .await
        .with_context(|| format!("port {port} is taken"))?;
    println!("answering on port {}", server.port());
    Ok(tokio::signal::ctrl_c().await?)
}

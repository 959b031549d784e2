//! The web server of the walkthroughs. It gives every call the same answer on all loopback addresses, which include
//! those of simulated pods.
//!
//! Usage: `hook-server [PORT]`, by default 9091.

use anyhow::{Context, Result};
use e2e::servers::hook_server::HookServer;

#[tokio::main]
async fn main() -> Result<()> {
    let port = std::env::args().nth(1).map(|text| text.parse()).transpose();
    let port = port.context("usage: hook-server [PORT]")?.unwrap_or(9091);
    let server = HookServer::start_on(port)
        .await
        .with_context(|| format!("cannot listen on port {port}"))?;
    println!("answering on port {}", server.port());
    Ok(tokio::signal::ctrl_c().await?)
}

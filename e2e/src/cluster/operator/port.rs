//! Ports for the servers of processes that run at the same time.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};
use tokio::net::TcpStream;

/// Below the ephemeral ports, because a port that is chosen here is bound only later.
const PORTS: Range<u32> = 20_000..30_000;

/// A port on which no process listens, and which no other test of this process gets.
pub async fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in PORTS {
        // Processes that run at the same time start at different ports.
        let number = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(PORTS.start + number % (PORTS.end - PORTS.start))?;
        // Connects instead of listening, because a listener could stay open for a moment after it is closed here: a
        // child process that is just being started has inherited it, and closes it only when it executes its program.
        if TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            return Ok(port);
        }
    }
    bail!("no port of {PORTS:?} is free")
}

//! An HTTP proxy that supports CONNECT and counts tunnels.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The proxy. It stops when dropped.
pub struct ConnectProxy {
    port: u16,
    tunnels: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

impl ConnectProxy {
    /// Starts a proxy.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let tunnels = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&tunnels);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let counter = Arc::clone(&counter);
                // If this fails, the client sees that the connection is closed.
                connections.spawn(async move {
                    let _ = tunnel(stream, &counter).await;
                });
            }
        });
        Ok(ConnectProxy { port, tunnels, _serving: serving })
    }

    /// The proxy's URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// How many tunnels have been opened so far.
    pub fn tunnels(&self) -> usize {
        self.tunnels.load(Ordering::Relaxed)
    }
}

async fn tunnel(stream: TcpStream, counter: &AtomicUsize) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut request = String::new();
    stream.read_line(&mut request).await?;
    let mut header = String::new();
    while stream.read_line(&mut header).await? > 2 {
        header.clear();
    }
    let address = request.strip_prefix("CONNECT ").context("no CONNECT")?;
    let address = address.split(' ').next().context("no address")?;
    let mut server = TcpStream::connect(address).await?;
    counter.fetch_add(1, Ordering::Relaxed);
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut stream, &mut server).await?;
    Ok(())
}

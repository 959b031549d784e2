//! A web server that sends raw bytes, with or without TLS.

use std::time::Duration;

use anyhow::Result;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;

use crate::servers::authority::acceptor;

/// The receive buffer of a server that does not read, and the length of its packets, in bytes.
const UNREAD_BUFFER: u32 = 4_096;
const UNREAD_SEGMENT: u32 = 536;

/// The response to each request.
#[derive(Clone, Debug)]
pub enum Raw {
    /// These bytes.
    Bytes(Vec<u8>),
    /// One byte per second, forever.
    Trickle,
    /// Endless bytes, as fast as the client reads.
    Endless,
    /// These bytes, again and again, as fast as the client reads.
    Flood(Vec<u8>),
    /// None: the request is accepted and never read. The receive buffer is small, and so are the packets, as across a
    /// real network.
    Unread,
}

impl Raw {
    /// A complete response.
    pub fn answer(status: &str, headers: &str, body: &[u8]) -> Self {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
        );
        Raw::Bytes([head.as_bytes(), body].concat())
    }
}

/// The server. It stops when dropped.
pub struct RawServer {
    /// The server's URL.
    pub url: String,
    task: JoinHandle<()>,
}

impl RawServer {
    /// Starts a server.
    pub async fn start(raw: Raw) -> Result<Self> {
        let listener = listener(&raw)?;
        let url = format!("http://{}/", listener.local_addr()?);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let raw = raw.clone();
                tokio::spawn(async move { serve(stream, &raw).await });
            }
        });
        Ok(RawServer { url, task })
    }

    /// Starts a server with TLS, and also returns the CA of its certificate (PEM).
    pub async fn start_tls(raw: Raw) -> Result<(Self, String)> {
        let (acceptor, ca) = acceptor(&[])?;
        let listener = listener(&raw)?;
        let url = format!("https://{}/", listener.local_addr()?);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (raw, acceptor) = (raw.clone(), acceptor.clone());
                tokio::spawn(async move {
                    // Fails if the client does not trust the certificate.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, &raw).await;
                    }
                });
            }
        });
        Ok((RawServer { url, task }, ca))
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn listener(raw: &Raw) -> Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    if matches!(raw, Raw::Unread) {
        socket.set_recv_buffer_size(UNREAD_BUFFER)?;
        SockRef::from(&socket).set_tcp_mss(UNREAD_SEGMENT)?;
    }
    socket.bind("127.0.0.1:0".parse()?)?;
    Ok(socket.listen(1_024)?)
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, raw: &Raw) {
    if matches!(raw, Raw::Unread) {
        // Until the client closes the connection, which needs no read.
        return std::future::pending().await;
    }
    // The requests of these tests fit into one packet.
    if stream.read(&mut [0; 8_192]).await.is_err() {
        return;
    }
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n";
    match raw {
        Raw::Bytes(bytes) => {
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
        }
        Raw::Trickle => {
            let _ = stream.write_all(head).await;
            while stream.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        Raw::Endless => {
            let _ = stream.write_all(head).await;
            while stream.write_all(&[b'x'; 65_536]).await.is_ok() {}
        }
        Raw::Flood(bytes) => {
            let bytes = bytes.repeat(1_000);
            while stream.write_all(&bytes).await.is_ok() {}
        }
        Raw::Unread => {}
    }
}

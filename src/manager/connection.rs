//! Connections for writes, on which nothing is sent without the lease.
//!
//! Between the moment a write is let through and its bytes on the wire there are queues: for a stream
//! of the connection, for a turn of the task that serves it. The process may be stopped in any of
//! them. So whatever goes to the kernel is checked once more, and the kernel is told not to deliver
//! late what a broken network holds up: not longer than nobody else can have taken the lease.

use std::future::Future;
use std::io::{Error, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use super::gate::{Gate, NotLeader};

/// How long the kernel goes on sending what nobody acknowledges: as long as others wait after a
/// leader's deadline.
const DELIVERY: Duration = Duration::from_secs(5);

/// Makes connections behind a gate.
#[derive(Clone)]
pub struct GatedConnector {
    inner: HttpConnector,
    gate: Arc<Gate>,
}

impl GatedConnector {
    /// Connections of this connector, behind this gate.
    pub fn new(mut inner: HttpConnector, gate: Arc<Gate>) -> Self {
        // Elsewhere operators are only built, by who builds the whole workspace.
        #[cfg(target_os = "linux")]
        inner.set_tcp_user_timeout(Some(DELIVERY));
        Self { inner, gate }
    }
}

impl Service<Uri> for GatedConnector {
    type Response = Gated;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Gated, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.inner.call(to);
        let gate = Arc::clone(&self.gate);
        Box::pin(async move {
            let stream = connecting.await?;
            // When the process ends, what was not delivered yet is not delivered any more.
            stream.inner().set_zero_linger()?;
            Ok(Gated { stream, gate })
        })
    }
}

/// A connection behind a gate.
pub struct Gated {
    stream: TokioIo<TcpStream>,
    gate: Arc<Gate>,
}

impl Gated {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut TokioIo<TcpStream>> {
        Pin::new(&mut self.get_mut().stream)
    }

    /// The stream, if something may be sent on it.
    fn open(self: Pin<&mut Self>) -> Result<Pin<&mut TokioIo<TcpStream>>, Error> {
        match self.gate.is_open() {
            true => Ok(self.stream()),
            false => Err(Error::other(NotLeader)),
        }
    }
}

impl Connection for Gated {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl Read for Gated {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        self.stream().poll_read(cx, buffer)
    }
}

impl Write for Gated {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        self.open()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        self.open()?.poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.stream().poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn nothing_is_sent_once_the_gate_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = format!("http://{}", listener.local_addr().unwrap());
        let gate = Gate::closed();
        gate.open_until(Instant::now() + Duration::from_secs(60));
        let mut connector = GatedConnector::new(HttpConnector::new(), Arc::clone(&gate));
        let connected = connector.call(to.parse().unwrap()).await.unwrap();
        let mut ours = TokioIo::new(connected);
        let (mut theirs, _) = listener.accept().await.unwrap();

        ours.write_all(b"in time").await.unwrap();
        gate.close();
        assert!(ours.write_all(b"late").await.is_err());
        drop(ours);
        let mut received = Vec::new();
        let _ = theirs.read_to_end(&mut received).await;
        assert!(!received.ends_with(b"late"), "{received:?}");
    }
}

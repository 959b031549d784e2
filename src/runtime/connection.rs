//! Connections for writes, on which nothing is sent without the lease.
//!
//! After the fence has admitted a request, the request may still wait for a stream of the connection, or for the task
//! that serves the connection, and the process may be frozen in the meantime. So the fence is checked again before
//! each write to the socket. The kernel stops resending data before another process may acquire the lease.

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

use super::fence::{Fence, NotLeader};

/// How long the kernel resends data that is not acknowledged: the time from a leader's deadline to the expiry of
/// its lease.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens connections that a fence guards.
#[derive(Clone)]
pub(super) struct FencedConnector {
    inner: HttpConnector,
    fence: Arc<Fence>,
}

impl FencedConnector {
    pub(super) fn new(mut inner: HttpConnector, fence: Arc<Fence>) -> Self {
        // The operator runs on Linux. On other systems, the workspace only has to build.
        #[cfg(target_os = "linux")]
        inner.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
        Self { inner, fence }
    }
}

impl Service<Uri> for FencedConnector {
    type Response = FencedStream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<FencedStream, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.inner.call(uri);
        let fence = Arc::clone(&self.fence);
        Box::pin(async move {
            let stream = connecting.await?;
            // This makes the kernel discard undelivered data when the process ends.
            stream.inner().set_zero_linger()?;
            Ok(FencedStream { stream, fence })
        })
    }
}

pub(super) struct FencedStream {
    stream: TokioIo<TcpStream>,
    fence: Arc<Fence>,
}

impl FencedStream {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut TokioIo<TcpStream>> {
        Pin::new(&mut self.get_mut().stream)
    }

    /// The stream, if the fence is open.
    fn stream_if_open(self: Pin<&mut Self>) -> Result<Pin<&mut TokioIo<TcpStream>>, Error> {
        match self.fence.is_open() {
            true => Ok(self.stream()),
            false => Err(Error::other(NotLeader)),
        }
    }
}

impl Connection for FencedStream {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl Read for FencedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        self.stream().poll_read(cx, buffer)
    }
}

impl Write for FencedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        self.stream_if_open()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        self.stream_if_open()?.poll_write_vectored(cx, parts)
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
    async fn nothing_is_sent_once_the_fence_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let fence = Fence::closed();
        fence.open_until(Instant::now() + Duration::from_secs(60));
        let mut connector = FencedConnector::new(HttpConnector::new(), Arc::clone(&fence));
        let connected = connector.call(url.parse().unwrap()).await.unwrap();
        let mut client = TokioIo::new(connected);
        let (mut server, _) = listener.accept().await.unwrap();

        client.write_all(b"in time").await.unwrap();
        fence.close();
        assert!(client.write_all(b"late").await.is_err());
        drop(client);
        let mut received = Vec::new();
        let _ = server.read_to_end(&mut received).await;
        assert!(!received.ends_with(b"late"), "{received:?}");
    }
}

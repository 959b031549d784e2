//! The connection of one call: it carries one request, has a byte budget, and ends with its call.
//!
//! A server may accept a request and never read it, or send interim responses, pings and settings forever. So nothing of
//! a connection is left to a pool: its tasks are aborted when the [`Connection`] is dropped, they hold the call's permit
//! until they are gone, and the kernel discards what the server has not read.

use std::io::{Error, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use http::header::HOST;
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::{Connected, Connection as Describe};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tower::{BoxError, Service};

use super::call_permit::PermitShare;
use super::http::cause;

/// The longest head of a response, and the most that a server may send ahead of what has been read; both in bytes.
const READ_AHEAD: usize = 32 << 10;
/// How much a server may send before its response begins, in bytes: a TLS handshake, settings, interim responses, and
/// the head.
const BEFORE_RESPONSE: u64 = 256 << 10;
/// How much more a server may send with its response, in bytes: a body of the maximum length, in small chunks.
const WITH_RESPONSE: u64 = 4 << 20;
/// How much is sent to a server, in bytes: the longest request, in encrypted frames, and replies to pings.
const SENT: u64 = 4 << 20;
/// How long the kernel retries to deliver the end of a completed call to a server that does not acknowledge it.
#[cfg(target_os = "linux")]
const END_TIMEOUT_MILLIS: u32 = 1_000;

/// An open connection.
pub(super) struct Connection {
    sender: Sender,
    #[expect(dead_code, reason = "aborts the tasks when it is dropped")]
    tasks: OwnTasks,
    meter: Arc<Meter>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    /// Connects with `tcp`, and with TLS if the URI is https. Both versions of HTTP are offered then.
    pub(super) async fn open<C>(
        tcp: C,
        uri: Uri,
        tls: Arc<ClientConfig>,
        share: PermitShare,
    ) -> Result<Self, String>
    where
        C: Service<Uri, Response = TokioIo<TcpStream>> + Send + 'static,
        C::Future: Send + 'static,
        C::Error: Into<BoxError>,
    {
        let meter = Arc::new(Meter::default());
        let own_tasks = OwnTasks::new(share);
        let tasks = own_tasks.0.clone();
        let metered = MeteredConnector { tcp, meter: Arc::clone(&meter) };
        let connected = HttpsConnector::from((metered, tls)).call(uri).await;
        let stream = connected.map_err(|error| cause(&*error))?;
        let sender = match stream.connected().is_negotiated_h2() {
            true => {
                let mut http2 = http2::Builder::new(tasks.clone());
                http2
                    .max_header_list_size(READ_AHEAD as u32)
                    .initial_stream_window_size(READ_AHEAD as u32)
                    .initial_connection_window_size(READ_AHEAD as u32);
                let handshake = http2.handshake(stream).await;
                let (sender, connection) = handshake.map_err(|error| cause(&error))?;
                tasks.spawn(async {
                    let _ = connection.await;
                });
                Sender::Http2(sender)
            }
            false => {
                let mut http1 = http1::Builder::new();
                // As browsers and curl do.
                http1
                    .max_buf_size(READ_AHEAD)
                    .allow_spaces_after_header_name_in_responses(true)
                    .allow_obsolete_multiline_headers_in_responses(true);
                let handshake = http1.handshake(stream).await;
                let (sender, connection) = handshake.map_err(|error| cause(&error))?;
                tasks.spawn(async {
                    let _ = connection.await;
                });
                Sender::Http1(sender)
            }
        };
        Ok(Connection { sender, tasks: own_tasks, meter })
    }

    /// Sends the request, and returns when the head of the response has arrived.
    pub(super) async fn send(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, String> {
        let response = match &mut self.sender {
            Sender::Http1(sender) => {
                to_http1(&mut request)?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => sender.send_request(request).await,
        };
        let response = response.map_err(|error| cause(&error))?;
        self.meter.may_receive.fetch_add(WITH_RESPONSE, Ordering::Relaxed);
        self.meter.has_response.store(true, Ordering::Relaxed);
        Ok(response)
    }

    /// Ends the connection after a complete response: the server is told that it ends, not that it failed.
    pub(super) fn complete(self) {
        self.meter.is_complete.store(true, Ordering::Relaxed);
    }
}

/// Adds the host, and leaves only the path in the request line.
fn to_http1(request: &mut Request<Full<Bytes>>) -> Result<(), String> {
    let uri = request.uri().clone();
    let host = uri.host().unwrap_or_default();
    let is_default = |port: u16| match uri.scheme() == Some(&Scheme::HTTPS) {
        true => port == 443,
        false => port == 80,
    };
    let host = match uri.port_u16().filter(|port| !is_default(*port)) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let host = HeaderValue::try_from(host).map_err(|error| error.to_string())?;
    request.headers_mut().entry(HOST).or_insert(host);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(|_| format!("{path} is not a path"))?;
    Ok(())
}

/// The tasks that drive a connection. hyper starts some of them itself.
#[derive(Clone)]
struct Tasks(Arc<Mutex<Option<Running>>>);

struct Running {
    tasks: JoinSet<()>,
    /// Each task holds a copy, so that the permit counts the connection until the last task is gone.
    share: PermitShare,
}

/// The tasks of a connection. They are aborted when this is dropped.
struct OwnTasks(Tasks);

impl OwnTasks {
    fn new(share: PermitShare) -> Self {
        let tasks = JoinSet::new();
        let running = Running { tasks, share };
        OwnTasks(Tasks(Arc::new(Mutex::new(Some(running)))))
    }
}

impl Drop for OwnTasks {
    fn drop(&mut self) {
        let mut running = self.0.lock();
        running.take();
    }
}

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // After the abort, nothing is started.
        if let Some(Running { tasks, share }) = &mut *self.lock() {
            let share = share.clone();
            tasks.spawn(async move {
                task.await;
                drop(share);
            });
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

/// What a connection may still carry, in bytes, and how far its call is.
struct Meter {
    may_receive: AtomicU64,
    may_send: AtomicU64,
    has_response: AtomicBool,
    is_complete: AtomicBool,
}

impl Default for Meter {
    fn default() -> Self {
        Meter {
            may_receive: AtomicU64::new(BEFORE_RESPONSE),
            may_send: AtomicU64::new(SENT),
            has_response: AtomicBool::new(false),
            is_complete: AtomicBool::new(false),
        }
    }
}

impl Meter {
    fn receive(&self, bytes: usize) -> Result<(), Error> {
        let exceeded = || match self.has_response.load(Ordering::Relaxed) {
            true => {
                format!("the server sent more than {} MiB with its response", WITH_RESPONSE >> 20)
            }
            false => format!(
                "the server sent more than {} KiB before its response",
                BEFORE_RESPONSE >> 10
            ),
        };
        take(&self.may_receive, bytes).map_err(|Exceeded| Error::other(exceeded()))
    }

    fn send(&self, bytes: usize) -> Result<(), Error> {
        take(&self.may_send, bytes).map_err(|Exceeded| {
            Error::other(format!("more than {} MiB were sent to the server", SENT >> 20))
        })
    }
}

struct Exceeded;

/// Takes these bytes from what is left.
fn take(left: &AtomicU64, bytes: usize) -> Result<(), Exceeded> {
    let bytes = bytes as u64;
    let taken =
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
    taken.map(drop).map_err(|_| Exceeded)
}

/// Opens TCP streams below TLS, with a meter.
struct MeteredConnector<C> {
    tcp: C,
    meter: Arc<Meter>,
}

impl<C> Service<Uri> for MeteredConnector<C>
where
    C: Service<Uri, Response = TokioIo<TcpStream>>,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    type Response = TokioIo<MeteredStream>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, meter) = (self.tcp.call(uri), Arc::clone(&self.meter));
        Box::pin(async move {
            let stream = connecting.await.map_err(Into::into)?.into_inner();
            Ok(TokioIo::new(MeteredStream { stream, meter }))
        })
    }
}

/// A TCP stream with its meter.
struct MeteredStream {
    stream: TcpStream,
    meter: Arc<Meter>,
}

impl Drop for MeteredStream {
    fn drop(&mut self) {
        match self.meter.is_complete.load(Ordering::Relaxed) {
            #[cfg(target_os = "linux")]
            true => {
                let _ =
                    rustix::net::sockopt::set_tcp_user_timeout(&self.stream, END_TIMEOUT_MILLIS);
            }
            // The kernel would keep what the server does not read, for as long as it likes.
            _ => drop(self.stream.set_zero_linger()),
        }
    }
}

impl Describe for MeteredStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for MeteredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), Error>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        Poll::Ready(self.meter.receive(buffer.filled().len() - before))
    }
}

impl MeteredStream {
    fn sent(&self, result: Poll<Result<usize, Error>>) -> Poll<Result<usize, Error>> {
        let bytes = ready!(result)?;
        Poll::Ready(self.meter.send(bytes).map(|()| bytes))
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::provider::call_permit::CallLimits;

    /// A task that cannot be aborted at once, because it is busy, still uses memory.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connection_counts_as_a_call_until_its_last_task_is_gone() {
        let limits = Arc::new(CallLimits::default());
        let permit = limits.enter("games").await;
        let tasks = OwnTasks::new(permit.share());
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (go, gate) = std::sync::mpsc::channel::<()>();
        tasks.0.spawn(async move {
            let _ = begun.send(());
            let _ = gate.recv();
        });
        has_begun.await.expect("the task runs");
        drop((permit, tasks));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(limits.calls.taken(), 1);
        drop(go);
        let released = async {
            while limits.calls.taken() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let released = tokio::time::timeout(Duration::from_secs(10), released).await;
        released.expect("the permit is released");
    }

    /// A server can make a client send as much as it sends itself: pings have replies.
    #[tokio::test]
    async fn what_is_sent_to_a_server_is_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let connected = tokio::join!(TcpStream::connect(address), listener.accept());
        let (stream, (mut server, _)) =
            (connected.0.expect("a client"), connected.1.expect("a server"));
        let mut stream = MeteredStream { stream, meter: Arc::default() };
        let reading = tokio::spawn(async move {
            let mut received = 0;
            let mut buffer = [0; 65_536];
            while let Ok(read @ 1..) = server.read(&mut buffer).await {
                received += read;
            }
            received
        });
        let piece = vec![0; 1 << 10];
        let mut sent = 0;
        let error = loop {
            match stream.write_all(&piece).await {
                Ok(()) => sent += piece.len() as u64,
                Err(error) => break error.to_string(),
            }
            assert!(sent <= SENT, "{sent} bytes");
        };
        assert_eq!((sent, error.as_str()), (SENT, "more than 4 MiB were sent to the server"));
        drop(stream);
        reading.await.expect("the server");
    }
}

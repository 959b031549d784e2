//! Serves one connection: TLS if it is used, then HTTP, each with timeouts, so that silent callers are disconnected.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;
use tracing::debug;

use super::open::Activity;

/// The timeout of the TLS handshake, and then of the first request.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may take to finish its requests when it is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection with requests in progress may take to answer them when it is closed to make room, or because
/// the process ends. API servers wait three seconds for a review.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a connection may be idle; this includes the time in which the client reads a response. API servers close
/// idle connections after 90 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// The interval of keep-alive pings, and their timeout.
const KEEP_ALIVE: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(10)];
/// The maximum number of concurrent requests on a connection. An API server that has more opens another connection.
const MAX_STREAMS: u32 = 32;
/// How many bytes of requests a connection buffers.
const WINDOW: u32 = 256 << 10;

/// Serves one connection with TLS.
pub(super) async fn serve_tls(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    app: Router,
    activity: &Arc<Activity>,
) {
    // Small responses must not wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let stream = match timeout(FIRST_REQUEST_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(%error, "TLS handshake failed"),
        Err(_) => return debug!("TLS handshake timed out"),
    };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    serve(stream, is_http2, app, activity).await;
}

/// Serves one connection without TLS. Kubelets and Prometheus use HTTP/1.1 without TLS.
pub(super) async fn serve_plain(stream: TcpStream, app: Router, activity: &Arc<Activity>) {
    let _ = stream.set_nodelay(true);
    serve(stream, false, app, activity).await;
}

/// Serves HTTP until the connection ends or is idle for too long.
async fn serve<S>(stream: S, is_http2: bool, app: Router, activity: &Arc<Activity>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, in_progress) = watch::channel(0);
    let recorder = Arc::clone(activity);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let guard = RequestInProgress::start(&sender, &recorder);
        let response = app.clone().oneshot(request);
        async {
            let _guard = guard;
            response.await
        }
    });
    let http = http(is_http2);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = &mut served => ended,
        () = until_idle(in_progress) => {
            served.as_mut().graceful_shutdown();
            timeout(CLOSE_TIMEOUT, served).await.unwrap_or(Ok(()))
        }
        () = activity.until_closing() => {
            served.as_mut().graceful_shutdown();
            timeout(ANSWER_TIMEOUT, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!(%error, "connection closed");
    }
}

/// The configuration of HTTP in the given version. Automatic detection of the version would have no timeout.
fn http(is_http2: bool) -> Builder<TokioExecutor> {
    let mut http = match is_http2 {
        true => Builder::new(TokioExecutor::new()).http2_only(),
        false => Builder::new(TokioExecutor::new()).http1_only(),
    };
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(FIRST_REQUEST_TIMEOUT)
        .max_buf_size(WINDOW as usize);
    let [interval, limit] = KEEP_ALIVE;
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(interval)
        .keep_alive_timeout(limit)
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    http
}

/// Counts a request as in progress until this is dropped.
struct RequestInProgress(watch::Sender<usize>, Arc<Activity>);

impl RequestInProgress {
    fn start(count: &watch::Sender<usize>, activity: &Arc<Activity>) -> Self {
        count.send_modify(|count| *count += 1);
        activity.record();
        RequestInProgress(count.clone(), Arc::clone(activity))
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
        self.1.record();
    }
}

/// Returns when there has been no request for too long since the last response.
async fn until_idle(mut in_progress: watch::Receiver<usize>) {
    let mut limit = FIRST_REQUEST_TIMEOUT;
    loop {
        let is_idle = *in_progress.borrow_and_update() == 0;
        let changed = in_progress.changed();
        let changed = match is_idle {
            true => timeout(limit, changed).await,
            false => Ok(changed.await),
        };
        let Ok(Ok(())) = changed else { return };
        limit = IDLE_TIMEOUT;
    }
}

//! One connection: TLS where it is spoken, then HTTP, each with its time. A caller that says nothing is not
//! waited for.

use std::pin::pin;
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

/// How long TLS may take, and then the first request.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection that is to be closed may take for requests already sent.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection may be idle, or take to read an answer; API servers close theirs after 90 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// How often a peer is asked whether it is still there, and how long it may take to answer.
const KEEP_ALIVE: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(10)];
/// Requests at a time; an API server that has more opens another connection.
const MAX_STREAMS: u32 = 32;
/// What may arrive of requests on a connection before it is read.
const WINDOW: u32 = 256 << 10;

/// Serves one connection with TLS.
pub(super) async fn encrypted(stream: TcpStream, acceptor: TlsAcceptor, app: Router) {
    // Without it, small answers wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let stream = match timeout(FIRST_REQUEST_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(%error, "TLS handshake failed"),
        Err(_) => return debug!("TLS handshake timed out"),
    };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    serve(stream, is_http2, app).await;
}

/// Serves one connection without TLS. Kubelets and Prometheus speak HTTP/1.1 on such.
pub(super) async fn plain(stream: TcpStream, app: Router) {
    let _ = stream.set_nodelay(true);
    serve(stream, false, app).await;
}

/// Speaks HTTP until the connection ends, or nothing is asked on it.
async fn serve<S>(stream: S, is_http2: bool, app: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (in_progress, asked) = watch::channel(0);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let one = RequestInProgress::begin(&in_progress);
        let answer = app.clone().oneshot(request);
        async {
            let _one = one;
            answer.await
        }
    });
    let http = http(is_http2);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = &mut served => ended,
        () = silence(asked) => {
            served.as_mut().graceful_shutdown();
            timeout(CLOSE_TIMEOUT, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!(%error, "connection closed");
    }
}

/// HTTP in a version that is known: to find it out by what is sent first has no time limit.
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

/// A request that is not answered yet.
struct RequestInProgress(watch::Sender<usize>);

impl RequestInProgress {
    fn begin(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        RequestInProgress(count.clone())
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Returns when nothing was asked for too long, counted from the last answer.
async fn silence(mut in_progress: watch::Receiver<usize>) {
    let mut limit = FIRST_REQUEST_TIMEOUT;
    loop {
        let is_quiet = *in_progress.borrow_and_update() == 0;
        let changed = in_progress.changed();
        let changed = match is_quiet {
            true => timeout(limit, changed).await,
            false => Ok(changed.await),
        };
        let Ok(Ok(())) = changed else { return };
        limit = IDLE_TIMEOUT;
    }
}

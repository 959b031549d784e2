//! Invariant 9. The fence in front of the API server: without the lease, no write is sent.
//!
//! Leadership can be lost between a decision and its write, for example while a request waits for a connection. So
//! the lease is checked in the transport, right before the request is sent. A request that has no response yet is
//! aborted when the lease expires.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use http::{Method, Request, header};
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, Layer, Service};

/// Refuses writes while this process does not hold the lease.
#[derive(Debug)]
pub(crate) struct Fence(Mutex<State>);

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Closed,
    OpenUntil(Instant),
    AlwaysOpen,
}

/// A write was not sent, or was aborted, because this process does not lead.
#[derive(Debug, thiserror::Error)]
#[error("this process does not hold the lease; nothing is written")]
pub(crate) struct NotLeader;

impl Fence {
    /// A fence for a process that must acquire a lease.
    pub(crate) fn closed() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Closed)))
    }

    /// A fence for a process that needs no lease.
    pub(crate) fn always_open() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::AlwaysOpen)))
    }

    pub(crate) fn open_until(&self, deadline: Instant) {
        self.set(State::OpenUntil(deadline));
    }

    pub(crate) fn close(&self) {
        self.set(State::Closed);
    }

    fn set(&self, state: State) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn state(&self) -> State {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_open(&self) -> bool {
        match self.state() {
            State::Closed => false,
            State::OpenUntil(deadline) => Instant::now() < deadline,
            State::AlwaysOpen => true,
        }
    }

    /// Returns when the fence is closed or its deadline has passed.
    async fn until_closed(&self) {
        loop {
            match self.state() {
                State::Closed => return,
                State::AlwaysOpen => std::future::pending().await,
                // Loops, because the lease may be renewed in the meantime.
                State::OpenUntil(deadline) if Instant::now() < deadline => {
                    sleep_until(deadline).await;
                }
                State::OpenUntil(_) => return,
            }
        }
    }
}

/// Whether a request changes nothing. Reads need no lease.
pub(crate) fn is_read<B>(request: &Request<B>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD) && !is_upgrade(request)
}

/// Whether a request upgrades its connection to another protocol. Its method does not show what follows: a command in
/// a container starts with a GET.
pub(crate) fn is_upgrade<B>(request: &Request<B>) -> bool {
    request.headers().contains_key(header::UPGRADE)
}

/// Puts a fence in front of every write.
#[derive(Clone)]
pub(crate) struct FenceLayer(pub Arc<Fence>);

impl<S> Layer<S> for FenceLayer {
    type Service = FencedService<S>;

    fn layer(&self, inner: S) -> FencedService<S> {
        FencedService { inner, fence: Arc::clone(&self.0) }
    }
}

#[derive(Clone)]
pub(crate) struct FencedService<S> {
    inner: S,
    fence: Arc<Fence>,
}

impl<S, B> Service<Request<B>> for FencedService<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if is_read(&request) {
            let response = self.inner.call(request);
            return Box::pin(async { response.await.map_err(Into::into) });
        }
        if !self.fence.is_open() {
            return Box::pin(async { Err(NotLeader.into()) });
        }
        let response = self.inner.call(request);
        let fence = Arc::clone(&self.fence);
        Box::pin(async move {
            tokio::select! {
                biased;
                response = response => response.map_err(Into::into),
                () = fence.until_closed() => Err(NotLeader.into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tower::{ServiceExt, service_fn};

    use super::*;

    fn request(method: Method) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = method;
        request
    }

    async fn send(fence: &Arc<Fence>, method: Method, count: &AtomicUsize) -> Result<(), BoxError> {
        send_request(fence, request(method), count).await
    }

    /// Sends a request to a server that responds after 5 s, and counts the responses.
    async fn send_request(
        fence: &Arc<Fence>,
        request: Request<()>,
        count: &AtomicUsize,
    ) -> Result<(), BoxError> {
        let server = service_fn(async |_: Request<()>| {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok::<_, Infallible>(())
        });
        let fenced = FenceLayer(Arc::clone(fence)).layer(server);
        let response = fenced.oneshot(request).await;
        count.fetch_add(usize::from(response.is_ok()), Ordering::SeqCst);
        response
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_lease_only_reads_are_sent() {
        let fence = Fence::closed();
        let count = AtomicUsize::new(0);
        for method in [Method::POST, Method::PATCH, Method::PUT, Method::DELETE] {
            let error = send(&fence, method, &count).await.unwrap_err();
            assert!(error.is::<NotLeader>());
        }
        assert!(send(&fence, Method::GET, &count).await.is_ok());
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    /// A command in a container starts with a GET.
    #[tokio::test(start_paused = true)]
    async fn without_the_lease_no_command_is_started() {
        let fence = Fence::closed();
        let count = AtomicUsize::new(0);
        let exec = || {
            let mut exec = request(Method::GET);
            let websocket = http::HeaderValue::from_static("websocket");
            exec.headers_mut().insert(header::UPGRADE, websocket);
            exec
        };
        let error = send_request(&fence, exec(), &count).await.unwrap_err();
        assert!(error.is::<NotLeader>());
        fence.open_until(Instant::now() + Duration::from_secs(60));
        assert!(send_request(&fence, exec(), &count).await.is_ok());
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_aborted_when_the_lease_expires() {
        let fence = Fence::closed();
        let count = AtomicUsize::new(0);
        fence.open_until(Instant::now() + Duration::from_secs(2));
        let started = Instant::now();
        assert!(send(&fence, Method::POST, &count).await.is_err());
        assert_eq!(started.elapsed(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_write_completes_if_the_lease_is_renewed() {
        let fence = Fence::closed();
        let count = AtomicUsize::new(0);
        fence.open_until(Instant::now() + Duration::from_secs(2));
        let renew = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            fence.open_until(Instant::now() + Duration::from_secs(10));
        };
        let (response, ()) = tokio::join!(send(&fence, Method::POST, &count), renew);
        assert!(response.is_ok());
    }
}

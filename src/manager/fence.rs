//! Invariant 9. The fence before the API server: without the lease, no write is sent.
//!
//! Leadership can be lost between a decision and its write, while a request waits for a connection
//! for example. So the lease is checked at the last place there is: the transport, right before the
//! request is sent. And a request that has not been answered when the lease runs out is given up.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use http::{Method, Request};
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, Layer, Service};

/// Holds writes back while this process does not hold the lease; open until a deadline.
#[derive(Debug)]
pub(super) struct Fence(Mutex<Until>);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Until {
    Closed,
    Open(Instant),
    Always,
}

/// A write was not begun, or given up, because this process does not lead.
#[derive(Debug, thiserror::Error)]
#[error("this process does not hold the lease; nothing is written")]
pub(super) struct NotLeader;

impl Fence {
    /// A fence for a process that must hold a lease: closed.
    pub(super) fn closed() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Until::Closed)))
    }

    /// A fence for a process that needs no lease: always open.
    pub(super) fn always_open() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Until::Always)))
    }

    pub(super) fn open_until(&self, deadline: Instant) {
        self.set(Until::Open(deadline));
    }

    pub(super) fn close(&self) {
        self.set(Until::Closed);
    }

    fn set(&self, until: Until) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    fn until(&self) -> Until {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether writes pass.
    pub(super) fn is_open(&self) -> bool {
        match self.until() {
            Until::Closed => false,
            Until::Open(deadline) => Instant::now() < deadline,
            Until::Always => true,
        }
    }

    /// Returns when the fence is closed or its deadline is over.
    async fn shut(&self) {
        loop {
            match self.until() {
                Until::Closed => return,
                Until::Always => std::future::pending().await,
                // The lease may be renewed meanwhile; then it is waited for again.
                Until::Open(deadline) if Instant::now() < deadline => sleep_until(deadline).await,
                Until::Open(_) => return,
            }
        }
    }
}

/// Whether a request changes nothing: reads need no lease.
pub(super) fn is_read<B>(request: &Request<B>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

/// Puts a fence before every write.
#[derive(Clone)]
pub(super) struct FenceLayer(pub Arc<Fence>);

impl<S> Layer<S> for FenceLayer {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated {
            inner,
            fence: Arc::clone(&self.0),
        }
    }
}

/// A service behind a fence.
#[derive(Clone)]
pub(super) struct Gated<S> {
    inner: S,
    fence: Arc<Fence>,
}

impl<S, B> Service<Request<B>> for Gated<S>
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
            let answer = self.inner.call(request);
            return Box::pin(async { answer.await.map_err(Into::into) });
        }
        if !self.fence.is_open() {
            return Box::pin(async { Err(NotLeader.into()) });
        }
        let answer = self.inner.call(request);
        let fence = Arc::clone(&self.fence);
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = answer => answer.map_err(Into::into),
                () = fence.shut() => Err(NotLeader.into()),
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

    /// A server that takes 5 s for each answer, and counts requests.
    async fn ask(fence: &Arc<Fence>, method: Method, sent: &AtomicUsize) -> Result<(), BoxError> {
        let server = service_fn(async |_: Request<()>| {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok::<_, Infallible>(())
        });
        let fenced = FenceLayer(Arc::clone(fence)).layer(server);
        let answer = fenced.oneshot(request(method)).await;
        sent.fetch_add(usize::from(answer.is_ok()), Ordering::SeqCst);
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_lease_only_reads_are_sent() {
        let fence = Fence::closed();
        let sent = AtomicUsize::new(0);
        for method in [Method::POST, Method::PATCH, Method::PUT, Method::DELETE] {
            let refused = ask(&fence, method, &sent).await.unwrap_err();
            assert!(refused.is::<NotLeader>());
        }
        assert!(ask(&fence, Method::GET, &sent).await.is_ok());
        assert_eq!(sent.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_given_up_when_the_lease_runs_out() {
        let fence = Fence::closed();
        let sent = AtomicUsize::new(0);
        fence.open_until(Instant::now() + Duration::from_secs(2));
        let begun = Instant::now();
        assert!(ask(&fence, Method::POST, &sent).await.is_err());
        assert_eq!(begun.elapsed(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewed_lease_lets_a_slow_write_end() {
        let fence = Fence::closed();
        let sent = AtomicUsize::new(0);
        fence.open_until(Instant::now() + Duration::from_secs(2));
        let renew = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            fence.open_until(Instant::now() + Duration::from_secs(10));
        };
        let (answer, ()) = tokio::join!(ask(&fence, Method::POST, &sent), renew);
        assert!(answer.is_ok());
    }
}

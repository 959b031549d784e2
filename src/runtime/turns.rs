//! The layer in which writes wait for a stream of their connection.
//!
//! It is the last place in which a write waits, so this is where it is checked whether the write may still be sent.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use hyper::body::{Body, Frame, SizeHint};
use tower::{BoxError, Layer, Service};

use super::fence::{is_read, is_upgrade};
use crate::runtime::fair::{SendBefore, Stream, Streams};

/// Lets writes wait for streams.
#[derive(Clone)]
pub(super) struct TurnsLayer(pub Arc<Streams>);

impl<S> Layer<S> for TurnsLayer {
    type Service = TurnsService<S>;

    fn layer(&self, inner: S) -> TurnsService<S> {
        TurnsService { inner, streams: Arc::clone(&self.0) }
    }
}

#[derive(Clone)]
pub(super) struct TurnsService<S> {
    inner: S,
    streams: Arc<Streams>,
}

/// The namespace in the path of a request; empty for objects without a namespace.
fn namespace(path: &str) -> &str {
    let mut rest = path.split('/').skip_while(|part| *part != "namespaces");
    rest.nth(1).unwrap_or_default()
}

impl<S, B, A> Service<Request<B>> for TurnsService<S>
where
    S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Send + 'static,
{
    type Response = Response<Streamed<A>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that is ready is used, and its clone is left for the next request.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let streams = Arc::clone(&self.streams);
        Box::pin(async move {
            // Commands in containers have connections of their own.
            let stream = match is_read(&request) || is_upgrade(&request) {
                true => None,
                false => Some(streams.take(namespace(request.uri().path())).await),
            };
            if let Some(deadline) = request.extensions().get::<SendBefore>() {
                deadline.check()?;
            }
            let response = inner.call(request).await.map_err(Into::<BoxError>::into)?;
            Ok(response.map(|body| Streamed { body, stream }))
        })
    }
}

/// The body of a response, whose stream is in use until the body ends.
pub(super) struct Streamed<A> {
    body: A,
    stream: Option<Stream>,
}

impl<A: Body + Unpin> Body for Streamed<A> {
    type Data = A::Data;
    type Error = A::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<A::Data>, A::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() {
            self.stream = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use http::Method;
    use tokio::sync::mpsc;
    use tokio::time::{Instant, sleep};
    use tower::{ServiceExt, service_fn};

    use super::*;
    use crate::runtime::fair::TooLate;

    fn request(method: Method, namespace: &str, deadline: Option<Instant>) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = method;
        let path = format!("/api/v1/namespaces/{namespace}/pods/a");
        *request.uri_mut() = path.parse().expect("a path");
        if let Some(deadline) = deadline {
            request.extensions_mut().insert(SendBefore(deadline));
        }
        request
    }

    #[test]
    fn the_path_names_the_namespace() {
        for (path, expected) in [
            ("/api/v1/namespaces/games/pods/a", "games"),
            ("/apis/apps/v1/namespaces/games/controllerrevisions", "games"),
            ("/apis/tkex.tencent.com/v1alpha1/sidecarsets/log", ""),
            ("/api/v1/namespaces", ""),
        ] {
            assert_eq!(namespace(path), expected, "{path}");
        }
    }

    /// A server holds the first writes. The next ones wait, and those that rest on a proof are not sent.
    #[tokio::test(start_paused = true)]
    async fn a_write_that_has_waited_too_long_is_not_sent() {
        let (sent, mut received) = mpsc::unbounded_channel();
        let server = service_fn(move |request: Request<()>| {
            let sent = sent.clone();
            async move {
                let _ = sent.send(request.method().clone());
                sleep(Duration::from_secs(5)).await;
                Ok::<_, Infallible>(Response::new(String::new()))
            }
        });
        let service = TurnsLayer(Arc::default()).layer(server);
        // A response that is not dropped keeps its stream.
        let call = |request| {
            let response = service.clone().oneshot(request);
            tokio::spawn(async { response.await.map(drop) })
        };
        let holding: Vec<_> =
            (0..100).map(|_| call(request(Method::POST, "games", None))).collect();
        sleep(Duration::from_millis(1)).await;
        let soon = Instant::now() + Duration::from_millis(500);
        let late = call(request(Method::DELETE, "games", Some(soon)));
        let unbounded = call(request(Method::PATCH, "games", None));
        // Other namespaces and reads do not wait.
        let other = call(request(Method::PUT, "other", Some(soon)));
        let read = call(request(Method::GET, "games", None));
        assert!(other.await.expect("a task").is_ok());
        assert!(read.await.expect("a task").is_ok());
        let refusal = late.await.expect("a task").err();
        assert!(refusal.is_some_and(|it| it.is::<TooLate>()));
        assert!(unbounded.await.expect("a task").is_ok());
        for task in holding {
            assert!(task.await.expect("a task").is_ok());
        }
        received.close();
        let mut methods = Vec::new();
        while let Some(method) = received.recv().await {
            methods.push(method);
        }
        assert_eq!(methods.len(), 103);
        assert!(!methods.contains(&Method::DELETE));
    }

    /// A response without an end would otherwise occupy a stream of the connection that is not counted.
    #[tokio::test(start_paused = true)]
    async fn a_stream_is_in_use_until_the_response_is_read() {
        let server = service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(String::from("a response")))
        });
        let service = TurnsLayer(Arc::default()).layer(server);
        let call = || {
            let response = service.clone().oneshot(request(Method::POST, "games", None));
            tokio::time::timeout(Duration::from_secs(1), response)
        };
        let mut unread = Vec::new();
        while let Ok(response) = call().await {
            unread.push(response.expect("a response"));
            assert!(unread.len() < 100);
        }
        unread.pop();
        assert!(call().await.is_ok());
    }
}

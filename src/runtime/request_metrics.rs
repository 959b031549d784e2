//! Metrics of requests to the API server, under client-go's names.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::runtime::metrics::{Counts, Timings};

/// The histogram buckets of client-go, in seconds.
const BUCKETS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

#[derive(Clone, Debug)]
pub(crate) struct ApiRequests {
    responses: Counts<ResponseLabels>,
    durations: Timings<RequestLabels>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct ResponseLabels {
    code: String,
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
}

impl Default for ApiRequests {
    fn default() -> Self {
        Self { responses: Counts::default(), durations: Timings::with_buckets(&BUCKETS) }
    }
}

impl ApiRequests {
    fn count(&self, method: &'static str, code: Option<StatusCode>, time: Duration) {
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.as_str().to_owned());
        self.responses.increment(ResponseLabels { code, method });
        self.durations.observe(RequestLabels { verb: method }, time);
    }
}

impl Collector for ApiRequests {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests to the API server";
        self.responses.encode(&mut to, "rest_client_requests", help)?;
        let name = "rest_client_request_duration_seconds";
        let help = "Time until the API server starts to respond";
        self.durations.encode(&mut to, name, help)
    }
}

fn label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "OTHER",
    }
}

impl<S> Layer<S> for ApiRequests {
    type Service = CountingService<S>;

    fn layer(&self, inner: S) -> CountingService<S> {
        let requests = self.clone();
        CountingService { inner, requests }
    }
}

/// A service whose requests are counted.
#[derive(Clone)]
pub(crate) struct CountingService<S> {
    inner: S,
    requests: ApiRequests,
}

impl<S, B, A> Service<Request<B>> for CountingService<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let method = label(request.method());
        let requests = self.requests.clone();
        let started = Instant::now();
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await;
            let code = response.as_ref().ok().map(Response::status);
            requests.count(method, code, started.elapsed());
            response
        })
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use tower::{ServiceExt, service_fn};

    use super::*;

    #[tokio::test]
    async fn requests_are_counted_by_method_and_code() {
        let requests = ApiRequests::default();
        for (method, code) in [
            (Method::GET, Ok(200)),
            (Method::GET, Ok(200)),
            (Method::PATCH, Ok(409)),
            (Method::POST, Err("no connection")),
        ] {
            let server = service_fn(move |_: Request<()>| async move {
                let code = code?;
                Response::builder().status(code).body(()).map_err(|_| "an invalid response")
            });
            let mut request = Request::new(());
            *request.method_mut() = method;
            // Only the metrics are checked.
            let _ = requests.layer(server).oneshot(request).await;
        }
        let mut registry = Registry::default();
        registry.register_collector(Box::new(requests));
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        for line in [
            "rest_client_requests_total{code=\"200\",method=\"GET\"} 2",
            "rest_client_requests_total{code=\"409\",method=\"PATCH\"} 1",
            "rest_client_requests_total{code=\"<error>\",method=\"POST\"} 1",
            "rest_client_request_duration_seconds_count{verb=\"GET\"} 2",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
    }
}

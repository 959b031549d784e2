//! The client of the API server: HTTP/2, without a client-side rate limit and without hidden retries. Commands in
//! containers need an upgrade, so they use HTTP/1.1.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper_rustls::builderstates::WantsProtocols1;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::client::legacy::{Client as Http, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use tower::{BoxError, Service, ServiceBuilder};

use super::connection::FencedConnector;
use super::fence::{Fence, FenceLayer, is_read, is_upgrade};
use super::turns::TurnsLayer;
use crate::runtime::request_metrics::ApiRequests;

const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("gamekeeper/", env!("CARGO_PKG_VERSION")));
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections are pinged after this time.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// The flow-control window of a stream, as in Go's client. The API server ends a watch as too slow if its window is
/// full while a thousand pods change.
const STREAM_WINDOW: u32 = 4 << 20;
/// The flow-control window of a connection, for all of its streams.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Why the client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The configuration is invalid.
    #[error(transparent)]
    Kube(#[from] kube::Error),
    /// The configured server name is not a host name.
    #[error("tls-server-name {0:?} is not a host name")]
    ServerName(String),
}

/// A client whose writes must pass the fence.
///
/// A write waits for one of the streams of its connection, of which namespaces take turns. Only then are its deadline
/// and the fence checked, and only the request counter is between the fence and the connection, so nothing delays a
/// write there. Writes have their own connection, which checks the fence again.
pub(crate) fn client(
    config: &Config,
    fence: Arc<Fence>,
    requests: &ApiRequests,
) -> Result<Client, ClientError> {
    let mut config = config.clone();
    config.headers.push((header::USER_AGENT, USER_AGENT));
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let fenced = FencedConnector::new(connector.clone(), Arc::clone(&fence));
    let connections = Connections {
        reads: http(https(&config)?.enable_all_versions().wrap_connector(connector)),
        writes: http(https(&config)?.enable_all_versions().wrap_connector(fenced.clone())),
        upgrades: http(https(&config)?.enable_http1().wrap_connector(fenced)),
    };
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .layer(TurnsLayer(Arc::default()))
        .layer(FenceLayer(fence))
        .layer(requests.clone())
        .map_err(BoxError::from)
        .service(connections);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// TLS, if the API server's URL is https.
fn https(config: &Config) -> Result<HttpsConnectorBuilder<WantsProtocols1>, ClientError> {
    let mut https = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|_| ClientError::ServerName(name.clone()))?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(https)
}

fn http<C: Connect + Clone>(connector: C) -> Http<C, Body> {
    Http::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_INTERVAL)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .build(connector)
}

/// Separate connections for reads and writes.
#[derive(Clone)]
struct Connections {
    reads: Http<HttpsConnector<HttpConnector>, Body>,
    writes: Http<HttpsConnector<FencedConnector>, Body>,
    /// Upgrades use HTTP/1.1, because HTTP/2 has none.
    upgrades: Http<HttpsConnector<FencedConnector>, Body>,
}

impl Service<Request<Body>> for Connections {
    type Response = Response<Incoming>;
    type Error = hyper_util::client::legacy::Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // Connections are opened on demand.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> ResponseFuture {
        match is_read(&request) {
            true => self.reads.call(request),
            false if is_upgrade(&request) => self.upgrades.call(request),
            false => self.writes.call(request),
        }
    }
}

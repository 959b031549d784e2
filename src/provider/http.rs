//! HTTP calls, bounded in time and size, and made only to addresses that hooks may call.
//!
//! Each request has a [`Connection`] of its own, which ends with it: idle connections would use memory and file
//! descriptors that no limiter counts. No proxy is used, because a proxy would resolve names itself, and the
//! addresses could not be checked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE,
    HeaderMap, HeaderName, HeaderValue, LOCATION, TRANSFER_ENCODING, USER_AGENT,
};
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use url::Url;

use super::address;
use super::call_permit::{CallPermit, MAX_SHORT_TEXT};
use super::connection::Connection;
use super::lookups::{LookupError, Lookups};
use super::secrets::Secrets;
use super::tls::{Authorities, Tls};
use gamekeeper_core::causes::in_plain_words;

/// The longest body of a response, in bytes.
pub(super) const MAX_RESPONSE: usize = 1 << 20;
/// How many redirects of a call are followed.
const MAX_REDIRECTS: usize = 5;
/// The user agent of hook calls.
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("gamekeeper/", env!("CARGO_PKG_VERSION")));

/// The content coding of responses: none.
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// What the operator's administrator allows.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpOptions {
    /// Allow calls to link-local and metadata addresses.
    pub allow_link_local: bool,
    /// Allow calls to loopback addresses: those of the operator itself and of other containers in its pod.
    pub allow_loopback: bool,
}

/// What all calls share.
pub(super) struct Http {
    options: HttpOptions,
    lookups: Arc<Lookups>,
    tls: Tls,
}

/// A complete request.
#[derive(Clone)]
pub(super) struct HttpRequest {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether any server certificate is accepted.
    pub insecure: bool,
    /// Authorities to trust in addition to, or instead of, the system's.
    pub ca: Option<Authorities>,
    pub timeout: Duration,
    /// What must not be shown of the request or of its response.
    pub secrets: Secrets,
}

impl HttpRequest {
    pub(super) fn new(method: Method, url: Url, timeout: Duration) -> Self {
        HttpRequest {
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            insecure: false,
            ca: None,
            timeout,
            secrets: Secrets::default(),
        }
    }
}

/// Why there is no complete response.
enum Failure {
    /// There is none at all, or none that counts.
    NoResponse(String),
    /// There is one with this status, but its body cannot be read.
    Unreadable(StatusCode, String),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Failure::NoResponse(why)
    }
}

/// A complete response. It may contain secrets.
pub(super) struct HttpResponse {
    pub status: StatusCode,
    pub body: Vec<u8>,
    /// The server, as shown in messages.
    pub from: String,
    pub elapsed: Duration,
    pub secrets: Secrets,
}

impl HttpResponse {
    /// The response without secrets. This is slow if there are many secrets.
    pub(super) fn without_secrets(self) -> Self {
        HttpResponse { body: self.secrets.hide_bytes(self.body), ..self }
    }
}

impl Http {
    /// Sets up TLS.
    ///
    /// # Errors
    /// Fails if TLS cannot be set up.
    pub(super) fn new(options: HttpOptions) -> Result<Self, rustls::Error> {
        Ok(Http { options, lookups: Arc::new(Lookups::new(options)), tls: Tls::new()? })
    }

    /// Makes a call. The timeout covers all of it, including redirects and the body.
    ///
    /// # Errors
    /// Names the server, and describes why it gave no response, or one that cannot be read.
    pub(super) async fn send(
        &self,
        request: HttpRequest,
        permit: &mut CallPermit,
    ) -> Result<HttpResponse, String> {
        let secrets = request.secrets.clone();
        let from = secrets.hide(shown(&request.url));
        let started = Instant::now();
        let limit = request.timeout;
        match tokio::time::timeout(limit, self.follow(request, permit)).await {
            Ok(Ok((status, body))) => {
                Ok(HttpResponse { status, body, from, elapsed: started.elapsed(), secrets })
            }
            Ok(Err(failure)) => {
                let (beginning, why) = match failure {
                    Failure::NoResponse(why) => ("no response".to_owned(), why),
                    Failure::Unreadable(status, why) => (format!("HTTP {}", status.as_u16()), why),
                };
                let why = secrets.hide(why);
                Err(format!("{beginning} from {from} in {}: {why}", millis(started.elapsed())))
            }
            Err(_) => Err(format!("no response from {from} within {} s", limit.as_secs())),
        }
    }

    async fn follow(
        &self,
        mut request: HttpRequest,
        permit: &mut CallPermit,
    ) -> Result<(StatusCode, Vec<u8>), Failure> {
        let tls = self.tls.config_for(request.insecure, request.ca.as_ref())?;
        for _ in 0..=MAX_REDIRECTS {
            self.check(&request.url)?;
            let mut connection = self.connect(&request.url, &tls, permit).await?;
            let response = connection.send(request.to_http_request()?).await?;
            let status = response.status();
            match redirect(status, response.headers()) {
                Some(location) => {
                    request.redirect(status, location)?;
                    connection.complete();
                }
                None => {
                    // The request need not stay in memory while the response is read.
                    drop(request);
                    let body = read(response, permit).await;
                    let body = body.map_err(|why| Failure::Unreadable(status, why))?;
                    connection.complete();
                    return Ok((status, body));
                }
            }
        }
        Err(format!("more than {MAX_REDIRECTS} redirects").into())
    }

    /// Connects to a server.
    async fn connect(
        &self,
        url: &Url,
        tls: &Arc<ClientConfig>,
        permit: &CallPermit,
    ) -> Result<Connection, String> {
        let namespace = Arc::<str>::from(permit.namespace());
        let lookups = Arc::clone(&self.lookups);
        let resolver = tower::service_fn(move |name: Name| {
            let (lookups, namespace) = (Arc::clone(&lookups), Arc::clone(&namespace));
            async move {
                let found = lookups.find(&namespace, name.as_str()).await?;
                // The connector sets the port.
                Ok::<_, LookupError>(found.map(|address| SocketAddr::new(address, 0)))
            }
        });
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let uri = without_user(url);
        let uri = uri.as_str().parse();
        let uri = uri.map_err(|error: http::uri::InvalidUri| error.to_string())?;
        // Without a type of its own, the compiler cannot show that this future may move between threads.
        let opening: BoxFuture<'static, Result<Connection, String>> =
            Box::pin(Connection::open(tcp, uri, Arc::clone(tls), permit.share()));
        opening.await
    }

    fn check(&self, url: &Url) -> Result<(), String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("{} is not supported: use http or https", url.scheme()));
        }
        address::check_host(url, self.options).map_err(|refused| refused.to_string())
    }
}

/// Reads the body. A body that is longer than the limit is an error, because a condition might depend on the part that
/// would be cut off. A compressed body, which was not requested, is also an error, because a few kilobytes can expand
/// to gigabytes.
async fn read(response: Response<Incoming>, permit: &mut CallPermit) -> Result<Vec<u8>, String> {
    for name in [CONTENT_ENCODING, TRANSFER_ENCODING] {
        for codings in response.headers().get_all(&name) {
            let codings = String::from_utf8_lossy(codings.as_bytes());
            codings.split(',').map(str::trim).try_for_each(|coding| check_coding(&name, coding))?;
        }
    }
    let (mut incoming, mut body) = (response.into_body(), Vec::new());
    while let Some(frame) = incoming.frame().await {
        let incomplete = |error| format!("the response is incomplete: {}", cause(&error));
        let frame = frame.map_err(incomplete)?;
        let chunk = frame.into_data().unwrap_or_default();
        let length = body.len() + chunk.len();
        if length > MAX_RESPONSE {
            let max = MAX_RESPONSE >> 20;
            return Err(format!("the response is longer than {max} MiB"));
        }
        if length > MAX_SHORT_TEXT {
            permit.grow().await;
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Checks that a coding leaves the body as it is. Some servers name a character set, a type or a transfer encoding in
/// Content-Encoding.
fn check_coding(header: &HeaderName, coding: &str) -> Result<(), String> {
    const NONE: [&str; 12] = [
        "",
        "identity",
        "none",
        "chunked",
        "aws-chunked",
        "7bit",
        "8bit",
        "binary",
        "us-ascii",
        "ascii",
        "text",
        "utf",
    ];
    const COMPRESSIONS: [&str; 9] =
        ["gzip", "x-gzip", "deflate", "compress", "x-compress", "br", "zstd", "dcb", "dcz"];
    const CHARACTER_SETS: [&str; 4] = ["utf-", "utf8", "iso-8859-", "windows-125"];
    let name = coding.trim_matches(['"', '\'']).to_ascii_lowercase();
    let name = name.strip_prefix("charset=").unwrap_or(&name);
    let is_none = NONE.contains(&name)
        || CHARACTER_SETS.iter().any(|set| name.starts_with(set))
        || name.contains('/');
    if is_none {
        return Ok(());
    }
    if COMPRESSIONS.contains(&name) {
        return Err(format!(
            "the response is compressed ({coding}), although the request accepts only identity; disable \
             compression in the server"
        ));
    }
    Err(format!("the response has an unknown coding ({header}: {coding}); send it without"))
}

/// Where a response redirects to. Some servers do not encode what is not ASCII.
fn redirect(status: StatusCode, headers: &HeaderMap) -> Option<&str> {
    match status.as_u16() {
        301 | 302 | 303 | 307 | 308 => std::str::from_utf8(headers.get(LOCATION)?.as_bytes()).ok(),
        _ => None,
    }
}

impl HttpRequest {
    /// The request to send. The user and password of the URL are moved to a header.
    fn to_http_request(&self) -> Result<http::Request<Full<Bytes>>, String> {
        let user = user(&self.url);
        let url = without_user(&self.url);
        let request = http::Request::builder().method(&self.method).uri(url.as_str());
        let request = request.body(Full::new(self.body.clone()));
        let mut request = request.map_err(|error| error.to_string())?;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, AGENT);
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(ACCEPT_ENCODING, IDENTITY);
        headers.extend(user.map(|user| (AUTHORIZATION, user)));
        headers.extend(self.headers.clone());
        Ok(request)
    }

    /// Changes the request so that it follows a redirect.
    fn redirect(&mut self, status: StatusCode, location: &str) -> Result<(), String> {
        let next = self.url.join(location).map_err(|error| format!("bad redirect: {error}"))?;
        let keeps_method = matches!(status.as_u16(), 307 | 308) || self.method == Method::GET;
        if next.origin() != self.url.origin() {
            // The body and the headers may contain secrets that are meant only for the first server.
            if keeps_method && !self.body.is_empty() {
                return Err(format!(
                    "HTTP {} redirects the body to another server, {}: set url to that server if it \
                     should receive the body",
                    status.as_u16(),
                    next.origin().ascii_serialization()
                ));
            }
            keep_only_content_type(&mut self.headers);
        }
        if !keeps_method {
            self.method = Method::GET;
            self.body = Bytes::new();
            self.headers.remove(CONTENT_TYPE);
            self.headers.remove(CONTENT_LENGTH);
        }
        self.url = next;
        Ok(())
    }
}

/// The URL without user, password and fragment.
fn without_user(url: &Url) -> Url {
    let mut url = url.clone();
    // These fail only for URLs without a host, which hold no user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    url
}

fn keep_only_content_type(headers: &mut HeaderMap) {
    let content_type = headers.remove(CONTENT_TYPE);
    headers.clear();
    headers.extend(content_type.map(|content_type| (CONTENT_TYPE, content_type)));
}

/// The header for the user and password of a URL, if it has them.
fn user(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut user: Vec<u8> = percent_decode_str(url.username()).collect();
    user.push(b':');
    user.extend(percent_decode_str(url.password().unwrap_or_default()));
    let mut header = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(user))).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// The innermost cause of a failed call: the outer errors only describe what was attempted.
pub(super) fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    in_plain_words(innermost.to_string())
}

/// A URL for messages: without user, password and query, which may hold secrets.
pub(super) fn shown(url: &Url) -> String {
    let mut url = without_user(url);
    url.set_query(None);
    url.into()
}

/// Elapsed time for messages.
pub(super) fn millis(elapsed: Duration) -> String {
    format!("{} ms", elapsed.as_millis())
}

//! HTTP calls: pooled, bounded in time and size, and to nowhere that is refused.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Certificate, Client, ClientBuilder, Method, StatusCode, Url};

use super::address::{self, Resolver};
use super::room::{Room, SHORT};
use super::secrets::Secrets;

/// Longest answer.
pub(super) const MAX_ANSWER: usize = 1 << 20;
/// What a server may send ahead of what is read, on HTTP/2: for one answer, and for all of a
/// connection.
const WINDOWS: (u32, u32) = (64 << 10, 256 << 10);
/// Clients with a CA of their own that are kept; beyond that all are forgotten and made anew.
const MAX_TRUSTING: usize = 64;
/// Redirects that are followed.
const MAX_REDIRECTS: usize = 5;
/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(20);

/// What the operator's administrator decides.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpOptions {
    /// Allow calls to link-local and metadata addresses.
    pub allow_link_local: bool,
    /// Allow calls to loopback addresses, which lead to the operator itself and its neighbours in the pod.
    pub allow_loopback: bool,
}

/// The clients that all calls share.
pub struct Http {
    options: HttpOptions,
    checking: Client,
    insecure: Client,
    /// Clients for servers with a CA of their own, by its certificates.
    trusting: Mutex<HashMap<Authorities, Client>>,
}

/// A request, complete.
#[derive(Clone)]
pub(super) struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether any server certificate will do.
    pub insecure: bool,
    /// Whom to trust besides, or instead of, the system's authorities.
    pub ca: Option<Authorities>,
    pub timeout: Duration,
    /// What must not be seen of it, nor of its answer.
    pub secrets: Secrets,
}

impl Request {
    pub(super) fn new(method: Method, url: Url, timeout: Duration) -> Self {
        Request {
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

/// Certificates (PEM) of authorities that a metric names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Authorities {
    /// They alone are trusted.
    Only(String),
    /// They are trusted as the system's are.
    Also(String),
}

/// An answer, complete. It may hold secrets.
pub(super) struct Answer {
    pub status: StatusCode,
    pub body: Vec<u8>,
    /// Where it came from, as a message tells it.
    pub from: String,
    pub elapsed: Duration,
    pub secrets: Secrets,
}

impl Answer {
    /// The answer without secrets. That takes a while where there are many.
    pub(super) fn shown(self) -> Self {
        Answer {
            body: self.secrets.hide_bytes(self.body),
            ..self
        }
    }
}

impl Http {
    /// Sets the clients up.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(options: HttpOptions) -> Result<Self, reqwest::Error> {
        // reqwest is built without a default; another part of the process may have set it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || builder(options);
        Ok(Http {
            options,
            // An image without root certificates still makes plain calls; https then fails by name.
            checking: builder().build().or_else(|_| {
                let roots = rustls::RootCertStore::empty();
                let tls = rustls::ClientConfig::builder().with_root_certificates(roots);
                builder()
                    .tls_backend_preconfigured(tls.with_no_client_auth())
                    .build()
            })?,
            insecure: builder().tls_danger_accept_invalid_certs(true).build()?,
            trusting: Mutex::default(),
        })
    }

    /// The client for a request.
    fn client(&self, request: &Request) -> Result<Client, String> {
        let Some(ca) = &request.ca else {
            return Ok(match request.insecure {
                true => self.insecure.clone(),
                false => self.checking.clone(),
            });
        };
        let mut known = self.trusting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = known.get(ca) {
            return Ok(client.clone());
        }
        let bad = |error: reqwest::Error| format!("caSecret: {}", cause(&error));
        let (Authorities::Only(pem) | Authorities::Also(pem)) = ca;
        let certificates = Certificate::from_pem_bundle(pem.as_bytes()).map_err(bad)?;
        if certificates.is_empty() {
            return Err("caSecret: there is no certificate in it; write PEM".into());
        }
        let builder = match ca {
            Authorities::Only(_) => builder(self.options).tls_certs_only(certificates),
            Authorities::Also(_) => builder(self.options).tls_certs_merge(certificates),
        };
        let client = builder.build().map_err(bad)?;
        if known.len() >= MAX_TRUSTING {
            known.clear();
        }
        known.insert(ca.clone(), client.clone());
        Ok(client)
    }

    /// Makes a call; the time limit holds for all of it, redirects and body included.
    ///
    /// # Errors
    /// Tells in words why there is no answer, and from where.
    pub(super) async fn send(&self, request: Request, room: &mut Room) -> Result<Answer, String> {
        let secrets = request.secrets.clone();
        let from = secrets.hide(shown(&request.url));
        let begun = Instant::now();
        let limit = request.timeout;
        match tokio::time::timeout(limit, self.follow(request, room)).await {
            Ok(Ok((status, body))) => Ok(Answer {
                status,
                body,
                from,
                elapsed: begun.elapsed(),
                secrets,
            }),
            Ok(Err(why)) => {
                let why = secrets.hide(why);
                Err(format!(
                    "no answer from {from} in {}: {why}",
                    millis(begun.elapsed())
                ))
            }
            Err(_) => Err(format!(
                "no answer from {from} within {} s",
                limit.as_secs()
            )),
        }
    }

    async fn follow(
        &self,
        mut request: Request,
        room: &mut Room,
    ) -> Result<(StatusCode, Vec<u8>), String> {
        let client = self.client(&request)?;
        for _ in 0..=MAX_REDIRECTS {
            self.check(&request.url)?;
            let response = client
                .request(request.method.clone(), request.url.clone())
                .headers(request.headers.clone())
                .body(request.body.clone())
                .send()
                .await
                .map_err(|error| cause(&error))?;
            let status = response.status();
            match redirect(status, response.headers()) {
                Some(location) => request.redirect(status, location)?,
                None => {
                    // What was sent need not be held beside what is answered.
                    drop(request);
                    return Ok((status, read(response, room).await?));
                }
            }
        }
        Err(format!("more than {MAX_REDIRECTS} redirects"))
    }

    fn check(&self, url: &Url) -> Result<(), String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!(
                "{} is not called: write http or https",
                url.scheme()
            ));
        }
        address::check_host(url, self.options).map_err(|refused| refused.to_string())
    }
}

/// Reads the body. One that is longer than the limit is an error: what was cut off might be what the
/// condition is about.
async fn read(mut response: reqwest::Response, room: &mut Room) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| cause(&error))? {
        let length = body.len() + chunk.len();
        if length > MAX_ANSWER {
            let most = MAX_ANSWER >> 20;
            return Err(format!("the answer is longer than {most} MiB"));
        }
        if length > SHORT {
            room.grow().await;
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn builder(options: HttpOptions) -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("gamekeeper/", env!("CARGO_PKG_VERSION")))
        // A proxy would resolve names where no address can be checked.
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .http2_initial_stream_window_size(WINDOWS.0)
        .http2_initial_connection_window_size(WINDOWS.1)
        .pool_idle_timeout(IDLE)
        .dns_resolver(Resolver { options })
}

fn redirect(status: StatusCode, headers: &HeaderMap) -> Option<&str> {
    match status.as_u16() {
        301 | 302 | 303 | 307 | 308 => headers.get(LOCATION)?.to_str().ok(),
        _ => None,
    }
}

impl Request {
    /// Points the request to where it is redirected.
    fn redirect(&mut self, status: StatusCode, location: &str) -> Result<(), String> {
        let next = self
            .url
            .join(location)
            .map_err(|error| format!("bad redirect: {error}"))?;
        let keeps_method = matches!(status.as_u16(), 307 | 308) || self.method == Method::GET;
        if next.origin() != self.url.origin() {
            // What may hold secrets is meant for the first server alone.
            if keeps_method && !self.body.is_empty() {
                return Err(format!(
                    "HTTP {} sends the body on to another server, {}: write its url, if it is to \
                     have the body",
                    status.as_u16(),
                    next.origin().ascii_serialization()
                ));
            }
            forget_all_but_content(&mut self.headers);
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

fn forget_all_but_content(headers: &mut HeaderMap) {
    let content_type = headers.remove(CONTENT_TYPE);
    headers.clear();
    headers.extend(content_type.map(|content_type| (CONTENT_TYPE, content_type)));
}

/// The innermost reason of a failed call: the outer ones only repeat the URL.
fn cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// A URL for messages: without user, password and query, which may hold secrets.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // These fail only for URLs without a host, which hold no user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

/// Elapsed time for messages.
pub(super) fn millis(elapsed: Duration) -> String {
    format!("{} ms", elapsed.as_millis())
}

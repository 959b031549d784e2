//! An endless watch: lists, watches, resumes, and relists when the resource version has expired.
//!
//! `kube::runtime::watcher` is not used because it starts streaming lists at resourceVersion 0 (from the server's
//! possibly stale cache), does not pass bookmarks on (without them, a kind whose objects rarely change is never known
//! to be up to date), and, if an object cannot be decoded, drops its event without naming the object.
//!
//! Guarantees: a list is never older than its request; between two lists, every change is passed on once, in
//! order. Only the identity and the controller of an object are decoded here. The rest is passed on as text,
//! so that unneeded objects are not decoded at all.

mod object;

use std::borrow::Cow;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use http::{Request, header};
use kube::Client;
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use self::object::{Headed, decode};
use crate::runtime::jitter::jittered;
use gamekeeper_core::causes::with_causes;

pub(crate) use self::object::version_number;
pub use self::object::{Identity, Object};

/// Seconds after which the server ends a watch, which is then resumed.
const WATCH_SECONDS: u64 = 290;
/// The shortest watch that ends with a bookmark: a server sends one two seconds before it ends a watch.
const BOOKMARK_SECONDS: u64 = 3;
/// The timeout of a watch without events. The server should have ended the watch by then.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS + 10);
/// The timeout of a response's head, of a page of a list, and of a streamed list without progress. An
/// overloaded server queues requests for half that time, and then refuses them.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of objects in one page of a list, if the server cannot stream lists.
const PAGE_SIZE: usize = 500;
/// The longest page, in bytes. If the objects are large, a page has fewer of them.
const MAX_PAGE: u64 = 16 << 20;
/// A watch that lasted this long resets the backoff.
const HEALTHY_AFTER: Duration = Duration::from_secs(1);
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// What a watch passes on. `O` is the type of the objects.
#[derive(Debug)]
pub(super) enum Change<O> {
    /// A list starts: [`Change::Listed`] objects follow until [`Change::ListEnd`].
    ListBegin,
    Listed(Identity, O),
    /// The list is complete: other objects do not exist.
    ListEnd(u64),
    /// An object is new or has changed.
    Applied(Identity, O),
    Deleted(Identity),
    /// There are no further changes up to this resourceVersion.
    Bookmark(u64),
}

/// A collection to watch.
#[derive(Clone)]
pub(crate) struct Source {
    pub client: Client,
    pub path: String,
    pub metadata_only: bool,
    /// Whether the server can stream lists (Kubernetes 1.33 and up).
    pub streaming: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum WatchError {
    #[error("the resource version of the watch is too old")]
    Expired,
    #[error("the server does not support streaming lists")]
    NotStreaming,
    #[error(transparent)]
    Client(#[from] kube::Error),
    #[error("connection failed: {0}")]
    Broken(#[from] std::io::Error),
    #[error("cannot decode: {0}")]
    Garbled(#[from] serde_json::Error),
    #[error("the server returned {code}: {message}")]
    Refused { code: u16, message: String },
    #[error("no watch event for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("no response within {} s", .0.as_secs())]
    NoResponse(Duration),
    #[error("a page of the list is longer than {MAX_PAGE} bytes")]
    TooLong,
}

impl WatchError {
    fn from_status(status: &Status) -> Self {
        match status.code {
            410 => WatchError::Expired,
            code => WatchError::Refused { code, message: status.message.clone() },
        }
    }
}

/// Watches forever. Relists when `until_list_is_due` returns. When `until_bookmark_is_due` returns, resumes with a watch
/// that ends soon, and therefore with a bookmark.
pub(super) async fn watch<F: Future<Output = ()>, G: Future<Output = ()>>(
    mut source: Source,
    until_list_is_due: impl Fn() -> F,
    until_bookmark_is_due: impl Fn() -> G,
    mut pass_on: impl FnMut(Change<Object<'_>>),
) {
    let mut position: Option<String> = None;
    let mut backoff = MIN_BACKOFF;
    let mut next_seconds = WATCH_SECONDS;
    loop {
        let seconds = std::mem::replace(&mut next_seconds, WATCH_SECONDS);
        let started = Instant::now();
        let start_position = position.clone();
        let result = tokio::select! {
            biased;
            result = source.follow(&mut position, seconds, &mut pass_on) => result,
            () = until_list_is_due() => {
                position = None;
                continue;
            }
            () = until_bookmark_is_due(), if seconds == WATCH_SECONDS => {
                next_seconds = BOOKMARK_SECONDS;
                continue;
            }
        };
        // A server also ends watches whose client is too slow; a delay here would make the client even slower.
        let is_healthy = started.elapsed() > HEALTHY_AFTER || position != start_position;
        if is_healthy {
            backoff = MIN_BACKOFF;
        }
        match result {
            Ok(()) if is_healthy => continue,
            Ok(()) => debug!(path = source.path, "watch ended immediately"),
            Err(WatchError::Expired) => {
                debug!(path = source.path, "watch expired; relisting");
                position = None;
            }
            Err(WatchError::NotStreaming) => {
                source.streaming = false;
                continue;
            }
            Err(error) => {
                warn!(path = source.path, error = %with_causes(&error), "watch interrupted");
            }
        }
        sleep(jittered(backoff)).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

impl Source {
    /// Runs one watch for this time, from the position if there is one, or else from a list.
    async fn follow(
        &self,
        position: &mut Option<String>,
        seconds: u64,
        pass_on: &mut impl FnMut(Change<Object<'_>>),
    ) -> Result<(), WatchError> {
        if position.is_none() && !self.streaming {
            *position = Some(self.list(pass_on).await?);
        }
        let start = match position.as_deref() {
            Some(version) => format!("resourceVersion={version}"),
            None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
        };
        let query = format!("watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&{start}");
        let listing = position.is_none();
        if listing {
            pass_on(Change::ListBegin);
        }
        let mut lines = match response(self.client.request_stream(self.request(&query)?)).await {
            Err(WatchError::Refused { code: 400 | 422, message }) if listing => {
                debug!(path = self.path, message, "no streaming lists");
                return Err(WatchError::NotStreaming);
            }
            lines => lines?,
        };
        let mut line = Vec::new();
        loop {
            let limit = match position {
                None => RESPONSE_TIMEOUT,
                Some(_) => SILENCE_TIMEOUT,
            };
            if !next_line(&mut lines, &mut line, limit).await? {
                return Ok(());
            }
            decode(&line, position, pass_on)?;
        }
    }

    /// Lists the most recent state in pages, and returns the position to watch from.
    async fn list(
        &self,
        pass_on: &mut impl FnMut(Change<Object<'_>>),
    ) -> Result<String, WatchError> {
        pass_on(Change::ListBegin);
        let mut pass_on_item =
            |identity: Identity, object: Object<'_>| pass_on(Change::Listed(identity, object));
        let version = self.pages(&mut pass_on_item).await?;
        pass_on(Change::ListEnd(version_number(&version)));
        Ok(version)
    }

    /// Lists the most recent state of one namespace.
    pub(super) async fn list_namespace(
        &self,
        namespace: &str,
        mut pass_on: impl FnMut(Identity, Object<'_>),
    ) -> Result<(), WatchError> {
        let source = Self { path: in_namespace(&self.path, namespace), ..self.clone() };
        source.pages(&mut pass_on).await.map(|_| ())
    }

    /// Lists the most recent state in pages, and returns its version.
    async fn pages(
        &self,
        pass_on: &mut impl FnMut(Identity, Object<'_>),
    ) -> Result<String, WatchError> {
        let (mut size, mut position) = (PAGE_SIZE, String::new());
        loop {
            let request = self.request(&format!("limit={size}{position}"))?;
            let text = match timeout(RESPONSE_TIMEOUT, self.page(request)).await {
                Ok(Err(WatchError::TooLong)) if size > 1 => {
                    size = (size / 8).max(1);
                    continue;
                }
                Ok(text) => text?,
                Err(_) => return Err(WatchError::NoResponse(RESPONSE_TIMEOUT)),
            };
            let page: Page = serde_json::from_slice(&text)?;
            for item in page.items.iter().flatten() {
                let head: Headed<Identity> = serde_json::from_str(item.get())?;
                pass_on(head.metadata, Object::Item(item.get()));
            }
            match page.metadata.next.as_deref() {
                None | Some("") => return Ok(page.metadata.resource_version.into_owned()),
                Some(next) => position = format!("&continue={next}"),
            }
            size = (size * 2).min(PAGE_SIZE);
        }
    }

    /// Reads one page of a list.
    async fn page(&self, request: Request<Vec<u8>>) -> Result<Vec<u8>, WatchError> {
        let body = response(self.client.request_stream(request)).await?;
        let mut text = Vec::new();
        let mut body = std::pin::pin!(body.take(MAX_PAGE + 1));
        body.read_to_end(&mut text).await?;
        match text.len() as u64 > MAX_PAGE {
            true => Err(WatchError::TooLong),
            false => Ok(text),
        }
    }

    /// The server's newest resourceVersion, from a list that cannot be stale.
    pub(crate) async fn newest(&self) -> Result<u64, kube::Error> {
        let text = self.read("limit=1").await?;
        let page: Page = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
        Ok(version_number(&page.metadata.resource_version))
    }

    /// The newest resourceVersion of the objects in the collection, from a list of their metadata that cannot be stale.
    /// A watch reaches this version without a bookmark, unlike the one that [`Source::newest`] returns. Only for kinds
    /// with few objects.
    pub(crate) async fn newest_object(&self) -> Result<u64, kube::Error> {
        let metadata_source = Self { metadata_only: true, ..self.clone() };
        let text = metadata_source.read("").await?;
        let parse = || -> Result<u64, serde_json::Error> {
            let page: Page = serde_json::from_str(&text)?;
            let mut newest = 0;
            for item in page.items.iter().flatten() {
                let head: Headed<Identity> = serde_json::from_str(item.get())?;
                newest = head.metadata.version().max(newest);
            }
            Ok(newest)
        };
        parse().map_err(kube::Error::SerdeError)
    }

    async fn read(&self, query: &str) -> Result<String, kube::Error> {
        let request = self.request(query).map_err(kube::Error::HttpError)?;
        let text = timeout(RESPONSE_TIMEOUT, self.client.request_text(request)).await;
        text.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))
    }

    fn request(&self, query: &str) -> Result<Request<Vec<u8>>, http::Error> {
        let accept = match (self.metadata_only, query.starts_with("watch")) {
            (false, _) => "application/json",
            (true, true) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            (true, false) => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        };
        Request::get(format!("{}?{query}", self.path))
            .header(header::ACCEPT, accept)
            .body(Vec::new())
    }
}

impl From<http::Error> for WatchError {
    fn from(error: http::Error) -> Self {
        WatchError::Client(kube::Error::HttpError(error))
    }
}

/// The path of a collection in one namespace, if the path is that of all namespaces.
fn in_namespace(path: &str, namespace: &str) -> String {
    match path.rsplit_once('/') {
        Some((group, plural)) if !path.contains("/namespaces/") => {
            format!("{group}/namespaces/{namespace}/{plural}")
        }
        _ => path.to_owned(),
    }
}

/// Waits for a response or, if its body is streamed, for its head.
async fn response<T>(
    response: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, WatchError> {
    let response = timeout(RESPONSE_TIMEOUT, response).await;
    let response = response.map_err(|_| WatchError::NoResponse(RESPONSE_TIMEOUT))?;
    response.map_err(|error| match error {
        kube::Error::Api(status) => WatchError::from_status(&status),
        error => error.into(),
    })
}

/// Reads one line; false at the end of the stream. An incomplete line is dropped: the resumed watch sends its event
/// again.
async fn next_line(
    lines: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    limit: Duration,
) -> Result<bool, WatchError> {
    line.clear();
    let read = timeout(limit, lines.read_until(b'\n', line)).await;
    read.map_err(|_| WatchError::Silent(limit))??;
    Ok(line.ends_with(b"\n"))
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    metadata: PageMeta<'a>,
    /// `null` in an empty list of PartialObjectMetadata.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[cfg(test)]
mod tests;

//! One endless watch: lists, follows, resumes, and lists again when the server has forgotten.
//!
//! Why not `kube::runtime::watcher`: it starts streaming lists from resourceVersion 0 (a stale
//! cache of the server will do), keeps bookmarks to itself (a quiet kind would never be known to
//! have caught up), and one object that does not convert makes it drop the event without a name.
//!
//! Guarantees: a list is never older than the request for it; between two lists every change is
//! handed over once, in order. Of an object only its identity and its controller are read here; the rest
//! is handed over as text, so that what is not wanted is not read at all.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt};
use http::{Request, header};
use kube::Client;
use kube::core::Status;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use super::control::Control;
use crate::objects::ObjectKey;
use gamekeeper_core::api::json_memory;
use gamekeeper_core::causes::with_causes;

/// Seconds after which the server ends a watch, which is then resumed where it stood.
const WATCH_SECONDS: u64 = 290;
/// A watch that is silent for this long is dead (the server should have ended it).
const SILENCE_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS + 10);
/// How long the answer to a request may take to begin, a page of a list to come, and a streamed list to
/// go on: a server that is busy lets requests wait for half of that, and then refuses them.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Objects in a page of a list, where the server cannot stream it.
const PAGE_SIZE: usize = 500;
/// A connection that lasted this long was a good one.
const HEALTHY_AFTER: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(10);

/// What a watch hands over, with objects as `O`.
#[derive(Debug)]
pub(super) enum Change<O> {
    /// A list begins: [`Change::Listed`] objects follow until [`Change::ListEnd`].
    ListBegin,
    /// An object of the list.
    Listed(Identity, O),
    /// The list is complete: what it did not name is gone.
    ListEnd(u64),
    /// An object is new or changed.
    Applied(Identity, O),
    /// An object is gone.
    Deleted(Identity),
    /// Nothing changed up to this resourceVersion.
    Bookmark(u64),
}

/// An object as text.
#[derive(Clone, Copy, Debug)]
pub enum Object<'a> {
    /// The text of the object.
    Item(&'a str),
    /// A line of a watch.
    Line(&'a [u8]),
}

impl Object<'_> {
    /// Reads it.
    pub fn read<K: DeserializeOwned>(self) -> Result<K, serde_json::Error> {
        match self {
            Object::Item(text) => serde_json::from_str(text),
            Object::Line(text) => {
                serde_json::from_slice::<Line<'_, K>>(text).map(|line| line.object)
            }
        }
    }

    /// Reads it unless it might take more than this in memory. Maps take many times the length of
    /// their text, and its author chooses how many there are.
    pub fn read_within<K: DeserializeOwned>(self, most: usize) -> Result<K, serde_json::Error> {
        let text = match self {
            Object::Item(text) => text.as_bytes(),
            Object::Line(text) => text,
        };
        if json_memory(text) > most {
            let most = most >> 20;
            let why = format!("it would take more than {most} MiB of memory");
            return Err(serde_json::Error::custom(why));
        }
        self.read()
    }
}

/// What can be read of any object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    /// Namespace; empty for objects that have none.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// resourceVersion.
    pub resource_version: String,
    /// Its controller.
    #[serde(rename = "ownerReferences")]
    pub control: Control,
}

impl Identity {
    /// The resourceVersion as a number.
    pub fn version(&self) -> u64 {
        version_number(&self.resource_version)
    }

    /// Namespace and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(&*self.namespace, &*self.name)
    }
}

/// A resourceVersion as a number, as Kubernetes documents them to compare.
pub(super) fn version_number(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}

/// Where to watch.
#[derive(Clone)]
pub(crate) struct Source {
    /// Client.
    pub client: Client,
    /// Path of the collection.
    pub path: String,
    /// Whether metadata is enough.
    pub metadata_only: bool,
    /// Whether the server can stream lists (Kubernetes 1.33 and up).
    pub streaming: bool,
}

#[derive(Debug, thiserror::Error)]
enum WatchError {
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
}

impl WatchError {
    fn of(status: &Status) -> Self {
        match status.code {
            410 => WatchError::Expired,
            code => WatchError::Refused {
                code,
                message: status.message.clone(),
            },
        }
    }
}

/// Watches forever. What `list_is_due` gives ends when there is to be a new list; it is asked for only
/// while none is under way.
pub(super) async fn watch<F: Future<Output = ()>>(
    mut source: Source,
    list_is_due: impl Fn() -> F,
    mut hand_over: impl FnMut(Change<Object<'_>>),
) {
    let mut position: Option<String> = None;
    let mut retry = FIRST_RETRY;
    loop {
        let begun = Instant::now();
        let from = position.clone();
        let result = tokio::select! {
            biased;
            result = source.follow(&mut position, &mut hand_over) => result,
            () = list_is_due() => {
                position = None;
                continue;
            }
        };
        // A server also ends watches whose events come faster than they are read; a pause here would
        // make them fall behind more and more.
        let went_well = begun.elapsed() > HEALTHY_AFTER || position != from;
        if went_well {
            retry = FIRST_RETRY;
        }
        match result {
            Ok(()) if went_well => continue,
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
        sleep(retry).await;
        retry = (retry * 2).min(LAST_RETRY);
    }
}

impl Source {
    /// One connection: from the position, or (without one) from a list on.
    async fn follow(
        &self,
        position: &mut Option<String>,
        hand_over: &mut impl FnMut(Change<Object<'_>>),
    ) -> Result<(), WatchError> {
        if position.is_none() && !self.streaming {
            *position = Some(self.list(hand_over).await?);
        }
        let start = match position.as_deref() {
            Some(version) => format!("resourceVersion={version}"),
            None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
        };
        let query =
            format!("watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&{start}");
        let listing = position.is_none();
        if listing {
            hand_over(Change::ListBegin);
        }
        let mut lines = match answer(self.client.request_stream(self.request(&query)?)).await {
            Err(WatchError::Refused {
                code: 400 | 422,
                message,
            }) if listing => {
                debug!(path = self.path, message, "no streaming lists");
                return Err(WatchError::NotStreaming);
            }
            lines => lines?,
        };
        let mut line = Vec::new();
        loop {
            let limit = if position.is_none() {
                ANSWER_TIMEOUT
            } else {
                SILENCE_TIMEOUT
            };
            if !next_line(&mut lines, &mut line, limit).await? {
                return Ok(());
            }
            hear(&line, position, hand_over)?;
        }
    }

    /// A list in pages, from the most recent state; gives the position to watch from.
    async fn list(
        &self,
        hand_over: &mut impl FnMut(Change<Object<'_>>),
    ) -> Result<String, WatchError> {
        hand_over(Change::ListBegin);
        let mut query = format!("limit={PAGE_SIZE}");
        loop {
            let text = answer(self.client.request_text(self.request(&query)?)).await?;
            let page: Page = serde_json::from_str(&text)?;
            for item in page.items.iter().flatten() {
                let head: Headed<Identity> = serde_json::from_str(item.get())?;
                hand_over(Change::Listed(head.metadata, Object::Item(item.get())));
            }
            match page.metadata.next.as_deref() {
                None | Some("") => {
                    let version = page.metadata.resource_version.into_owned();
                    hand_over(Change::ListEnd(version_number(&version)));
                    return Ok(version);
                }
                Some(next) => query = format!("limit={PAGE_SIZE}&continue={next}"),
            }
        }
    }

    /// The server's newest resourceVersion, from a list that cannot be stale.
    pub(crate) async fn newest(&self) -> Result<u64, kube::Error> {
        let request = self.request("limit=1").map_err(kube::Error::HttpError)?;
        let text = timeout(ANSWER_TIMEOUT, self.client.request_text(request)).await;
        let text = text.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))?;
        let page: Page = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
        Ok(version_number(&page.metadata.resource_version))
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

/// Waits for an answer, or the beginning of one.
async fn answer<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, WatchError> {
    let answer = timeout(ANSWER_TIMEOUT, answer).await;
    let answer = answer.map_err(|_| WatchError::Silent(ANSWER_TIMEOUT))?;
    answer.map_err(|error| match error {
        kube::Error::Api(status) => WatchError::of(&status),
        error => error.into(),
    })
}

/// Reads one line; false at the regular end of the stream. Half a line at the end is dropped: the
/// watch is resumed before it.
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

/// One line of a watch.
#[derive(Deserialize)]
struct Line<'a, O> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    object: O,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    metadata: PageMeta<'a>,
    /// None also where an empty list of metadata has `null`.
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

#[derive(Deserialize)]
struct Headed<M> {
    metadata: M,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The object of a line, as far as every line has it: an error's has no metadata.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: Identity,
}

/// Takes in one line of a watch.
fn hear(
    text: &[u8],
    position: &mut Option<String>,
    hand_over: &mut impl FnMut(Change<Object<'_>>),
) -> Result<(), WatchError> {
    let line: Line<'_, Head> = serde_json::from_slice(text)?;
    let (identity, object) = (line.object.metadata, Object::Line(text));
    let listing = position.is_none();
    if line.kind == "ERROR" {
        return Err(WatchError::of(&object.read()?));
    }
    if line.kind == "BOOKMARK" {
        let mark = object.read::<Headed<BookmarkMeta>>()?.metadata;
        let version = version_number(&mark.resource_version);
        let ends_list = mark.annotations.contains_key("k8s.io/initial-events-end");
        match (listing, ends_list) {
            (true, false) => return Ok(()),
            (true, true) => hand_over(Change::ListEnd(version)),
            (false, _) => hand_over(Change::Bookmark(version)),
        }
        *position = Some(mark.resource_version);
        return Ok(());
    }
    if !listing {
        *position = Some(identity.resource_version.clone());
    }
    hand_over(match &*line.kind {
        "DELETED" => Change::Deleted(identity),
        _ if listing => Change::Listed(identity, object),
        _ => Change::Applied(identity, object),
    });
    Ok(())
}

#[cfg(test)]
mod tests;

//! Objects in lists and watches: text, of which only the identity and the controller are decoded at first.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};

use super::{Change, WatchError};
use crate::runtime::control::Control;
use crate::runtime::objects::ObjectKey;
use gamekeeper_core::api::json_memory;

/// An object as text.
#[derive(Clone, Copy, Debug)]
pub enum Object<'a> {
    /// An item of a list.
    Item(&'a str),
    /// A line of a watch.
    Line(&'a [u8]),
}

impl Object<'_> {
    /// Decodes the object.
    pub fn read<K: DeserializeOwned>(self) -> Result<K, serde_json::Error> {
        match self {
            Object::Item(text) => serde_json::from_str(text),
            Object::Line(text) => {
                serde_json::from_slice::<Line<'_, K>>(text).map(|line| line.object)
            }
        }
    }

    /// The text; with a few bytes more for a line of a watch.
    fn text(&self) -> &[u8] {
        match self {
            Object::Item(text) => text.as_bytes(),
            Object::Line(text) => text,
        }
    }

    /// The length of the text.
    pub(crate) fn length(&self) -> usize {
        self.text().len()
    }

    /// Decodes the object, unless it might take more than `max` bytes of memory. Maps take many times the length of
    /// their text, and the object's author decides how many maps there are.
    pub fn read_within<K: DeserializeOwned>(self, max: usize) -> Result<K, serde_json::Error> {
        if json_memory(self.text()) > max {
            let why = format!("it would take more than {} MiB of memory", max >> 20);
            return Err(serde_json::Error::custom(why));
        }
        self.read()
    }
}

/// The identity of an object of any kind.
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
    /// The object's controller.
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

/// A resourceVersion as a number; 0 if it is not a number. Kubernetes documents that versions can be compared as
/// numbers.
pub(crate) fn version_number(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}

#[derive(Deserialize)]
pub(super) struct Line<'a, O> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    pub(super) object: O,
}

#[derive(Deserialize)]
pub(super) struct Headed<M> {
    pub(super) metadata: M,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The object in a watch event of any type. An ERROR has no metadata.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: Identity,
}

/// Decodes one line of a watch.
pub(super) fn decode(
    text: &[u8],
    position: &mut Option<String>,
    pass_on: &mut impl FnMut(Change<Object<'_>>),
) -> Result<(), WatchError> {
    let line: Line<'_, Head> = serde_json::from_slice(text)?;
    let (identity, object) = (line.object.metadata, Object::Line(text));
    let listing = position.is_none();
    if line.kind == "ERROR" {
        return Err(WatchError::from_status(&object.read()?));
    }
    if line.kind == "BOOKMARK" {
        let mark = object.read::<Headed<BookmarkMeta>>()?.metadata;
        let version = version_number(&mark.resource_version);
        let ends_list = mark.annotations.contains_key("k8s.io/initial-events-end");
        match (listing, ends_list) {
            (true, false) => return Ok(()),
            (true, true) => pass_on(Change::ListEnd(version)),
            (false, _) => pass_on(Change::Bookmark(version)),
        }
        *position = Some(mark.resource_version);
        return Ok(());
    }
    if !listing {
        *position = Some(identity.resource_version.clone());
    }
    pass_on(match &*line.kind {
        "DELETED" => Change::Deleted(identity),
        _ if listing => Change::Listed(identity, object),
        _ => Change::Applied(identity, object),
    });
    Ok(())
}

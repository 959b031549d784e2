//! The results of writes.

pub(crate) use gamekeeper_core::observed::{Kind, ObjectKey};

/// The result of a write, which the cache must catch up with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// An object of this kind now has this resourceVersion.
    Version(Kind, u64),
    /// This object is deleted, or being deleted.
    Deleted(Deleted),
    /// A write of an object of this kind got no response: the cache must catch up with the current state of the API
    /// server.
    Unknown(Kind),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deleted {
    pub kind: Kind,
    pub key: ObjectKey,
    pub uid: String,
}

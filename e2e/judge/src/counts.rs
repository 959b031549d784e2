//! Counts writes by kind.

use std::collections::BTreeMap;
use std::fmt;

use crate::evidence::Event;

/// A kind of write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteKind {
    /// create, update, patch, delete or deletecollection.
    pub verb: String,
    /// Resource, with its subresource after a slash.
    pub resource: String,
    /// HTTP status of the response.
    pub code: u16,
}

/// Number of writes by kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts(pub BTreeMap<WriteKind, usize>);

impl Counts {
    /// Counts the writes that a filter selects.
    pub fn of(events: &[Event], is_counted: impl Fn(&Event) -> bool) -> Self {
        let mut counts = Counts::default();
        for event in events.iter().filter(|event| event.is_write() && is_counted(event)) {
            *counts.0.entry(WriteKind::of(event)).or_default() += 1;
        }
        counts
    }

    /// The writes since an earlier count.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let new = self.0.iter().map(|(kind, count)| (kind.clone(), count - earlier.kind(kind)));
        Counts(new.filter(|(_, count)| *count > 0).collect())
    }

    /// The number of writes of one kind.
    pub fn kind(&self, kind: &WriteKind) -> usize {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// The number of writes of the selected kinds.
    pub fn sum(&self, pick: impl Fn(&WriteKind) -> bool) -> usize {
        self.0.iter().filter(|(kind, _)| pick(kind)).map(|(_, count)| count).sum()
    }

    /// The number of writes to a resource (`pods`, `pods/status`), including refused ones.
    pub fn resource(&self, resource: &str) -> usize {
        self.sum(|kind| kind.resource == resource)
    }

    /// The number of writes with this HTTP status.
    pub fn code(&self, code: u16) -> usize {
        self.sum(|kind| kind.code == code)
    }
}

impl WriteKind {
    /// The kind of an event's write.
    pub fn of(event: &Event) -> Self {
        let object = event.object_ref.clone().unwrap_or_default();
        let resource = if object.subresource.is_empty() {
            object.resource
        } else {
            format!("{}/{}", object.resource, object.subresource)
        };
        WriteKind { verb: event.verb.clone(), resource, code: event.code() }
    }
}

impl fmt::Display for WriteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WriteKind { verb, resource, code } = self;
        write!(f, "{verb} {resource} {code}")
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, count) in &self.0 {
            writeln!(f, "{count:6} {kind}")?;
        }
        Ok(())
    }
}

//! How many writes of which kind there were.

use std::collections::BTreeMap;
use std::fmt;

use crate::evidence::Event;

/// What kind of write it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteKind {
    /// create, update, patch, delete or deletecollection.
    pub verb: String,
    /// Resource, with its subresource after a slash.
    pub resource: String,
    /// HTTP status of the answer.
    pub code: u16,
}

/// Number of writes by kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts(pub BTreeMap<WriteKind, usize>);

impl Counts {
    /// Counts the writes that a client made.
    pub fn of(events: &[Event], is_counted: impl Fn(&Event) -> bool) -> Self {
        let mut counts = Counts::default();
        for event in events
            .iter()
            .filter(|event| event.is_write() && is_counted(event))
        {
            *counts.0.entry(WriteKind::of(event)).or_default() += 1;
        }
        counts
    }

    /// What came on top since an earlier count.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let before = |kind| earlier.0.get(kind).copied().unwrap_or(0);
        let new = self
            .0
            .iter()
            .map(|(kind, count)| (kind.clone(), count - before(kind)));
        Counts(new.filter(|(_, count)| *count > 0).collect())
    }

    /// Those that a rule picks, summed up.
    pub fn sum(&self, pick: impl Fn(&WriteKind) -> bool) -> usize {
        self.0
            .iter()
            .filter(|(kind, _)| pick(kind))
            .map(|(_, count)| count)
            .sum()
    }

    /// All of a resource (`pods`, `pods/status`), refused ones included.
    pub fn resource(&self, resource: &str) -> usize {
        self.sum(|kind| kind.resource == resource)
    }

    /// All that were answered with this HTTP status.
    pub fn code(&self, code: u16) -> usize {
        self.sum(|kind| kind.code == code)
    }
}

impl WriteKind {
    fn of(event: &Event) -> Self {
        let object = event.object_ref.clone().unwrap_or_default();
        let resource = if object.subresource.is_empty() {
            object.resource
        } else {
            format!("{}/{}", object.resource, object.subresource)
        };
        WriteKind {
            verb: event.verb.clone(),
            resource,
            code: event.code(),
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, count) in &self.0 {
            writeln!(f, "{count:6} {} {} {}", kind.verb, kind.resource, kind.code)?;
        }
        Ok(())
    }
}

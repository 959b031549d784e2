//! How many writes of which sort there were.

use std::collections::BTreeMap;
use std::fmt;

use crate::evidence::Event;

/// One sort of write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sort {
    /// create, update, patch, delete or deletecollection.
    pub verb: String,
    /// Resource, with its subresource after a slash.
    pub resource: String,
    /// HTTP status of the answer.
    pub code: u16,
}

/// Number of writes by sort.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts(pub BTreeMap<Sort, usize>);

impl Counts {
    /// Counts those that somebody made.
    pub fn of(events: &[Event], is_theirs: impl Fn(&Event) -> bool) -> Self {
        let mut counts = Counts::default();
        for event in events
            .iter()
            .filter(|event| event.is_write() && is_theirs(event))
        {
            *counts.0.entry(Sort::of(event)).or_default() += 1;
        }
        counts
    }

    /// What came on top since an earlier count.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let before = |sort| earlier.0.get(sort).copied().unwrap_or(0);
        let new = self
            .0
            .iter()
            .map(|(sort, count)| (sort.clone(), count - before(sort)));
        Counts(new.filter(|(_, count)| *count > 0).collect())
    }

    /// Those that a rule picks, summed up.
    pub fn sum(&self, pick: impl Fn(&Sort) -> bool) -> usize {
        self.0
            .iter()
            .filter(|(sort, _)| pick(sort))
            .map(|(_, count)| count)
            .sum()
    }

    /// All of a resource (`pods`, `pods/status`), refused ones included.
    pub fn resource(&self, resource: &str) -> usize {
        self.sum(|sort| sort.resource == resource)
    }

    /// All that were answered with this HTTP status.
    pub fn code(&self, code: u16) -> usize {
        self.sum(|sort| sort.code == code)
    }
}

impl Sort {
    fn of(event: &Event) -> Self {
        let object = event.object_ref.clone().unwrap_or_default();
        let resource = if object.subresource.is_empty() {
            object.resource
        } else {
            format!("{}/{}", object.resource, object.subresource)
        };
        Sort {
            verb: event.verb.clone(),
            resource,
            code: event.code(),
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (sort, count) in &self.0 {
            writeln!(f, "{count:6} {} {} {}", sort.verb, sort.resource, sort.code)?;
        }
        Ok(())
    }
}

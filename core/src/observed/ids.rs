//! A separate type for each kind of identifier, so that none is mistaken for another.

use std::fmt;

/// The name of a ControllerRevision; a pod has it as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RevisionName<'a>(&'a str);

/// The uid of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid<'a>(&'a str);

impl<'a> RevisionName<'a> {
    /// Wraps a name.
    pub fn of(name: &'a str) -> Self {
        Self(name)
    }

    /// The name as a string.
    pub fn as_str(self) -> &'a str {
        self.0
    }
}

impl<'a> PodUid<'a> {
    /// Wraps a uid.
    pub fn of(uid: &'a str) -> Self {
        Self(uid)
    }
}

impl fmt::Display for RevisionName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

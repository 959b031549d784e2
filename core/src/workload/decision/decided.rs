//! What rules decide about individual pods, and the sum of these decisions.

use jiff::Timestamp;

use crate::observed::time::earlier;
use crate::workload::decision::Blocked;
use crate::write::Write;

/// What a rule decides about one pod.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "most are writes, and none is kept for long")]
pub(crate) enum Decision {
    /// Do nothing for now.
    Wait,
    /// Do nothing before this time.
    Until(Timestamp),
    /// Make this write.
    Do(Write),
    /// Do nothing, and report the reason in a condition.
    Blocked(Blocked),
}

impl Decision {
    /// Whether the pod is changed now or at a known time.
    pub(crate) fn changes(&self) -> bool {
        matches!(self, Self::Do(_) | Self::Until(_))
    }
}

/// What a rule decides about all pods.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    /// The writes.
    pub writes: Vec<Write>,
    /// When to plan again.
    pub wake: Option<Timestamp>,
    /// What blocks the first pod that is blocked.
    pub blocked: Option<Blocked>,
}

impl Decided {
    /// Adds what was decided elsewhere. What already blocks a pod is kept.
    pub(crate) fn merge(&mut self, other: Self) {
        self.writes.extend(other.writes);
        self.wake = earlier(self.wake, other.wake);
        self.blocked = self.blocked.take().or(other.blocked);
    }

    /// Adds what was decided about one pod.
    pub(crate) fn add(&mut self, decision: Decision) {
        match decision {
            Decision::Wait => {}
            Decision::Until(at) => self.wake = earlier(self.wake, Some(at)),
            Decision::Do(write) => self.writes.push(write),
            Decision::Blocked(blocked) => {
                self.blocked.get_or_insert(blocked);
            }
        }
    }
}

impl From<Decision> for Decided {
    fn from(decision: Decision) -> Self {
        Self::from_iter([decision])
    }
}

impl FromIterator<Decision> for Decided {
    fn from_iter<I: IntoIterator<Item = Decision>>(decisions: I) -> Self {
        let mut decided = Self::default();
        decisions.into_iter().for_each(|it| decided.add(it));
        decided
    }
}

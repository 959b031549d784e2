//! A decision that rests on answers of hooks.

use crate::workload::hooks::need::Need;

/// What a rule decides, with what the answers need that it rests on. The decision is told only to those that take over
/// the needs: a HookRun that nothing needs is deleted.
#[must_use]
pub struct Asked<'a, T> {
    decision: T,
    needs: Needs<'a>,
}

/// What the answers of hooks need, in the order in which the hooks were asked.
#[derive(Default)]
pub struct Needs<'a>(Vec<Need<'a>>);

impl<'a, T> Asked<'a, T> {
    /// A decision about several pods.
    pub fn new(decision: T, needs: Needs<'a>) -> Self {
        Self { decision, needs }
    }

    /// Decides by the answer.
    pub fn map<U>(self, decide: impl FnOnce(T) -> U) -> Asked<'a, U> {
        Asked { decision: decide(self.decision), needs: self.needs }
    }

    /// The decision. Its needs are added to `needs`.
    pub fn hand_over(self, needs: &mut Needs<'a>) -> T {
        needs.0.extend(self.needs.0);
        self.decision
    }
}

impl<T> From<T> for Asked<'_, T> {
    /// A decision for which no hook was asked.
    fn from(decision: T) -> Self {
        Self { decision, needs: Needs::default() }
    }
}

impl<'a> FromIterator<Need<'a>> for Needs<'a> {
    fn from_iter<I: IntoIterator<Item = Need<'a>>>(needs: I) -> Self {
        Self(needs.into_iter().collect())
    }
}

impl<'a> IntoIterator for Needs<'a> {
    type Item = Need<'a>;
    type IntoIter = std::vec::IntoIter<Need<'a>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

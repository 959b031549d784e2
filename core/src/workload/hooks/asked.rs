//! A decision that rests on answers of hooks.

use crate::workload::hooks::need::Need;

/// What a rule decides, with what the answers need that it rests on. Only a caller that takes over the needs can read
/// the decision: a HookRun that nothing needs is deleted.
#[must_use]
pub(crate) struct Asked<'a, T> {
    decision: T,
    needs: Needs<'a>,
}

/// What the answers of hooks need, in the order in which the hooks were asked.
#[derive(Default)]
#[must_use]
pub(crate) struct Needs<'a>(pub(super) Vec<Need<'a>>);

impl<'a, T> Asked<'a, T> {
    /// A decision, and what it needs.
    pub(crate) fn new(decision: T, needs: Needs<'a>) -> Self {
        Self { decision, needs }
    }

    /// Decides by the answer.
    pub(crate) fn map<U>(self, decide: impl FnOnce(T) -> U) -> Asked<'a, U> {
        Asked { decision: decide(self.decision), needs: self.needs }
    }

    /// The decision. Its needs are added to `needs`.
    pub(crate) fn into_decision(self, needs: &mut Needs<'a>) -> T {
        needs.add(self.needs);
        self.decision
    }
}

impl<T> From<T> for Asked<'_, T> {
    /// A decision for which no hook was asked.
    fn from(decision: T) -> Self {
        Self { decision, needs: Needs::default() }
    }
}

impl<'a> Needs<'a> {
    /// Adds what other answers need.
    pub(crate) fn add(&mut self, others: Needs<'a>) {
        self.0.extend(others.0);
    }
}

//! The objects of one kind, and the operator's cache of them, which may be behind.

use std::rc::Rc;

/// The objects of a kind: as they are, and as the operator has observed them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind<T> {
    pub now: Rc<T>,
    pub seen: Seen<T>,
}

/// The operator's cache of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Seen<T> {
    /// Up to date.
    #[default]
    Now,
    /// An earlier state.
    Before(Rc<T>),
    /// A state older than the operator's own writes or the start of its leadership: the operator must wait.
    TooOld,
}

impl<T: Clone + PartialEq> Kind<T> {
    pub fn new(now: T) -> Self {
        Self { now: Rc::new(now), seen: Seen::Now }
    }

    /// A change by another client. If `caught_up`, the cache has caught up right before the change.
    pub fn change(&mut self, lags: bool, caught_up: bool) -> &mut T {
        if lags && (caught_up || self.seen == Seen::Now) {
            self.seen = Seen::Before(self.now.clone());
        }
        Rc::make_mut(&mut self.now)
    }

    /// A write of the operator, which does not plan again before its cache shows the write.
    pub fn write(&mut self, lags: bool) -> &mut T {
        if lags {
            self.seen = Seen::TooOld;
        }
        Rc::make_mut(&mut self.now)
    }

    /// The cache of a new leader, which must catch up with the current state.
    pub fn forget(&mut self, lags: bool) {
        if lags {
            self.seen = Seen::TooOld;
        }
    }

    /// What the cache shows; None if the operator must wait for it.
    pub fn view(&self) -> Option<&Rc<T>> {
        match &self.seen {
            Seen::Now => Some(&self.now),
            Seen::Before(before) => Some(before),
            Seen::TooOld => None,
        }
    }

    /// The cache catches up if it must, or if `wanted`.
    pub fn catch_up(&mut self, wanted: bool) {
        if wanted || self.seen == Seen::TooOld {
            self.seen = Seen::Now;
        }
    }

    /// Normalizes a cache that shows the current state.
    pub fn tidy(&mut self) {
        if matches!(&self.seen, Seen::Before(before) if *before == self.now) {
            self.seen = Seen::Now;
        }
    }
}

//! Whose turn it is: things under way at a time, shared so that no namespace can keep another one waiting.
//!
//! A server that never answers holds its calls until they time out, which may take an hour, and ten
//! thousand runs of one tenant have statuses to write all the time. So one
//! namespace leaves a part of all turns to the others, and besides has some of its own that nobody
//! else can take: however many servers hang, hooks of another namespace go on, and so do its looks and writes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Namespaces that are remembered; beyond that those without a turn are forgotten.
const MAX_IDLE: usize = 256;

/// How many turns there are.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Shared by all namespaces.
    pub all: usize,
    /// Of those, what one namespace can take.
    pub most: usize,
    /// Besides, for each namespace alone.
    pub own: usize,
}

/// Turns of one kind.
#[derive(Debug)]
pub struct Turns {
    sizes: Sizes,
    shared: Arc<Semaphore>,
    namespaces: Mutex<HashMap<String, Namespace>>,
}

#[derive(Clone, Debug)]
struct Namespace {
    /// What it may take of the shared ones.
    share: Arc<Semaphore>,
    own: Arc<Semaphore>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "held, never read")] Vec<OwnedSemaphorePermit>);

impl Turns {
    /// So many turns, all free.
    pub fn new(sizes: Sizes) -> Self {
        Turns {
            sizes,
            shared: Arc::new(Semaphore::new(sizes.all)),
            namespaces: Mutex::default(),
        }
    }

    /// Waits for a turn; those of one namespace come in the order in which they were asked for.
    pub async fn take(&self, namespace: &str) -> Turn {
        let Namespace { share, own } = self.of(namespace);
        let shared = async {
            let share = share.acquire_owned().await;
            (share, Arc::clone(&self.shared).acquire_owned().await)
        };
        // None of the semaphores is ever closed.
        let permits = tokio::select! {
            biased;
            own = own.acquire_owned() => vec![own],
            (share, shared) = shared => vec![share, shared],
        };
        Turn(permits.into_iter().flatten().collect())
    }

    /// A turn, if there is one now.
    pub fn try_take(&self, namespace: &str) -> Option<Turn> {
        let Namespace { share, own } = self.of(namespace);
        if let Ok(own) = own.try_acquire_owned() {
            return Some(Turn(vec![own]));
        }
        let share = share.try_acquire_owned().ok()?;
        let shared = Arc::clone(&self.shared).try_acquire_owned().ok()?;
        Some(Turn(vec![share, shared]))
    }

    fn of(&self, name: &str) -> Namespace {
        let mut known = self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if known.len() > MAX_IDLE {
            // Whoever waits or has a turn holds a semaphore, too.
            known.retain(|_, it| Arc::strong_count(&it.share) + Arc::strong_count(&it.own) > 2);
        }
        let Sizes { most, own, .. } = self.sizes;
        let new = || Namespace {
            share: Arc::new(Semaphore::new(most)),
            own: Arc::new(Semaphore::new(own)),
        };
        known.entry(name.to_owned()).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn turns() -> Turns {
        Turns::new(Sizes {
            all: 8,
            most: 6,
            own: 1,
        })
    }

    #[tokio::test]
    async fn a_turn_that_is_asked_for_without_waiting_counts_as_any() {
        let turns = turns();
        let greedy: Vec<_> = std::iter::from_fn(|| turns.try_take("greedy")).collect();
        assert_eq!(greedy.len(), 7);
        assert!(at_once(&turns, "greedy").await.is_none());
        let others: Vec<_> = std::iter::from_fn(|| turns.try_take("other")).collect();
        assert_eq!(others.len(), 3);
        drop(greedy);
        assert!(turns.try_take("greedy").is_some());
        assert_eq!(turns.taken(), 3);
    }

    async fn at_once(turns: &Turns, namespace: &str) -> Option<Turn> {
        timeout(Duration::ZERO, turns.take(namespace)).await.ok()
    }

    async fn as_many_as_it_gets(turns: &Turns, namespace: &str) -> Vec<Turn> {
        let mut taken = Vec::new();
        while let Some(turn) = at_once(turns, namespace).await {
            taken.push(turn);
        }
        taken
    }

    #[tokio::test]
    async fn a_namespace_alone_has_nearly_all_and_leaves_some_to_others() {
        let turns = turns();
        let greedy = as_many_as_it_gets(&turns, "greedy").await;
        assert_eq!(greedy.len(), 7);
        assert_eq!(as_many_as_it_gets(&turns, "other").await.len(), 3);
        drop(greedy);
        assert_eq!(as_many_as_it_gets(&turns, "greedy").await.len(), 7);
    }

    #[tokio::test]
    async fn however_many_namespaces_are_greedy_another_one_has_a_turn() {
        let turns = turns();
        let mut taken = Vec::new();
        for number in 0..2 * MAX_IDLE {
            let name = format!("greedy-{number}");
            taken.extend(as_many_as_it_gets(&turns, &name).await);
        }
        assert_eq!(taken.len(), 8 + 2 * MAX_IDLE);
        assert!(at_once(&turns, "other").await.is_some());
        // Those who have a turn are not forgotten, or they would have another one.
        assert!(at_once(&turns, "greedy-0").await.is_none());
        drop(taken);
        assert!(at_once(&turns, "greedy-0").await.is_some());
        assert_eq!(turns.remembered(), 1);
    }

    #[tokio::test]
    async fn who_waits_is_given_the_turn_that_is_free_first() {
        let turns = Arc::new(turns());
        let mut taken = as_many_as_it_gets(&turns, "greedy").await;
        let waiting = Arc::clone(&turns);
        let waiting = tokio::spawn(async move { waiting.take("greedy").await });
        tokio::task::yield_now().await;
        taken.pop();
        let turn = waiting.await.expect("a turn");
        assert!(at_once(&turns, "greedy").await.is_none());
        drop(turn);
        assert!(at_once(&turns, "greedy").await.is_some());
    }

    impl Turns {
        fn remembered(&self) -> usize {
            self.namespaces.lock().expect("namespaces").len()
        }

        /// Turns that somebody has.
        pub(crate) fn taken(&self) -> usize {
            let Sizes { all, own, .. } = self.sizes;
            let namespaces = self.namespaces.lock().expect("namespaces");
            let of_own = namespaces
                .values()
                .map(|it| own - it.own.available_permits());
            all - self.shared.available_permits() + of_own.sum::<usize>()
        }
    }
}

//! A concurrency limit that no namespace can use up alone.
//!
//! A hook server that never answers holds its calls until they time out, which may take an hour. Ten
//! thousand runs of one tenant write statuses all the time. So a namespace may take only a part of the
//! shared permits, and each namespace has reserved permits that no other can take. However many servers
//! hang, the hooks, reconciles and writes of other namespaces go on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Namespaces that are remembered; beyond that, those without a permit are forgotten.
const MAX_IDLE_NAMESPACES: usize = 256;

/// How many permits there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    /// Shared by all namespaces.
    pub shared: usize,
    /// The most of those that one namespace can take.
    pub per_namespace: usize,
    /// In addition, for each namespace alone.
    pub reserved: usize,
}

/// Hands out permits for one kind of work.
#[derive(Debug)]
pub(crate) struct NamespaceLimiter {
    capacity: Capacity,
    shared: Arc<Semaphore>,
    namespaces: Mutex<HashMap<String, Namespace>>,
}

#[derive(Clone, Debug)]
struct Namespace {
    /// What it may take of the shared permits.
    share: Arc<Semaphore>,
    own: Arc<Semaphore>,
}

/// A permit; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Permit(
    #[expect(dead_code, reason = "held, never read")] Vec<OwnedSemaphorePermit>,
);

impl NamespaceLimiter {
    /// A limiter with all its permits free.
    pub(crate) fn new(capacity: Capacity) -> Self {
        NamespaceLimiter {
            capacity,
            shared: Arc::new(Semaphore::new(capacity.shared)),
            namespaces: Mutex::default(),
        }
    }

    /// Waits for a permit. Within a namespace the order is first in, first out.
    pub(crate) async fn take(&self, namespace: &str) -> Permit {
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
        Permit(permits.into_iter().flatten().collect())
    }

    /// A permit, if one is free.
    pub(crate) fn try_take(&self, namespace: &str) -> Option<Permit> {
        let Namespace { share, own } = self.of(namespace);
        if let Ok(own) = own.try_acquire_owned() {
            return Some(Permit(vec![own]));
        }
        let share = share.try_acquire_owned().ok()?;
        let shared = Arc::clone(&self.shared).try_acquire_owned().ok()?;
        Some(Permit(vec![share, shared]))
    }

    fn of(&self, name: &str) -> Namespace {
        let mut known = self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if known.len() > MAX_IDLE_NAMESPACES {
            // Holders and waiters of permits have clones of the semaphores.
            known.retain(|_, it| Arc::strong_count(&it.share) + Arc::strong_count(&it.own) > 2);
        }
        let Capacity {
            per_namespace,
            reserved,
            ..
        } = self.capacity;
        let new = || Namespace {
            share: Arc::new(Semaphore::new(per_namespace)),
            own: Arc::new(Semaphore::new(reserved)),
        };
        known.entry(name.to_owned()).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn limiter() -> NamespaceLimiter {
        NamespaceLimiter::new(Capacity {
            shared: 8,
            per_namespace: 6,
            reserved: 1,
        })
    }

    #[tokio::test]
    async fn a_permit_taken_without_waiting_counts_like_any_other() {
        let limiter = limiter();
        let greedy: Vec<_> = std::iter::from_fn(|| limiter.try_take("greedy")).collect();
        assert_eq!(greedy.len(), 7);
        assert!(at_once(&limiter, "greedy").await.is_none());
        let others: Vec<_> = std::iter::from_fn(|| limiter.try_take("other")).collect();
        assert_eq!(others.len(), 3);
        drop(greedy);
        assert!(limiter.try_take("greedy").is_some());
        assert_eq!(limiter.taken(), 3);
    }

    async fn at_once(limiter: &NamespaceLimiter, namespace: &str) -> Option<Permit> {
        timeout(Duration::ZERO, limiter.take(namespace)).await.ok()
    }

    async fn as_many_as_it_gets(limiter: &NamespaceLimiter, namespace: &str) -> Vec<Permit> {
        let mut taken = Vec::new();
        while let Some(permit) = at_once(limiter, namespace).await {
            taken.push(permit);
        }
        taken
    }

    #[tokio::test]
    async fn a_single_namespace_gets_nearly_all_and_leaves_some_to_others() {
        let limiter = limiter();
        let greedy = as_many_as_it_gets(&limiter, "greedy").await;
        assert_eq!(greedy.len(), 7);
        assert_eq!(as_many_as_it_gets(&limiter, "other").await.len(), 3);
        drop(greedy);
        assert_eq!(as_many_as_it_gets(&limiter, "greedy").await.len(), 7);
    }

    #[tokio::test]
    async fn however_many_namespaces_are_greedy_another_one_gets_a_permit() {
        let limiter = limiter();
        let mut taken = Vec::new();
        for number in 0..2 * MAX_IDLE_NAMESPACES {
            let name = format!("greedy-{number}");
            taken.extend(as_many_as_it_gets(&limiter, &name).await);
        }
        assert_eq!(taken.len(), 8 + 2 * MAX_IDLE_NAMESPACES);
        assert!(at_once(&limiter, "other").await.is_some());
        // A namespace with a permit is not forgotten, or it would get more than its share.
        assert!(at_once(&limiter, "greedy-0").await.is_none());
        drop(taken);
        assert!(at_once(&limiter, "greedy-0").await.is_some());
        assert_eq!(limiter.remembered(), 1);
    }

    #[tokio::test]
    async fn the_next_free_permit_goes_to_the_one_that_waits() {
        let limiter = Arc::new(limiter());
        let mut taken = as_many_as_it_gets(&limiter, "greedy").await;
        let waiting = Arc::clone(&limiter);
        let waiting = tokio::spawn(async move { waiting.take("greedy").await });
        tokio::task::yield_now().await;
        taken.pop();
        let permit = waiting.await.expect("a turn");
        assert!(at_once(&limiter, "greedy").await.is_none());
        drop(permit);
        assert!(at_once(&limiter, "greedy").await.is_some());
    }

    impl NamespaceLimiter {
        fn remembered(&self) -> usize {
            self.namespaces.lock().expect("namespaces").len()
        }

        /// Permits that are taken.
        pub(crate) fn taken(&self) -> usize {
            let Capacity {
                shared, reserved, ..
            } = self.capacity;
            let namespaces = self.namespaces.lock().expect("namespaces");
            let of_own = namespaces
                .values()
                .map(|it| reserved - it.own.available_permits());
            shared - self.shared.available_permits() + of_own.sum::<usize>()
        }
    }
}

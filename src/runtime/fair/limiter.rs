//! A concurrency limit that no namespace can use up alone.
//!
//! If a hook server never responds, each call to it takes until its timeout, which may be an hour. If one tenant has
//! ten thousand HookRuns, their statuses are written all the time. So that the hooks, reconciles and writes of other
//! namespaces continue, a namespace may take only some of the shared permits, and each namespace has reserved permits
//! that no other can take.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// If more namespaces than this are known, those that neither hold nor wait for a permit are removed.
const MAX_IDLE_NAMESPACES: usize = 256;

/// The numbers of permits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    /// Shared by all namespaces.
    pub shared: usize,
    /// The most shared permits that one namespace may hold.
    pub per_namespace: usize,
    /// Reserved for each namespace, in addition to its shared ones.
    pub reserved: usize,
}

/// The permits for one kind of work.
#[derive(Debug)]
pub(crate) struct NamespaceLimiter {
    capacity: Capacity,
    shared: Arc<Semaphore>,
    namespaces: Mutex<HashMap<String, Namespace>>,
}

#[derive(Clone, Debug)]
struct Namespace {
    /// Limits the shared permits of this namespace.
    share: Arc<Semaphore>,
    /// The reserved permits of this namespace.
    own: Arc<Semaphore>,
}

/// A permit, which is released when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit(
    #[expect(dead_code, reason = "held, never read")] Vec<OwnedSemaphorePermit>,
);

impl NamespaceLimiter {
    pub(crate) fn new(capacity: Capacity) -> Self {
        NamespaceLimiter {
            capacity,
            shared: Arc::new(Semaphore::new(capacity.shared)),
            namespaces: Mutex::default(),
        }
    }

    /// Waits for a permit. Within a namespace, the order is first in, first out.
    pub(crate) async fn take(&self, namespace: &str) -> Permit {
        let Namespace { share, own } = self.namespace(namespace);
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
        let Namespace { share, own } = self.namespace(namespace);
        if let Ok(own) = own.try_acquire_owned() {
            return Some(Permit(vec![own]));
        }
        let share = share.try_acquire_owned().ok()?;
        let shared = Arc::clone(&self.shared).try_acquire_owned().ok()?;
        Some(Permit(vec![share, shared]))
    }

    fn namespace(&self, name: &str) -> Namespace {
        let mut known = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > MAX_IDLE_NAMESPACES {
            // Holders and waiters of permits have clones of the semaphores.
            known.retain(|_, it| Arc::strong_count(&it.share) + Arc::strong_count(&it.own) > 2);
        }
        let Capacity { per_namespace, reserved, .. } = self.capacity;
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
        NamespaceLimiter::new(Capacity { shared: 8, per_namespace: 6, reserved: 1 })
    }

    #[tokio::test]
    async fn permits_taken_without_waiting_count_as_well() {
        let limiter = limiter();
        let greedy: Vec<_> = std::iter::from_fn(|| limiter.try_take("greedy")).collect();
        assert_eq!(greedy.len(), 7);
        assert!(take_now(&limiter, "greedy").await.is_none());
        let others: Vec<_> = std::iter::from_fn(|| limiter.try_take("other")).collect();
        assert_eq!(others.len(), 3);
        drop(greedy);
        assert!(limiter.try_take("greedy").is_some());
        assert_eq!(limiter.taken(), 3);
    }

    async fn take_now(limiter: &NamespaceLimiter, namespace: &str) -> Option<Permit> {
        timeout(Duration::ZERO, limiter.take(namespace)).await.ok()
    }

    async fn take_all(limiter: &NamespaceLimiter, namespace: &str) -> Vec<Permit> {
        let mut taken = Vec::new();
        while let Some(permit) = take_now(limiter, namespace).await {
            taken.push(permit);
        }
        taken
    }

    #[tokio::test]
    async fn a_single_namespace_gets_nearly_all_permits_and_leaves_some_for_others() {
        let limiter = limiter();
        let greedy = take_all(&limiter, "greedy").await;
        assert_eq!(greedy.len(), 7);
        assert_eq!(take_all(&limiter, "other").await.len(), 3);
        drop(greedy);
        assert_eq!(take_all(&limiter, "greedy").await.len(), 7);
    }

    #[tokio::test]
    async fn another_namespace_gets_a_permit_however_many_are_greedy() {
        let limiter = limiter();
        let mut taken = Vec::new();
        for number in 0..2 * MAX_IDLE_NAMESPACES {
            let name = format!("greedy-{number}");
            taken.extend(take_all(&limiter, &name).await);
        }
        assert_eq!(taken.len(), 8 + 2 * MAX_IDLE_NAMESPACES);
        assert!(take_now(&limiter, "other").await.is_some());
        // A namespace with a permit is kept: otherwise it would get more than its share.
        assert!(take_now(&limiter, "greedy-0").await.is_none());
        drop(taken);
        assert!(take_now(&limiter, "greedy-0").await.is_some());
        assert_eq!(limiter.namespaces(), 1);
    }

    #[tokio::test]
    async fn a_released_permit_goes_to_a_waiting_task() {
        let limiter = Arc::new(limiter());
        let mut taken = take_all(&limiter, "greedy").await;
        let shared = Arc::clone(&limiter);
        let waiting = tokio::spawn(async move { shared.take("greedy").await });
        tokio::task::yield_now().await;
        taken.pop();
        let permit = waiting.await.expect("a permit");
        assert!(take_now(&limiter, "greedy").await.is_none());
        drop(permit);
        assert!(take_now(&limiter, "greedy").await.is_some());
    }

    impl NamespaceLimiter {
        fn namespaces(&self) -> usize {
            self.namespaces.lock().expect("namespaces").len()
        }

        /// The number of permits that are taken.
        pub(crate) fn taken(&self) -> usize {
            let Capacity { shared, reserved, .. } = self.capacity;
            let namespaces = self.namespaces.lock().expect("namespaces");
            let from_reserved = namespaces.values().map(|it| reserved - it.own.available_permits());
            shared - self.shared.available_permits() + from_reserved.sum::<usize>()
        }
    }
}

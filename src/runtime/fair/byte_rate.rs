//! A limit on the bytes that a namespace may have written per second.
//!
//! etcd keeps each version of an object until it compacts, which takes minutes, and a cluster whose etcd is full is
//! read-only. A write is never split, so it may exceed what is left; the next ones then wait until that is made up for.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// If more namespaces than this are known, those that have their whole burst left are removed.
const MAX_IDLE_NAMESPACES: usize = 256;

/// The limit.
#[derive(Debug)]
pub(crate) struct ByteRate {
    per_second: u64,
    burst: u64,
    /// By namespace: when it will have its whole burst left.
    whole: Mutex<HashMap<String, Instant>>,
}

impl ByteRate {
    pub(crate) fn new(per_second: u64, burst: u64) -> Self {
        ByteRate { per_second, burst, whole: Mutex::default() }
    }

    /// Waits until the namespace may write, and counts the bytes.
    pub(crate) async fn take(&self, namespace: &str, bytes: usize) {
        sleep_until(self.reserve(namespace, bytes as u64, Instant::now())).await;
    }

    /// Counts bytes that are written without a wait.
    pub(crate) fn count(&self, namespace: &str, bytes: usize) {
        self.reserve(namespace, bytes as u64, Instant::now());
    }

    /// Counts the bytes, and returns when they may be written.
    fn reserve(&self, namespace: &str, bytes: u64, now: Instant) -> Instant {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        if whole.len() > MAX_IDLE_NAMESPACES {
            whole.retain(|_, at| *at > now);
        }
        let at = whole.entry(namespace.to_owned()).or_insert(now);
        let start = (*at).max(now);
        *at = start + self.time_for(bytes);
        // Until then, less than nothing is left.
        start.checked_sub(self.time_for(self.burst)).unwrap_or(now).max(now)
    }

    fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.per_second as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_has_used_its_burst_is_limited_to_its_rate() {
        let rate = ByteRate::new(1_000, 5_000);
        let started = Instant::now();
        for _ in 0..5 {
            rate.take("greedy", 1_000).await;
        }
        assert_eq!(started.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            rate.take("greedy", 1_000).await;
        }
        let took = started.elapsed().as_secs_f64();
        assert!((9.0..=10.1).contains(&took), "{took}");
        let asked = Instant::now();
        rate.take("other", 1_000).await;
        assert_eq!(asked.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_larger_than_the_burst_is_made_and_paid_for() {
        let rate = ByteRate::new(1_000, 2_000);
        let started = Instant::now();
        rate.take("games", 10_000).await;
        assert_eq!(started.elapsed(), Duration::ZERO);
        rate.take("games", 1).await;
        assert_eq!(started.elapsed().as_secs(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_namespaces_are_forgotten() {
        let rate = ByteRate::new(1_000, 2_000);
        for number in 0..2 * MAX_IDLE_NAMESPACES {
            rate.take(&number.to_string(), 1).await;
            tokio::time::advance(Duration::from_millis(2)).await;
        }
        assert!(rate.whole.lock().expect("namespaces").len() <= MAX_IDLE_NAMESPACES + 1);
    }
}

//! Random differences between waits, so that clients that failed together do not retry together.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// A wait before a retry is extended by up to this part of itself.
const JITTER: f64 = 0.25;

/// The wait, extended by a random part of itself.
pub(crate) fn jittered(wait: Duration) -> Duration {
    wait + wait.mul_f64(JITTER * random_fraction())
}

/// A random number from 0 to 1.
pub(crate) fn random_fraction() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    random as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_of_many_clients_are_spread() {
        let waits: Vec<_> = (0..100).map(|_| jittered(Duration::from_secs(30))).collect();
        let range = Duration::from_secs(30)..=Duration::from_millis(37_500);
        assert!(waits.iter().all(|it| range.contains(it)), "{waits:?}");
        let spread = waits.iter().max().zip(waits.iter().min());
        let spread = spread.map(|(longest, shortest)| *longest - *shortest);
        assert!(spread > Some(Duration::from_secs(1)), "{spread:?}");
    }
}

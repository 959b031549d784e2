//! A limit for log lines that tenants, or any client of the webhook's port, can cause.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How many lines may be written without a pause.
const BURST: u32 = 10;
/// The time after which one more line may be written.
const REFILL_INTERVAL: Duration = Duration::from_secs(10);

/// Writes a log line at this level, unless the same place has written too many of late. The field `suppressed` counts
/// the lines that were not written since the last one.
macro_rules! log_limited {
    ($level:ident, $($fields_and_message:tt)+) => {{
        static LIMIT: $crate::runtime::log_limiter::LogLimiter =
            $crate::runtime::log_limiter::LogLimiter::new();
        if let Some(suppressed) = LIMIT.admit() {
            tracing::$level!(suppressed, $($fields_and_message)+);
        }
    }};
}
pub(crate) use log_limited;

/// Limits how often one message is logged.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Lines that count toward the burst.
    used: u32,
    /// When `used` was last reduced.
    last_refill: Option<Instant>,
    /// Lines suppressed since a line was last written.
    suppressed: u32,
}

impl LogLimiter {
    /// A limiter that has not admitted anything.
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(State { used: 0, last_refill: None, suppressed: 0 }))
    }

    /// The number of lines that were suppressed before this one; None if this one must be suppressed as well.
    pub(crate) fn admit(&self) -> Option<u32> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let last_refill = *state.last_refill.get_or_insert(now);
        let refilled = now.duration_since(last_refill).as_secs() / REFILL_INTERVAL.as_secs();
        let refilled = u32::try_from(refilled).unwrap_or(u32::MAX);
        if refilled > 0 {
            state.used = state.used.saturating_sub(refilled);
            state.last_refill = Some(now);
        }
        if state.used >= BURST {
            state.suppressed = state.suppressed.saturating_add(1);
            return None;
        }
        state.used += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_logged_as_a_few_lines_that_count_the_suppressed_ones() {
        let limiter = LogLimiter::default();
        let count = (0..1_000).filter_map(|_| limiter.admit()).count();
        assert_eq!(count, BURST as usize);
        tokio::time::advance(REFILL_INTERVAL).await;
        assert_eq!(limiter.admit(), Some(990));
        assert_eq!(limiter.admit(), None);
        tokio::time::advance(BURST * REFILL_INTERVAL).await;
        let count = (0..1_000).filter_map(|_| limiter.admit()).count();
        assert_eq!(count, BURST as usize);
    }
}

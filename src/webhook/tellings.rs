//! How often something may be said in the log that anybody who reaches the port can bring about.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lines in a row, and after how long there may be one more.
const AT_ONCE: u32 = 10;
const PAUSE: Duration = Duration::from_secs(10);

/// What was said of one matter.
#[derive(Debug, Default)]
pub(super) struct Tellings(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Lines that are used up, and since when none was given back.
    used: u32,
    since: Option<Instant>,
    /// What was not said since the last line.
    unsaid: u32,
}

impl Tellings {
    /// Whether a line may be written now, and how many were left out before it.
    pub fn may_tell(&self) -> Option<u32> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let since = *state.since.get_or_insert(now);
        let given_back = now.duration_since(since).as_secs() / PAUSE.as_secs();
        let given_back = u32::try_from(given_back).unwrap_or(u32::MAX);
        if given_back > 0 {
            state.used = state.used.saturating_sub(given_back);
            state.since = Some(now);
        }
        if state.used >= AT_ONCE {
            state.unsaid = state.unsaid.saturating_add(1);
            return None;
        }
        state.used += 1;
        Some(std::mem::take(&mut state.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_told_of_by_a_few_lines_that_say_how_many_are_missing() {
        let tellings = Tellings::default();
        let told = (0..1_000).filter_map(|_| tellings.may_tell()).count();
        assert_eq!(told, AT_ONCE as usize);
        tokio::time::advance(PAUSE).await;
        assert_eq!(tellings.may_tell(), Some(990));
        assert_eq!(tellings.may_tell(), None);
        tokio::time::advance(AT_ONCE * PAUSE).await;
        let told = (0..1_000).filter_map(|_| tellings.may_tell()).count();
        assert_eq!(told, AT_ONCE as usize);
    }
}

//! Keeps a write from being repeated without end. If a policy, a webhook or another client undoes what the operator
//! writes, each plan would make the same write again.

use std::collections::HashMap;
use std::time::Duration;

use gamekeeper_core::write::Fingerprint;
use tokio::time::Instant;

/// How often the same write may be made in a row, without a pause.
const MAX_IN_A_ROW: u32 = 4;
/// Writes that are further apart than this are not in a row.
const IN_A_ROW: Duration = Duration::from_secs(60);
/// The first pause; it doubles with each further write.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(300);

/// The last writes of an object's plans, by what they changed.
#[derive(Debug, Default)]
pub(crate) struct Repeats(HashMap<u64, Repeat>);

#[derive(Debug)]
struct Repeat {
    content: u64,
    in_a_row: u32,
    last: Instant,
}

impl Repeat {
    fn pause(&self) -> Duration {
        match self.in_a_row.checked_sub(MAX_IN_A_ROW) {
            None => Duration::ZERO,
            Some(more) => FIRST_PAUSE.saturating_mul(1 << more.min(10)).min(MAX_PAUSE),
        }
    }

    fn is_recent(&self) -> bool {
        self.last.elapsed() < IN_A_ROW + self.pause()
    }
}

impl Repeats {
    /// How often this write was made in a row, and until when it must not be made; None if it may be made now.
    pub(crate) fn held(&self, write: Fingerprint) -> Option<(u32, Instant)> {
        let repeat = self.0.get(&write.subject).filter(|it| it.content == write.content)?;
        let until = repeat.last + repeat.pause();
        (until > Instant::now()).then_some((repeat.in_a_row, until))
    }

    /// Forgets writes that are too old to be in a row with others.
    pub(crate) fn forget_old(&mut self) {
        self.0.retain(|_, repeat| repeat.is_recent());
    }

    /// Records that a write was made.
    pub(crate) fn record(&mut self, write: Fingerprint) {
        let Fingerprint { subject, content } = write;
        let last = Instant::now();
        let before = self.0.get(&subject).filter(|it| it.content == content && it.is_recent());
        let in_a_row = before.map_or(0, |it| it.in_a_row).saturating_add(1);
        self.0.insert(subject, Repeat { content, in_a_row, last });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Fingerprint = Fingerprint { subject: 1, content: 1 };
    const UNMARK: Fingerprint = Fingerprint { subject: 1, content: 2 };
    const OTHER: Fingerprint = Fingerprint { subject: 2, content: 1 };

    #[tokio::test(start_paused = true)]
    async fn the_same_write_in_a_row_is_made_more_and_more_slowly() {
        let mut repeats = Repeats::default();
        let mut made_at = Vec::new();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(900) {
            if repeats.held(MARK).is_none() {
                repeats.record(MARK);
                made_at.push(start.elapsed().as_secs());
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(made_at, [0, 1, 2, 3, 13, 33, 73, 153, 313, 613]);
        assert!(repeats.held(OTHER).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn alternating_and_rare_writes_are_not_held() {
        let mut repeats = Repeats::default();
        for _ in 0..20 {
            for write in [MARK, UNMARK] {
                assert!(repeats.held(write).is_none());
                repeats.record(write);
            }
        }
        for _ in 0..20 {
            tokio::time::advance(IN_A_ROW).await;
            assert!(repeats.held(OTHER).is_none());
            repeats.record(OTHER);
        }
        repeats.forget_old();
        assert_eq!(repeats.0.len(), 1);
    }
}

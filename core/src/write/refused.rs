//! A write that was refused, and when it is attempted again.

use jiff::{SignedDuration, Timestamp};

/// How long at most to wait before a refused write is attempted again.
const MAX_WAIT: SignedDuration = SignedDuration::from_secs(30);

/// A kind of write that the API server refused last time.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The API server's message.
    pub message: String,
    /// How often it was refused in a row.
    times: u32,
    /// When the last attempt was refused.
    at: Timestamp,
}

impl Refused {
    /// When a write that is held is attempted again, for messages. They do not name the time: each attempt would change the
    /// status.
    pub const RETRY: &'static str = "tried again within 30 s";
    /// The same for a write that is not held: plans contain it again at the latest then.
    pub const LATE_RETRY: &'static str = "tried again within 5 minutes";

    /// Another refusal, after the last one if there was one.
    pub fn after(last: Option<&Self>, message: String, at: Timestamp) -> Self {
        Self { message, times: last.map_or(0, |it| it.times).saturating_add(1), at }
    }

    /// Until when the write is not attempted if other writes depend on it: for one second, two, four, and so on. None if
    /// it may be attempted now.
    pub fn held_until(&self, now: Timestamp) -> Option<Timestamp> {
        let seconds = 1_i64.checked_shl(self.times.saturating_sub(1)).unwrap_or(i64::MAX);
        let wait = SignedDuration::from_secs(seconds).min(MAX_WAIT);
        let until = self.at.checked_add(wait).unwrap_or(self.at);
        // If the clock was set back, waiting for this time would take too long.
        (self.at <= now && until > now).then_some(until)
    }
}

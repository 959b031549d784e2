//! What measurements take up while they are under way, so that no namespace fills the process.
//!
//! A measurement takes its turn before anything is read or written for it. What it holds then is
//! short: values that it looks up, texts that arguments are filled into, an answer. Where one of them
//! turns out to be long, it is let go, and had anew once there is room for it among the long ones.

use std::sync::Arc;

use crate::fair::{Sizes, Turn, Turns};

/// Longest text of any kind that a measurement may hold with no more than its turn, in bytes.
pub(super) const SHORT: usize = 32 << 10;
/// Measurements at a time, until they are assessed; more wait for their turn, so that neither file
/// descriptors nor memory run out.
const CALLS: Sizes = Sizes {
    all: 1_024,
    most: 896,
    own: 8,
};
/// Of those, with longer texts. All texts of all together take 200 MiB at most, and 2 MiB more for each
/// namespace that has its own turn.
const LONG: Sizes = Sizes {
    all: 64,
    most: 48,
    own: 1,
};

/// Room for all measurements.
pub(super) struct Rooms {
    pub calls: Turns,
    pub long: Turns,
}

impl Default for Rooms {
    fn default() -> Self {
        Rooms {
            calls: Turns::new(CALLS),
            long: Turns::new(LONG),
        }
    }
}

impl Rooms {
    /// Waits for the turn of a measurement.
    pub(super) async fn enter(self: &Arc<Self>, namespace: &str) -> Room {
        Room {
            call: self.calls.take(namespace).await,
            long: None,
            namespace: namespace.to_owned(),
            rooms: Arc::clone(self),
        }
    }
}

/// The room of one measurement, until it is dropped.
pub(super) struct Room {
    rooms: Arc<Rooms>,
    namespace: String,
    #[expect(dead_code, reason = "held, never read")]
    call: Turn,
    long: Option<Turn>,
}

impl Room {
    /// Whose it is.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether there is room for long texts.
    pub(super) fn is_long(&self) -> bool {
        self.long.is_some()
    }

    /// Waits until there is room for long texts. Nothing long may be held meanwhile.
    pub(super) async fn grow(&mut self) {
        if self.long.is_none() {
            self.long = Some(self.rooms.long.take(&self.namespace).await);
        }
    }
}

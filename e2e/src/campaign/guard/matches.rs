//! The matches of a history: one on each pod, from the pod's start.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use judge::object::uid;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::actors::running;
use super::history::History;
use crate::case::Case;
use crate::servers::hook_server::Answer;

/// How often pods are listed.
const POLL: Duration = Duration::from_millis(300);

/// When matches ended.
#[derive(Debug, Default)]
pub(super) struct Matches {
    /// By the uid of the pod.
    ends: Mutex<BTreeMap<String, Timestamp>>,
    /// When all other matches ended.
    end_of_all: Mutex<Option<Timestamp>>,
}

impl Matches {
    /// Begins matches on all pods: until a match is over, its pod's hook refuses.
    pub(super) fn begin(case: &Case) -> Self {
        case.hooks.answer_all(Answer::Json(json!({"age": 10})));
        Matches::default()
    }

    /// Ends each match when its time is over. Runs until the future is dropped.
    pub(super) async fn play(&self, case: &Case, history: &History) -> Result<()> {
        let mut planned_ends: BTreeMap<String, Instant> = BTreeMap::new();
        loop {
            let now = Instant::now();
            for pod in running(case).await? {
                let length = history.matches[planned_ends.len() % history.matches.len()];
                planned_ends.entry(uid(&pod).to_owned()).or_insert(now + length);
            }
            for uid in planned_ends.iter().filter(|(_, end)| **end <= now).map(|(uid, _)| uid) {
                self.end(case, uid);
            }
            sleep(POLL).await;
        }
    }

    fn end(&self, case: &Case, uid: &str) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.entry(uid.to_owned()).or_insert_with(|| {
            // The hook allows the deletion only after this time.
            let now = Timestamp::now();
            case.hooks.answer(&format!("/{uid}"), yes());
            now
        });
    }

    /// Ends all matches. No new one begins.
    pub(super) fn end_all(&self, case: &Case) {
        let mut end_of_all = self.end_of_all.lock().unwrap_or_else(PoisonError::into_inner);
        *end_of_all = Some(Timestamp::now());
        case.hooks.answer_all(yes());
    }

    /// When the match on this pod ended; the far future if it has not.
    pub(super) fn end_of(&self, uid: &str) -> Timestamp {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let end_of_all = self.end_of_all.lock().unwrap_or_else(PoisonError::into_inner);
        let end_of_all = end_of_all.unwrap_or(Timestamp::MAX);
        ends.get(uid).copied().unwrap_or(end_of_all)
    }
}

fn yes() -> Answer {
    Answer::Json(json!({"age": 45}))
}

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

/// When each match was over.
#[derive(Debug, Default)]
pub(super) struct Matches {
    over: Mutex<BTreeMap<String, Timestamp>>,
    all_over: Mutex<Option<Timestamp>>,
}

impl Matches {
    /// Begins matches on all pods: until a match is over, its pod's hook refuses.
    pub(super) fn begin(case: &Case) -> Self {
        case.hooks.answer_all(Answer::Json(json!({"age": 10})));
        Matches::default()
    }

    /// Ends matches when their time is over, until the future is dropped.
    pub(super) async fn play(&self, case: &Case, history: &History) -> Result<()> {
        let mut ends: BTreeMap<String, Instant> = BTreeMap::new();
        loop {
            let now = Instant::now();
            for pod in running(case).await? {
                let length = history.matches[ends.len() % history.matches.len()];
                ends.entry(uid(&pod).to_owned()).or_insert(now + length);
            }
            for uid in ends
                .iter()
                .filter(|(_, end)| **end <= now)
                .map(|(uid, _)| uid)
            {
                self.end(case, uid);
            }
            sleep(POLL).await;
        }
    }

    fn end(&self, case: &Case, uid: &str) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        over.entry(uid.to_owned()).or_insert_with(|| {
            // The hook allows the deletion only after this time.
            let now = Timestamp::now();
            case.hooks.answer(&format!("/{uid}"), yes());
            now
        });
    }

    /// Ends all matches. No new one begins.
    pub(super) fn end_all(&self, case: &Case) {
        let mut all_over = self.all_over.lock().unwrap_or_else(PoisonError::into_inner);
        *all_over = Some(Timestamp::now());
        case.hooks.answer_all(yes());
    }

    /// When the match on this pod was over.
    pub(super) fn end_of(&self, uid: &str) -> Timestamp {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let all_over = self.all_over.lock().unwrap_or_else(PoisonError::into_inner);
        let all_over = all_over.unwrap_or(Timestamp::MAX);
        over.get(uid).copied().unwrap_or(all_over)
    }
}

fn yes() -> Answer {
    Answer::Json(json!({"age": 45}))
}

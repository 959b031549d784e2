//! Comparing the cache with the API server: what it has now, and whether the cache shows that.
//!
//! A new leader compares every kind once, and wants it soon. A reconcile compares a kind after a write that
//! was not answered, which happens most where the API server has too much to do already; so there the
//! question is put once for all that wait, and a list is the last resort. It costs the reconciles of one
//! workload a few seconds, where lists of all pods would slow the requests of all clients.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::warn;

use super::Cache;
use super::watch::Source;
use crate::objects::Kind;
use gamekeeper_core::causes::with_causes;

/// How long a new leader waits for an event or bookmark before a kind is listed again.
const BOOKMARK_WAIT: Duration = Duration::from_millis(200);
/// How long a reconcile waits for one. The watch of a busy API server lags by seconds, and then by less again.
const MAX_LAG: Duration = Duration::from_secs(5);
/// Shortest time between a list of a kind and one that a reconcile asks for. A quiet kind hears of the newest
/// version by a bookmark each minute, so lists are rarely less than half of the wait.
pub(super) const LIST_PAUSE: Duration = Duration::from_secs(30);
/// Shortest time between two questions what the newest version of a kind is.
const QUESTION_PAUSE: Duration = Duration::from_secs(1);

/// What the API server's newest version of a kind is, asked once for all that wait for it.
#[derive(Default)]
pub(super) struct Newest {
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// When it was last asked.
    asked: Option<Instant>,
    /// The last answer, and when that was asked for.
    answer: Option<(Instant, u64)>,
}

impl Newest {
    /// A version that the API server had after this was called.
    async fn ask<E>(&self, question: impl Future<Output = Result<u64, E>>) -> Result<u64, E> {
        let called = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((asked, version)) = last.answer
            && asked > called
        {
            return Ok(version);
        }
        if let Some(asked) = last.asked {
            sleep_until(asked + QUESTION_PAUSE).await;
        }
        let asked = Instant::now();
        last.asked = Some(asked);
        let version = question.await?;
        last.answer = Some((asked, version));
        Ok(version)
    }
}

impl Cache {
    /// Whether the API server tells how new each kind is, which watching it does not prove.
    pub(crate) async fn is_comparable(&self) -> Result<(), kube::Error> {
        let newest = self.sources.values().map(Source::newest);
        futures::future::try_join_all(newest).await.map(|_| ())
    }

    /// Waits until the cache shows at least what the API server has now.
    pub(crate) async fn catch_up_with_server(&self) -> Result<(), kube::Error> {
        let kinds = self.sources.iter();
        let kinds = kinds.map(|(kind, source)| self.catch_up(*kind, source));
        futures::future::try_join_all(kinds).await.map(|_| ())
    }

    async fn catch_up(&self, kind: Kind, source: &Source) -> Result<(), kube::Error> {
        let newest = source.newest().await?;
        self.reach_or_relist(kind, newest, BOOKMARK_WAIT, Duration::ZERO)
            .await;
        Ok(())
    }

    /// Waits until the cache shows what the API server has of a kind now; asks until it answers.
    pub(super) async fn reach_newest(&self, kind: Kind) {
        let (Some(source), Some(newest)) = (self.sources.get(&kind), self.newest.get(&kind)) else {
            return;
        };
        loop {
            match newest.ask(source.newest()).await {
                Ok(newest) => {
                    return self
                        .reach_or_relist(kind, newest, MAX_LAG, LIST_PAUSE)
                        .await;
                }
                Err(error) => {
                    warn!(?kind, error = %with_causes(&error), "cannot compare the cache with the API server");
                }
            }
        }
    }

    /// Waits for an event or bookmark of that version, and after a while for a list as well.
    async fn reach_or_relist(&self, kind: Kind, version: u64, lag: Duration, pause: Duration) {
        if timeout(lag, self.reach(kind, version)).await.is_err() {
            tokio::select! {
                () = self.reach(kind, version) => {}
                () = self.relist(kind, pause) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;

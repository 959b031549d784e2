//! For how long a decision may be acted on.
//!
//! A plan is good while its workload is as it was decided on, which is asked of the API server, and
//! while the pods are about as they were seen. Where only the former matters, asking again and again
//! lets one plan create or delete a thousand pods without a pause.

use std::future::pending;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::run::Stop;
use super::{Applier, Target};
use gamekeeper_core::plan::Action;

/// For how long a decision, and the proof that the workload has not moved, is good.
pub const PROOF: Duration = Duration::from_millis(500);
/// How long a proof that took longer than that to come is good after it came: for what begins at
/// once, or a slow API server would never see anything done.
const AT_ONCE: Duration = Duration::from_millis(50);
/// How long a plan may take, and what comes before the rest of it: pods may be another way after that.
pub const PRELUDE: Duration = Duration::from_secs(1);
/// How long a proof or a plan may take at most, after others that took too long.
const MOST_PATIENCE: Duration = Duration::from_secs(8);
/// For how long a late one is remembered: what was slow before that may not be so any more.
const MEMORY: Duration = Duration::from_secs(30);
/// For how long a plan is carried out at most, however often its workload is proven unmoved: the
/// status is written by the next one.
const LONGEST: Duration = Duration::from_secs(6);

/// How long a proof of one workload, or a plan for it, may take. A late one may come from a process
/// that was frozen meanwhile, and says little; but where one after the other is late, it is the API
/// server or the processor that is slow, and no other one would be younger.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long one should take.
    usual: Duration,
    /// How long one may take now.
    limit: Duration,
    /// When one last took longer than it should.
    late: Option<Instant>,
}

impl Patience {
    /// With what should take so long at most.
    pub fn with(usual: Duration) -> Self {
        Self {
            usual,
            limit: usual,
            late: None,
        }
    }

    /// Whether what was begun then and has just ended is to be believed. When it took too long it is
    /// not, and the next one may take longer.
    pub fn bears(&mut self, begun: Instant) -> bool {
        let took = begun.elapsed();
        let was_late = |late: Instant| begun.saturating_duration_since(late) <= MEMORY;
        if took <= self.usual || !self.late.is_some_and(was_late) {
            *self = Self::with(self.usual);
        }
        if took > self.usual {
            self.late = Some(Instant::now());
        }
        let is_borne = took <= self.limit;
        if !is_borne {
            self.limit = (self.limit * 2).min(MOST_PATIENCE);
        }
        is_borne
    }
}

/// Until when a proof that was asked for then and has just come is good. None when it took too long.
pub fn good_until(asked: Instant, patience: &mut Patience) -> Option<Instant> {
    if !patience.bears(asked) {
        let took = asked.elapsed();
        warn!(?took, "the API server is slow to respond");
        return None;
    }
    Some((asked + PROOF).max(Instant::now() + AT_ONCE))
}

/// Until when a plan is good.
pub struct Proof {
    begun: Instant,
    /// What rests on pods as they were seen.
    decided: Instant,
    /// What only the workload bears on. None when it is known to have moved, or is asked no more.
    proven: watch::Sender<Option<Instant>>,
}

impl Proof {
    /// Good until then, unless it is renewed.
    pub fn until(decided: Instant) -> Self {
        Self {
            begun: Instant::now(),
            decided,
            proven: watch::Sender::new(Some(decided)),
        }
    }

    /// Whether an action may be begun now. One that only the workload bears on waits for the next
    /// proof when the last one is too old: a busy API server is slow to give it.
    pub async fn is_good_for(&self, action: &Action) -> bool {
        if !action.lasts() {
            return Instant::now() <= self.decided && self.proven.borrow().is_some();
        }
        let is_decisive = |until: &Option<Instant>| until.is_none_or(|it| Instant::now() <= it);
        let mut proven = self.proven.subscribe();
        let proven = proven.wait_for(is_decisive).await;
        proven.is_ok_and(|proven| proven.is_some())
    }

    /// Asks again and again, until the answer is another one or it has gone on for long enough;
    /// then nothing is proven any more. Never returns.
    pub async fn renew(&self, applier: &Applier, target: &Target, patience: &mut Patience) {
        while self.begun.elapsed() < LONGEST {
            sleep(PROOF / 2).await;
            let Ok(until) = ask(applier, target, patience).await else {
                break;
            };
            self.proven.send_replace(Some(until));
        }
        self.proven.send_replace(None);
        pending().await
    }
}

/// Makes sure that a workload is still as it was decided on, and says until when that is good.
pub async fn ask(
    applier: &Applier,
    target: &Target,
    patience: &mut Patience,
) -> Result<Instant, Stop> {
    let asked = Instant::now();
    let now = applier.requests.get(&target.path()).await?;
    let Target {
        uid, generation, ..
    } = target;
    if now.uid != *uid || now.generation != *generation || now.deletion_timestamp.is_some() {
        return Err(Stop::Moved(format!(
            "its generation is now {}, but the plan was made for {generation}",
            now.generation
        )));
    }
    good_until(asked, patience).ok_or(Stop::Late)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Whether an answer that takes so long is good.
    async fn is_good(patience: &mut Patience, took: Duration) -> bool {
        let asked = Instant::now();
        advance(took).await;
        good_until(asked, patience).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_slow_long_ago_gets_no_more_patience_than_any_other() {
        let (slow, mut patience) = (Duration::from_secs(3), Patience::with(PROOF));
        for expected in [false, false, false, true, true] {
            assert_eq!(is_good(&mut patience, slow).await, expected);
        }
        // Slow answers that are good keep the memory of it.
        for _ in 0..3 {
            advance(MEMORY * 2 / 3).await;
            assert!(is_good(&mut patience, slow).await);
        }
        advance(MEMORY * 2).await;
        assert!(!is_good(&mut patience, slow).await);
    }
}

//! For how long a decision may be acted on.
//!
//! A plan is good while its workload is as it was decided on, which is asked of the API server, and
//! while the pods are about as they were seen. Where only the former matters, asking again and again
//! lets one plan create or delete a thousand pods without a pause.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::run::Stop;
use super::{Applier, Target};
use gamekeeper_core::plan::Action;

/// For how long a decision is valid, and the proof that the workload has not changed.
pub(super) const PROOF_LIFETIME: Duration = Duration::from_millis(500);
/// For how long a proof that took longer than that is valid: long enough to begin writes at once, or
/// nothing would ever be done on a slow API server.
const LATE_PROOF_LIFETIME: Duration = Duration::from_millis(50);
/// How long planning may take, and the writes before the rest of a plan: pods may have changed after that.
pub(super) const PLAN_LIFETIME: Duration = Duration::from_secs(1);
/// The longest timeout of a proof or plan, after others that took too long.
const MAX_TIMEOUT: Duration = Duration::from_secs(8);
/// For how long a late one is remembered: what was slow before may be fast again.
const SLOWNESS_MEMORY: Duration = Duration::from_secs(30);
/// For how long one plan is applied, however often its workload is proven unchanged: the next plan
/// writes the status.
const MAX_RUN_TIME: Duration = Duration::from_secs(6);

/// How long a proof of one workload, or a plan for it, may take.
///
/// A single late one is not trusted, because the process may have been frozen meanwhile. Where one
/// after the other is late, the API server or the processor is slow, so the timeout grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdaptiveTimeout {
    /// How long one should take.
    usual: Duration,
    /// How long one may take now.
    limit: Duration,
    /// When one last took longer than it should.
    late: Option<Instant>,
}

impl AdaptiveTimeout {
    /// The timeout of something that usually takes no longer than this.
    pub(crate) fn new(usual: Duration) -> Self {
        Self {
            usual,
            limit: usual,
            late: None,
        }
    }

    /// Whether something that began then and has just ended was in time. When it was not, the next one
    /// may take longer.
    pub(crate) fn accepts(&mut self, begun: Instant) -> bool {
        let took = begun.elapsed();
        let was_late = |late: Instant| begun.saturating_duration_since(late) <= SLOWNESS_MEMORY;
        if took <= self.usual || !self.late.is_some_and(was_late) {
            *self = Self::new(self.usual);
        }
        if took > self.usual {
            self.late = Some(Instant::now());
        }
        let is_accepted = took <= self.limit;
        if !is_accepted {
            self.limit = (self.limit * 2).min(MAX_TIMEOUT);
        }
        is_accepted
    }
}

/// Until when a proof is valid that was asked for then and has just come. None when it took too long.
pub(super) fn good_until(asked: Instant, timeout: &mut AdaptiveTimeout) -> Option<Instant> {
    if !timeout.accepts(asked) {
        let took = asked.elapsed();
        warn!(?took, "the API server is slow to respond");
        return None;
    }
    Some((asked + PROOF_LIFETIME).max(Instant::now() + LATE_PROOF_LIFETIME))
}

/// Until when a plan is valid.
pub(super) struct Proof {
    begun: Instant,
    /// What rests on pods as they were seen.
    decided: Instant,
    /// What only the workload bears on. None when it is known to have moved, or is asked no more.
    proven: watch::Sender<Option<Instant>>,
    /// Actions that have not begun and depend on the workload alone: without them, a renewal serves nothing.
    waiting: AtomicUsize,
}

impl Proof {
    /// A proof for these actions that is valid until then, unless it is renewed.
    pub(super) fn until(decided: Instant, actions: &[Action]) -> Self {
        let lasting = actions.iter().filter(|action| action.lasts());
        Self {
            begun: Instant::now(),
            decided,
            waiting: AtomicUsize::new(lasting.count()),
            proven: watch::Sender::new(Some(decided)),
        }
    }

    /// Whether an action may be begun now. One that only the workload bears on waits for the next
    /// proof when the last one is too old: a busy API server is slow to give it.
    pub(super) async fn is_good_for(&self, action: &Action) -> bool {
        if !action.lasts() {
            return Instant::now() <= self.decided && self.proven.borrow().is_some();
        }
        let is_decisive = |until: &Option<Instant>| until.is_none_or(|it| Instant::now() <= it);
        let mut proven = self.proven.subscribe();
        let is_good = match proven.wait_for(is_decisive).await {
            Ok(proven) => proven.is_some(),
            Err(_) => false,
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        is_good
    }

    /// Asks again and again while actions wait for it, until the answer is another one or it has gone on for
    /// long enough; then nothing is proven any more. Never returns.
    pub(super) async fn renew(
        &self,
        applier: &Applier,
        target: &Target,
        timeout: &mut AdaptiveTimeout,
    ) {
        while self.begun.elapsed() < MAX_RUN_TIME {
            sleep(PROOF_LIFETIME / 2).await;
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return pending().await;
            }
            let Ok(until) = ask(applier, target, timeout).await else {
                break;
            };
            self.proven.send_replace(Some(until));
        }
        self.proven.send_replace(None);
        pending().await
    }
}

/// Makes sure that a workload is still as it was decided on, and says until when that is good.
pub(super) async fn ask(
    applier: &Applier,
    target: &Target,
    timeout: &mut AdaptiveTimeout,
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
    good_until(asked, timeout).ok_or(Stop::Late)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Whether an answer that takes so long is good.
    async fn is_good(timeout: &mut AdaptiveTimeout, took: Duration) -> bool {
        let asked = Instant::now();
        advance(took).await;
        good_until(asked, timeout).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_slow_long_ago_gets_the_usual_timeout() {
        let (slow, mut timeout) = (Duration::from_secs(3), AdaptiveTimeout::new(PROOF_LIFETIME));
        for expected in [false, false, false, true, true] {
            assert_eq!(is_good(&mut timeout, slow).await, expected);
        }
        // Slow answers that are accepted keep it remembered.
        for _ in 0..3 {
            advance(SLOWNESS_MEMORY * 2 / 3).await;
            assert!(is_good(&mut timeout, slow).await);
        }
        advance(SLOWNESS_MEMORY * 2).await;
        assert!(!is_good(&mut timeout, slow).await);
    }
}

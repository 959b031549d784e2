//! How long a decision is valid.
//!
//! A plan is valid while the object that it is for is unchanged, which a quorum GET proves, and while the pods were observed
//! recently. Writes that depend on their owner alone continue while the proof is renewed, so that one plan can
//! create or delete a thousand pods without a pause.
//!
//! A proof or plan that is too late is dropped, because the process may have been frozen in the meantime. The
//! [`AdaptiveTimeout`] then doubles. The first timeout is so short that even a process that is frozen twice in a row
//! does not act on an old decision. The timeout grows so that plans make progress with a slow API server.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{Applier, Target};
use crate::runtime::log_limiter::log_limited;
use gamekeeper_core::write;
use gamekeeper_core::write::{Stop, Write};

/// The lifetime of a proof that an object is unchanged, counted from the request.
pub(crate) const PROOF_LIFETIME: Duration = Duration::from_millis(500);
/// The shortest lifetime of a proof, counted from the response: just long enough to start the
/// writes that are ready. Without it, no write would ever start while the API server is slow.
const LATE_PROOF_LIFETIME: Duration = Duration::from_millis(50);
/// The lifetime of a plan that depends on pods.
pub(super) const PLAN_LIFETIME: Duration = Duration::from_secs(1);
/// The longest adaptive timeout.
const MAX_TIMEOUT: Duration = Duration::from_secs(8);
/// A server counts as fast again once its last late response is older than this.
const SLOWNESS_MEMORY: Duration = Duration::from_secs(30);
/// The longest time for which one plan is applied. It is limited because only the next plan writes the status.
const MAX_RUN_TIME: Duration = Duration::from_secs(6);

/// The timeout of proofs of one object, or of plans for it.
///
/// A single late result is not accepted, because the process may have been frozen in the meantime. If several in a
/// row are late, the API server or the processor is slow, so the timeout doubles each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdaptiveTimeout {
    /// The timeout while no result is late.
    usual: Duration,
    /// The current timeout.
    limit: Duration,
    /// When the usual timeout was last exceeded.
    last_late: Option<Instant>,
}

impl AdaptiveTimeout {
    pub(crate) fn new(usual: Duration) -> Self {
        Self { usual, limit: usual, last_late: None }
    }

    /// Whether something that began at `started` and has just ended was in time. If not, the timeout doubles.
    pub(crate) fn accepts(&mut self, started: Instant) -> bool {
        let took = started.elapsed();
        let is_recent = |late: Instant| started.saturating_duration_since(late) <= SLOWNESS_MEMORY;
        if took <= self.usual || !self.last_late.is_some_and(is_recent) {
            *self = Self::new(self.usual);
        }
        if took > self.usual {
            self.last_late = Some(Instant::now());
        }
        let is_accepted = took <= self.limit;
        if !is_accepted {
            self.limit = (self.limit * 2).min(MAX_TIMEOUT);
        }
        is_accepted
    }
}

/// The end of the validity of a proof that was requested at `requested` and has just arrived. None if it took too
/// long.
pub(crate) fn valid_until(requested: Instant, timeout: &mut AdaptiveTimeout) -> Option<Instant> {
    if !timeout.accepts(requested) {
        let took = requested.elapsed();
        log_limited!(warn, ?took, "the API server is slow to respond");
        return None;
    }
    Some((requested + PROOF_LIFETIME).max(Instant::now() + LATE_PROOF_LIFETIME))
}

/// Tells how long the writes of one batch are valid.
pub(super) struct Proof {
    started: Instant,
    /// When the validity ends for writes that depend on pods.
    until: Instant,
    /// When the validity ends for writes that depend on their owner alone. None once the owner has changed, or
    /// once the proof is no longer renewed.
    renewed_until: watch::Sender<Option<Instant>>,
    /// The number of writes that depend on their owner alone and have not started. The proof is renewed for
    /// these only.
    waiting: AtomicUsize,
}

impl Proof {
    /// A proof for these writes that is valid until `until`, unless it is renewed.
    pub(super) fn until(until: Instant, writes: &[Write]) -> Self {
        let waiting = writes.iter().filter(|it| depends_on_owner_alone(it));
        Self {
            started: Instant::now(),
            until,
            renewed_until: watch::Sender::new(Some(until)),
            waiting: AtomicUsize::new(waiting.count()),
        }
    }

    /// Until when a write may be sent; None if it may not start anymore. If it depends on its owner alone and the
    /// proof has expired, this waits for the next proof, which an overloaded API server delays.
    pub(super) async fn deadline_of(&self, write: &Write) -> Option<Instant> {
        if !depends_on_owner_alone(write) {
            let is_valid = Instant::now() <= self.until && self.renewed_until.borrow().is_some();
            return is_valid.then(|| self.until.min(validity_of_hook(write)));
        }
        let is_decisive = |until: &Option<Instant>| until.is_none_or(|it| Instant::now() <= it);
        let mut renewed = self.renewed_until.subscribe();
        let until = renewed.wait_for(is_decisive).await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        until.ok().and_then(|it| *it)
    }

    /// A write that depends on its owner alone has waited for its turn until the proof expired. Another proof is
    /// needed for it.
    pub(super) fn await_another(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Renews the proof while writes wait for it. If the owner has changed, if the API server does not respond in
    /// time, or after [`MAX_RUN_TIME`], the proof becomes void. Never returns.
    pub(super) async fn renew(
        &self,
        applier: &Applier,
        target: &Target,
        timeout: &mut AdaptiveTimeout,
    ) {
        while self.started.elapsed() < MAX_RUN_TIME {
            sleep(PROOF_LIFETIME / 2).await;
            if self.waiting.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let Ok(until) = prove(applier, target, timeout).await else {
                break;
            };
            self.renewed_until.send_replace(Some(until));
        }
        self.renewed_until.send_replace(None);
        pending().await
    }
}

/// Whether a write stays valid while its owner does not change.
pub(super) fn depends_on_owner_alone(write: &Write) -> bool {
    write.proof() == write::Proof::OwnerAlone
}

/// Until when the success of the hook that allows a write is valid, by the monotonic clock.
fn validity_of_hook(write: &Write) -> Instant {
    let now = Instant::now();
    // A write that needs no hook is valid for longer than any proof.
    let Some(until) = write.pod().and_then(|pod| pod.allowed_until) else {
        return now + MAX_RUN_TIME;
    };
    let left = until.duration_since(Timestamp::now());
    match Duration::try_from(left) {
        Ok(left) => now + left.min(MAX_RUN_TIME),
        // The success is too old already.
        Err(_) => now.checked_sub(PROOF_LIFETIME).unwrap_or(now),
    }
}

/// Proves that an object is unchanged, and returns the end of the proof's validity.
pub(super) async fn prove(
    applier: &Applier,
    target: &Target,
    timeout: &mut AdaptiveTimeout,
) -> Result<Instant, Stop> {
    let requested = Instant::now();
    let current = applier.requests.get(&target.owner.path()).await?;
    let generation = target.generation;
    if !current.is_still(&target.owner.uid, generation, target.deleting) {
        return Err(Stop::Conflict(format!(
            "it was changed or deleted: its generation is now {}, and the plan was made for {generation}",
            current.generation
        )));
    }
    valid_until(requested, timeout).ok_or(Stop::Late)
}

#[cfg(test)]
mod tests {
    use gamekeeper_core::write::DeletionReason;
    use jiff::SignedDuration;
    use tokio::time::advance;

    use super::*;
    use crate::reconcile::apply::tests::{Allowed, permit, running};

    /// Whether a response that takes this long is accepted.
    async fn is_accepted(timeout: &mut AdaptiveTimeout, took: Duration) -> bool {
        let requested = Instant::now();
        advance(took).await;
        valid_until(requested, timeout).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_is_not_sent_after_the_success_of_its_hook_has_become_invalid() {
        let pod = running("a");
        let deletion =
            |until| Write::delete_pod(permit(&pod, Allowed(until)), DeletionReason::Update);
        let until = Instant::now() + PROOF_LIFETIME;
        let deadline = async |milliseconds: Option<i64>| {
            let after = |time| Timestamp::now() + SignedDuration::from_millis(time);
            let write = deletion(milliseconds.map(after));
            let deadline = Proof::until(until, &[]).deadline_of(&write).await;
            deadline.expect("a valid proof")
        };
        assert_eq!(deadline(None).await, until);
        assert_eq!(deadline(Some(60_000)).await, until);
        assert!(deadline(Some(100)).await < until);
        assert!(deadline(Some(-1)).await < Instant::now());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_slow_long_ago_gets_the_usual_timeout() {
        let (slow, mut timeout) = (Duration::from_secs(3), AdaptiveTimeout::new(PROOF_LIFETIME));
        for expected in [false, false, false, true, true] {
            assert_eq!(is_accepted(&mut timeout, slow).await, expected);
        }
        // Each slow response prolongs the time for which the server counts as slow, even if the response is accepted.
        for _ in 0..3 {
            advance(SLOWNESS_MEMORY * 2 / 3).await;
            assert!(is_accepted(&mut timeout, slow).await);
        }
        advance(SLOWNESS_MEMORY * 2).await;
        assert!(!is_accepted(&mut timeout, slow).await);
    }
}

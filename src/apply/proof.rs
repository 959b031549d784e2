//! For how long a decision may be acted on.
//!
//! A plan is good while its workload is as it was decided on, which is asked of the API server, and
//! while the pods are about as they were seen. Where only the former matters, asking again and again
//! lets one plan create or delete a thousand pods without a pause.

use std::future::pending;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::run::Stop;
use super::{Applier, Target};
use crate::plan::Action;

/// For how long a decision, and the proof that the workload has not moved, is good.
pub const PROOF: Duration = Duration::from_millis(500);
/// For how long a plan is carried out at most, however often its workload is proven unmoved: the
/// status is written by the next one.
const LONGEST: Duration = Duration::from_secs(6);

/// When a workload was last proven unmoved.
pub struct Proof {
    decided: Instant,
    /// None when it is known to have moved.
    proven: Mutex<Option<Instant>>,
}

impl Proof {
    /// What was decided then.
    pub fn new(decided: Instant) -> Self {
        Self {
            decided,
            proven: Mutex::new(Some(decided)),
        }
    }

    fn proven(&self) -> MutexGuard<'_, Option<Instant>> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an action may be begun now.
    pub fn is_good_for(&self, action: &Action) -> bool {
        let Some(proven) = *self.proven() else {
            return false;
        };
        let since = if action.lasts() { proven } else { self.decided };
        since.elapsed() <= PROOF
    }

    /// Asks again and again, until the answer is another one or it has gone on for long enough.
    /// Never returns.
    pub async fn renew(&self, applier: &Applier, target: &Target) {
        while self.decided.elapsed() < LONGEST {
            sleep(PROOF / 2).await;
            let answer = ask(applier, target).await;
            *self.proven() = answer.ok();
            if self.proven().is_none() {
                break;
            }
        }
        pending().await
    }
}

/// Makes sure that a workload is still as it was decided on, and says when that was asked.
pub async fn ask(applier: &Applier, target: &Target) -> Result<Instant, Stop> {
    let asked = Instant::now();
    let now = applier.requests.get(&target.path()).await?;
    let Target {
        uid, generation, ..
    } = target;
    if now.uid != *uid || now.generation != *generation || now.deletion_timestamp.is_some() {
        return Err(Stop::Moved(format!(
            "it is at generation {} now, and was planned for at {generation}",
            now.generation
        )));
    }
    Ok(asked)
}

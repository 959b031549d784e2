//! Since when each pod has waited for its hook. A HookRun cannot tell: a retry makes a new one, and so
//! does a success that grew too old.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

use gamekeeper_core::api::HookRun;
use gamekeeper_core::api::names::{self, HookPoint};

/// For how long a pod may be without a HookRun and still be taken to wait: a retry deletes one before
/// it makes the next.
const MAX_GAP: SignedDuration = SignedDuration::from_mins(5);

/// The waits that were seen. Each replica remembers, also while another one leads.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<BTreeMap<Waiting, Wait>>);

/// Namespace, point and uid of the pod; of a canary step, which is about no pod, of the HookRun.
type Waiting = (String, HookPoint, String);

#[derive(Clone, Copy, Debug)]
struct Wait {
    began: Timestamp,
    /// When it was last seen.
    seen: Timestamp,
}

impl Waits {
    /// When what this run is for began to wait.
    pub(super) fn began(&self, run: &HookRun, point: HookPoint, now: Timestamp) -> Timestamp {
        let meta = &run.metadata;
        let made = meta.creation_timestamp.as_ref().map_or(now, |it| it.0);
        let notes = meta.annotations.as_ref();
        let pod = notes.and_then(|notes| notes.get(names::RUN_POD_UID));
        let uid = pod.or(meta.uid.as_ref()).cloned().unwrap_or_default();
        let namespace = meta.namespace.clone().unwrap_or_default();
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = Wait {
            began: made,
            seen: now,
        };
        let wait = waits.entry((namespace, point, uid)).or_insert(new);
        wait.began = wait.began.min(made);
        wait.seen = now;
        wait.began
    }

    /// Forgets those that were not seen for a while.
    pub(super) fn forget(&self, now: Timestamp) {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|_, wait| now.duration_since(wait.seen) <= MAX_GAP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(minute: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute)
    }

    fn run(uid: &str, pod: &str, made: i64) -> HookRun {
        let run = json!({
            "metadata": {
                "namespace": "games", "name": "run", "uid": uid,
                "creationTimestamp": at(made).to_string(),
                "annotations": {names::RUN_POD_UID: pod},
            },
            "spec": {"metrics": []},
        });
        serde_json::from_value(run).expect("a run")
    }

    #[test]
    fn a_retry_does_not_begin_the_wait_anew() {
        let waits = Waits::default();
        let began = |run, now| waits.began(&run, HookPoint::PreDelete, at(now));
        assert_eq!(began(run("first", "pod", 0), 50), at(0));
        waits.forget(at(51));
        assert_eq!(began(run("second", "pod", 51), 52), at(0));
        assert_eq!(began(run("third", "other", 51), 52), at(51));
    }

    #[test]
    fn a_wait_that_was_called_off_is_over() {
        let waits = Waits::default();
        waits.began(&run("first", "pod", 0), HookPoint::PreDelete, at(1));
        waits.forget(at(7));
        let again = run("second", "pod", 20);
        assert_eq!(waits.began(&again, HookPoint::PreDelete, at(20)), at(20));
    }

    #[test]
    fn points_wait_for_themselves() {
        let waits = Waits::default();
        waits.began(&run("first", "pod", 0), HookPoint::PreInplace, at(1));
        let after = run("second", "pod", 2);
        assert_eq!(waits.began(&after, HookPoint::PostInplace, at(3)), at(2));
    }
}

//! When each pod began to wait for its hook. A HookRun does not show that: a new one is created for a retry, and
//! when a success is too old.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

use gamekeeper_core::api::HookRun;
use gamekeeper_core::api::names::{self, HookPoint};

/// The longest time that a pod may have no HookRun without ending its wait. Such gaps occur because a retry
/// deletes the old HookRun before it creates a new one.
const MAX_GAP: SignedDuration = SignedDuration::from_mins(5);

/// The observed waits. Each replica keeps its own, even while another one leads.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<BTreeMap<WaitKey, Wait>>);

/// Namespace, point, the uid of the pod (for a canary step, the uid of the HookRun), and the pod's revision: a pod that
/// is updated in place keeps its uid, and its wait for the next update is another one.
type WaitKey = (String, HookPoint, String, String);

#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Timestamp,
    last_seen: Timestamp,
}

impl Waits {
    /// Records that a pod or step waits for this run; returns when the wait began.
    pub(super) fn since(&self, run: &HookRun, point: HookPoint, now: Timestamp) -> Timestamp {
        let meta = &run.metadata;
        let created = meta.creation_timestamp.as_ref().map_or(now, |it| it.0);
        let annotations = meta.annotations.as_ref();
        let pod = annotations.and_then(|it| it.get(names::RUN_POD_UID));
        let uid = pod.or(meta.uid.as_ref()).cloned().unwrap_or_default();
        let labels = meta.labels.as_ref();
        let revision = labels.and_then(|it| it.get(names::RUN_POD_REVISION_LABEL));
        let revision = revision.cloned().unwrap_or_default();
        let namespace = meta.namespace.clone().unwrap_or_default();
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = Wait { since: created, last_seen: now };
        let wait = waits.entry((namespace, point, uid, revision)).or_insert(new);
        wait.since = wait.since.min(created);
        wait.last_seen = now;
        wait.since
    }

    pub(super) fn remove_old(&self, now: Timestamp) {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|_, wait| now.duration_since(wait.last_seen) <= MAX_GAP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(minute: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute)
    }

    fn run(uid: &str, pod: &str, created: i64) -> HookRun {
        let run = json!({
            "metadata": {
                "namespace": "games", "name": "run", "uid": uid,
                "creationTimestamp": at(created).to_string(),
                "annotations": {names::RUN_POD_UID: pod},
            },
            "spec": {"metrics": []},
        });
        serde_json::from_value(run).expect("a run")
    }

    #[test]
    fn a_wait_includes_retries() {
        let waits = Waits::default();
        let since = |run, now| waits.since(&run, HookPoint::PreDelete, at(now));
        assert_eq!(since(run("first", "pod", 0), 50), at(0));
        waits.remove_old(at(51));
        assert_eq!(since(run("second", "pod", 51), 52), at(0));
        assert_eq!(since(run("third", "other", 51), 52), at(51));
    }

    /// The uid of a pod that is updated in place does not change, but its revision does.
    #[test]
    fn each_update_of_a_pod_has_its_own_wait() {
        let waits = Waits::default();
        let since = |uid, revision: &str, created| {
            let mut run = run(uid, "pod", created);
            let label = (names::RUN_POD_REVISION_LABEL.to_owned(), revision.to_owned());
            run.metadata.labels = Some([label].into());
            waits.since(&run, HookPoint::PreInplace, at(created))
        };
        assert_eq!(since("first", "game-1", 0), at(0));
        assert_eq!(since("retry", "game-1", 2), at(0));
        assert_eq!(since("second", "game-2", 4), at(4));
    }

    #[test]
    fn a_wait_ends_when_its_pod_has_no_run_for_too_long() {
        let waits = Waits::default();
        waits.since(&run("first", "pod", 0), HookPoint::PreDelete, at(1));
        waits.remove_old(at(7));
        let second = run("second", "pod", 20);
        assert_eq!(waits.since(&second, HookPoint::PreDelete, at(20)), at(20));
    }

    #[test]
    fn each_point_has_its_own_wait() {
        let waits = Waits::default();
        waits.since(&run("first", "pod", 0), HookPoint::PreInplace, at(1));
        let second = run("second", "pod", 2);
        assert_eq!(waits.since(&second, HookPoint::PostInplace, at(3)), at(2));
    }
}

//! Since when guarded pods have waited for their deletion.
//!
//! The workload's status is the record, because only the operator writes it. The annotations of a pod (the mark, the
//! time) are copies for users: hooks, users and backups may set, change or remove either of them, and a pod takes them
//! along when it is released and adopted again. So a time in an annotation counts only beyond the number of pods that a
//! status lists, and never more than the time of the last pod that is listed.

use std::collections::HashMap;

use jiff::Timestamp;

use crate::api::{ProtectionStatus, WorkloadStatus};
use crate::observed::Pod;
use crate::observed::time::{MAX_CLOCK_SKEW, rounded_up};

/// Since when the pods of a workload have waited, as its last status recorded it.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// By the name of the pod.
    since: HashMap<String, Timestamp>,
    /// If the list is full: the latest time in it. Pods that are not listed do not wait longer than those that are.
    last: Option<Timestamp>,
}

impl Waits {
    /// The waits in a status.
    pub fn of(status: &WorkloadStatus) -> Self {
        let listed = status.protection.as_ref().map(|it| &it.waiting);
        let listed = || listed.into_iter().flatten();
        let is_full = listed().count() >= ProtectionStatus::MAX_WAITING;
        Self {
            since: listed().map(|it| (it.pod_name.clone(), it.since.0)).collect(),
            last: listed().map(|it| it.since.0).max().filter(|_| is_full),
        }
    }

    /// Since when this pod has waited; None if it has not. A time before the pod existed belongs to an earlier pod of
    /// the same name, and a time in the future to a clock that was wrong.
    pub fn recorded(&self, pod: &Pod, now: Timestamp) -> Option<Timestamp> {
        let beyond_list = || Some(pod.waiting_since?.max(self.last?));
        let listed = self.since.get(&pod.name).copied();
        let since = listed.or_else(beyond_list)?;
        let latest = begin(pod, now).checked_add(MAX_CLOCK_SKEW).ok()?;
        (pod.created <= since && since <= latest).then_some(since)
    }

    /// Whether the next status has to be written before anything is done to pods, because it records that one of these
    /// pods begins or ceases to wait. Pods that no longer exist do not matter, nor which others a full list shows next.
    pub fn differ(&self, next: &WorkloadStatus, own: &[&Pod]) -> bool {
        let next = Self::of(next);
        let begins = |(name, since): (&String, &Timestamp)| self.since.get(name) != Some(since);
        let ceases = |name: &str| self.since.contains_key(name) && !next.since.contains_key(name);
        let mut own = own.iter().filter(|pod| !pod.terminating);
        (self.last.is_none() && next.since.iter().any(begins)) || own.any(|pod| ceases(&pod.name))
    }

    /// Since when this pod has waited, if it waits now.
    pub fn since(&self, pod: &Pod, now: Timestamp) -> Timestamp {
        let recorded = self.recorded(pod, now);
        recorded.unwrap_or_else(|| rounded_up(begin(pod, now)))
    }
}

/// When a wait that begins now begins. It is not before the pod was created, even if this clock is behind.
fn begin(pod: &Pod, now: Timestamp) -> Timestamp {
    now.max(pod.created)
}

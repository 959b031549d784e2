//! The progress of a pod's in-place update. Once it has begun, its later writes need no further permit.

use jiff::Timestamp;

use crate::observed::{Gate, InPlaceRecord, Pod};

/// The progress of a pod's in-place update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InPlaceState<'a> {
    /// No update is in progress.
    Idle,
    /// The gate has been closed since this time, but nothing has been changed yet.
    Closed(Timestamp),
    /// The pod was changed, as the record states.
    Patched(Begun<'a>),
}

/// An update that has changed its pod. The permit for the first change is valid until the update is complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Begun<'a> {
    pod: &'a Pod,
    record: &'a InPlaceRecord,
}

impl<'a> Begun<'a> {
    /// The pod.
    pub fn pod(self) -> &'a Pod {
        self.pod
    }

    /// What was changed.
    pub fn record(self) -> &'a InPlaceRecord {
        self.record
    }
}

/// The progress of a pod's in-place update. A closed gate always belongs to an update, regardless of what closed it:
/// either the update is completed, or the gate is opened again.
pub fn in_place_state(pod: &Pod) -> InPlaceState<'_> {
    let record = pod.record.as_deref().filter(|record| !record.hot);
    match (pod.gate, record) {
        (Gate::Closed(since), Some(record)) if record.gate_closed_at == Some(since) => {
            InPlaceState::Patched(Begun { pod, record })
        }
        (Gate::Closed(since), _) => InPlaceState::Closed(since),
        (Gate::None, Some(record)) if !record.done => InPlaceState::Patched(Begun { pod, record }),
        _ => InPlaceState::Idle,
    }
}

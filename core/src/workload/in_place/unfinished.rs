//! Pods whose revision label is ahead of their spec: they lack parts of that revision, and no update in progress adds
//! them.
//!
//! An operator of bk-bcs sets the label before the grace period, and may have been replaced by this one since. And a
//! user who opens the gate between two containers of an ordered update ends that update. Such pods count as old ones:
//! they are updated when it is their turn, after their hook.

use serde_json::Value;

use super::{InPlaceChange, is_patched};
use crate::observed::{Pod, RevisionName, Turn};

/// Whether a pod is at a revision, or being updated to it.
pub(crate) fn is_at(pod: &Pod, revision: RevisionName) -> bool {
    pod.revision() == revision && !is_unfinished(pod)
}

/// Whether a pod lacks parts of the revision that its label names, and no update in progress adds them.
pub(crate) fn is_unfinished(pod: &Pod) -> bool {
    pod.postponed.is_some() || interrupted(pod).next().is_some()
}

/// Adds the parts that a pod lacks to `change`, which leads from the revision that the pod's label names to `template`.
pub(crate) fn with_missing_parts(
    pod: &Pod,
    change: &InPlaceChange,
    template: &Value,
) -> InPlaceChange {
    let mut change = change.clone();
    let postponed = pod.postponed.iter().flat_map(|images| images.iter());
    for (name, image) in postponed.chain(interrupted(pod)) {
        if !change.images.iter().any(|(known, _)| known == name) {
            change.images.push((name.clone(), image.clone()));
        }
    }
    if pod.postponed.is_some() {
        add_all(&mut change.labels, template.pointer("/metadata/labels"));
        add_all(&mut change.annotations, template.pointer("/metadata/annotations"));
    }
    change
}

/// Images of containers whose turn never came.
fn interrupted(pod: &Pod) -> impl Iterator<Item = (&String, &String)> {
    let record = pod.record.as_deref().filter(|_| !is_patched(pod));
    let changes = record.into_iter().flat_map(|record| &record.containers);
    changes.filter_map(|(name, change)| match &change.turn {
        Turn::Next(image) => Some((name, image)),
        Turn::Set | Turn::Passed => None,
    })
}

fn add_all(changes: &mut Vec<(String, Option<String>)>, all: Option<&Value>) {
    for (key, value) in all.and_then(Value::as_object).into_iter().flatten() {
        if !changes.iter().any(|(known, _)| known == key) {
            let value = value.as_str().unwrap_or_default();
            changes.push((key.clone(), Some(value.to_owned())));
        }
    }
}

//! The way back of a pod whose update the API server refuses halfway, after its first write.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::{Patching, change_between, patch_of};
use crate::guard::Begun;
use crate::observed::{InPlaceRecord, Pod, RevisionName};
use crate::write::InPlacePatch;

/// The patch that takes a pod back to the revision that it was at before its update. `current` and `previous` are the
/// templates of the two revisions. None if the way back is not possible in place.
pub(crate) fn patch_back(
    begun: Begun,
    current: &Value,
    previous: &Value,
    now: Timestamp,
    patching: Patching,
) -> Option<InPlacePatch> {
    let [current, previous] = [current, previous].map(without_resources);
    let change = change_between(&current, &previous).ok()?;
    // New resources that were refused are not waited for.
    let mut record = InPlaceRecord::clone(begun.record());
    record.containers.retain(|name, it| {
        let has_new_image = change.images.iter().any(|(changed, _)| changed == name);
        it.resources.take().is_none() || has_new_image
    });
    let from = record.from.clone();
    let pod = Pod { record: Some(Arc::new(record)), ..begun.pod().clone() };
    Some(patch_of(&pod, RevisionName::of(&from), &change, now, patching))
}

fn without_resources(template: &Value) -> Value {
    let mut template = template.clone();
    let containers = template.pointer_mut("/spec/containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
        container.remove("resources");
    }
    template
}

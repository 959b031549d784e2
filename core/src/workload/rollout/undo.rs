//! A rollback to the stable template that a user requests with an annotation, for clients that see only the workload and not
//! its revisions, such as an action of Argo CD. `kubectl game undo` changes the template itself.

use serde_json::{Map, Value};

use crate::api::names;
use crate::observed::RevisionName;
use crate::workload::spec::Workload;
use crate::workload::world::World;
use crate::write::WorkloadPatch;

/// Restores the stable template if the annotation names the revision of this rollout, so that a request never applies to a
/// later one. Removes the annotation in any case.
pub(super) fn to_stable(
    workload: &Workload,
    world: &World,
    stable: RevisionName,
    update: RevisionName,
) -> Option<WorkloadPatch> {
    let requested = workload.annotations.get(names::UNDO_ANNOTATION)?;
    let is_of_this_rollout = requested == update.as_str() && update != stable;
    let revision = world.revisions.iter().find(|it| it.name() == stable);
    let revision = revision.filter(|_| is_of_this_rollout);
    Some(WorkloadPatch {
        template: revision.map(|it| merge_patch(&workload.template, &it.template.parse())),
        ..WorkloadPatch::annotation(names::UNDO_ANNOTATION, None)
    })
}

/// The merge patch from one value to another one.
fn merge_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let removed = from.keys().filter(|key| !to.contains_key(*key));
    let mut patch: Map<String, Value> = removed.map(|key| (key.clone(), Value::Null)).collect();
    for (key, value) in to {
        match from.get(key) {
            Some(old) if old == value => {}
            Some(old) => drop(patch.insert(key.clone(), merge_patch(old, value))),
            None => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    Value::Object(patch)
}

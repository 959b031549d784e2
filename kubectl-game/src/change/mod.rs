//! What commands change: pure functions from the observed objects to the new workload.
//!
//! The difference between the observed and the new workload is sent as a JSON patch with the observed resourceVersion,
//! so a command never resumes, rolls back or overwrites a state that it has not read.

pub mod image;
pub mod pause;
pub mod restart;
pub mod retry;
pub mod scale;
#[cfg(test)]
mod tests;
pub mod undo;

use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, ReplaceOperation};
use serde_json::{Map, Value};

use crate::game::Game;

#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The workload after the change.
    pub after: Value,
    /// The outcome, printed after the name of the workload, such as `resumed`.
    pub outcome: String,
    /// A note for the user.
    pub note: Option<String>,
}

impl Change {
    fn new(after: Value, outcome: impl Into<String>) -> Self {
        Change { after, outcome: outcome.into(), note: None }
    }

    /// The patch to send, if anything changes.
    pub fn patch(&self, game: &Game) -> Option<Patch> {
        patch_between(&game.object, &self.after)
    }
}

/// The patch from the observed state of an object to another state, if they differ.
pub fn patch_between(before: &Value, after: &Value) -> Option<Patch> {
    let mut patch = json_patch::diff(before, after);
    if patch.is_empty() {
        return None;
    }
    patch.0.push(PatchOperation::Replace(ReplaceOperation {
        path: PointerBuf::from_tokens(["metadata", "resourceVersion"]),
        value: before["metadata"]["resourceVersion"].clone(),
    }));
    Some(patch)
}

/// Sets a field, and creates missing parents.
fn set(object: &mut Value, path: &[&str], value: impl Into<Value>) {
    let mut place = object;
    for key in path {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[*key];
    }
    *place = value.into();
}

//! What commands change: each a pure function of what is there to the workload as it is to be.
//!
//! The difference is sent as a JSON patch together with the resourceVersion that it was worked out
//! from, so that nobody resumes, rolls back or overwrites what he has not seen.

pub mod image;
pub mod pause;
pub mod restart;
pub mod retry;
#[cfg(test)]
mod tests;
pub mod undo;

use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, ReplaceOperation};
use serde_json::{Map, Value};

use crate::game::Game;

/// A workload as it is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The object.
    pub after: Value,
    /// What was done to it, as kubectl says it after the name: `resumed`.
    pub did: String,
    /// What whoever did it should know.
    pub note: Option<String>,
}

impl Change {
    fn new(after: Value, did: impl Into<String>) -> Self {
        Change {
            after,
            did: did.into(),
            note: None,
        }
    }

    /// No change at all.
    fn none(game: &Game, why: impl Into<String>) -> Self {
        Change::new(game.object.clone(), why)
    }

    /// The patch to send; None when nothing is to be changed.
    pub fn patch(&self, game: &Game) -> Option<Patch> {
        let mut patch = json_patch::diff(&game.object, &self.after);
        if patch.is_empty() {
            return None;
        }
        patch.0.push(PatchOperation::Replace(ReplaceOperation {
            path: PointerBuf::from_tokens(["metadata", "resourceVersion"]),
            value: game.version().into(),
        }));
        Some(patch)
    }
}

/// Sets a field; objects on the way are made where they are missing.
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

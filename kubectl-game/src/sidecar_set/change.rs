//! `pause` and `resume` of a SidecarSet: both set spec.updateStrategy.paused.

use serde_json::{Value, json};

use super::set::Set;
use super::short_name;
use crate::error::{Error, refuse};

/// How a command changes a SidecarSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Pause,
    Resume,
}

/// The merge patch of a change, and its outcome in words.
pub fn patch(set: &Set, change: Change) -> Result<(Value, &'static str), Error> {
    let name = short_name(set.name());
    let paused = |paused: bool| json!({"spec": {"updateStrategy": {"paused": paused}}});
    match (change, set.spec().update_strategy.paused) {
        (Change::Pause, true) => refuse(format!("{name} is already paused")),
        (Change::Resume, false) => refuse(format!("{name} is not paused")),
        (Change::Pause, false) => Ok((paused(true), "paused")),
        (Change::Resume, true) => Ok((paused(false), "resumed")),
    }
}

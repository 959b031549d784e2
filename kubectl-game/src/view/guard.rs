//! Shows the guard of a workload's pods: whether it is in force, how many pods are guarded, and how many of those wait
//! for their hook.

use gamekeeper_core::api::{ConditionType, ProtectionStatus};
use gamekeeper_core::text::counted;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use crate::game::Game;
use crate::style::Tone;

/// The guard, according to the status of a workload.
pub struct Guard<'a> {
    status: &'a ProtectionStatus,
    condition: &'a Condition,
}

impl<'a> Guard<'a> {
    /// The guard of a workload's pods; None if they are not guarded.
    pub fn of(game: &'a Game) -> Option<Self> {
        Some(Guard {
            status: game.status.protection.as_ref()?,
            condition: game.status.condition(ConditionType::Guarded)?,
        })
    }

    fn is_in_force(&self) -> bool {
        self.condition.status == "True"
    }

    pub fn tone(&self) -> Tone {
        match self.is_in_force() {
            true => Tone::Plain,
            false => Tone::Bad,
        }
    }

    /// The guard in a sentence, for the head of a tree and for `status`.
    pub fn sentence(&self) -> String {
        if !self.is_in_force() {
            return format!("not in force: {}", self.condition.message);
        }
        let pods = usize::try_from(self.status.guarded).unwrap_or(0);
        let guarded = counted(pods, "pod guarded", "pods guarded");
        match self.status.waiting.len() {
            0 => guarded,
            1 => format!("{guarded}, 1 waiting for its hook"),
            _ => format!("{guarded}, {} waiting for their hooks", self.waiting()),
        }
    }

    /// For a table: the number of guarded pods, or why the guard is not in force.
    pub fn word(&self) -> String {
        match self.is_in_force() {
            true => self.status.guarded.to_string(),
            false => self.condition.reason.clone(),
        }
    }

    /// The number of pods that wait for their hook.
    pub fn waiting(&self) -> String {
        waiting(self.status)
    }

    /// The guard as JSON, for programs.
    pub fn data(&self) -> Value {
        json!({
            "inForce": self.is_in_force(),
            "guarded": self.status.guarded,
            "waiting": self.status.waiting.len(),
            "message": self.condition.message,
        })
    }
}

/// The number of pods that wait for their hook. The status lists at most `MAX_WAITING` of them.
pub fn waiting(status: &ProtectionStatus) -> String {
    match status.waiting.len() {
        ProtectionStatus::MAX_WAITING => format!("{}+", ProtectionStatus::MAX_WAITING),
        count => count.to_string(),
    }
}

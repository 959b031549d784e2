//! `pause`, `resume` and `promote`.
//!
//! The operator's own pause is `paused: true` with an annotation; a user ends it with `paused: false`. A
//! user's pause has no annotation, so removing the annotation turns the operator's pause into a user's.

use gamekeeper_core::api::names::{PAUSE_ANNOTATION, PROMOTE_ANNOTATION};
use gamekeeper_core::api::{CanaryStep, ConditionType};
use gamekeeper_core::workload::Promotion;
use serde_json::Value;

use super::{Change, set};
use crate::error::{Error, refuse};
use crate::game::Game;
use crate::verdict::name_of;

const PAUSED: [&str; 3] = ["spec", "updateStrategy", "paused"];

/// Pauses a rollout until a user resumes it, even at a pause step with a duration.
pub fn pause(game: &Game) -> Result<Change, Error> {
    let name = game.short_name();
    let mut after = game.object.clone();
    if !game.is_paused() {
        set(&mut after, &PAUSED, true);
        let is_complete =
            game.is_observed() && game.status.true_condition(ConditionType::Ready).is_some();
        let note =
            "its rollout is complete: the next change to the template waits until you resume it";
        return Ok(Change {
            note: is_complete.then(|| note.to_owned()),
            ..Change::new(after, "paused")
        });
    }
    if game.is_paused_by_user() {
        return refuse(format!("{name} is already paused"));
    }
    let (index, has_duration) = match game.step() {
        Some((index, step)) => (index, step.pause.as_ref().is_some_and(|it| it.duration.is_some())),
        None => (game.steps.len(), false),
    };
    if !has_duration {
        return refuse(format!("{name} is already paused by canary step {index}, until resumed"));
    }
    let annotations = after.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(PAUSE_ANNOTATION);
    }
    let note =
        "the pause no longer ends by itself; once resumed, the step's own pause starts again";
    let outcome = format!("paused: took over the pause of canary step {index}");
    Ok(Change { note: Some(note.to_owned()), ..Change::new(after, outcome) })
}

/// Ends a pause, whether a user or a canary step set it.
pub fn resume(game: &Game) -> Result<Change, Error> {
    if !game.is_paused() {
        return refuse(format!("{} is not paused", game.short_name()));
    }
    let mut after = game.object.clone();
    match (&game.own_pause, game.paused) {
        // An apply has set `paused` to false, so that setting it would change nothing.
        (Some(pause), false) => {
            let ended = serde_json::to_string(&pause.ended()).map_err(unexpected)?;
            set(&mut after, &["metadata", "annotations", PAUSE_ANNOTATION], ended);
        }
        _ => set(&mut after, &PAUSED, false),
    }
    Ok(Change::new(after, "resumed"))
}

/// Continues past the canary step that pauses.
pub fn promote(game: &Game) -> Result<Change, Error> {
    let (index, step) = promotable(game)?;
    if !game.is_paused() {
        return refuse(format!(
            "canary step {index} ({}) of {} is in progress and continues by itself; --full skips all remaining steps",
            name_of(step),
            game.short_name()
        ));
    }
    Ok(Change {
        outcome: format!("promoted past canary step {index} ({})", name_of(step)),
        ..resume(game)?
    })
}

/// Skips the remaining canary steps, by an annotation that names this rollout.
pub fn promote_fully(game: &Game) -> Result<Change, Error> {
    let (index, _) = promotable(game)?;
    let promotion = Promotion {
        revision: game.status.update_revision.clone(),
        step_hash: game.status.current_step_hash.clone().unwrap_or_default(),
    };
    let promotion = serde_json::to_string(&promotion);
    let promotion = promotion.map_err(unexpected)?;
    let mut after = game.object.clone();
    let path = ["metadata", "annotations", PROMOTE_ANNOTATION];
    set(&mut after, &path, promotion);
    if game.paused {
        set(&mut after, &PAUSED, false);
    }
    let last = game.steps.len() - 1;
    let outcome = match last - index {
        0 => format!("fully promoted: skips canary step {index}"),
        _ => format!("fully promoted: skips canary steps {index} to {last}"),
    };
    Ok(Change::new(after, outcome))
}

fn unexpected(error: serde_json::Error) -> Error {
    Error::Unexpected(error.to_string())
}

/// The current canary step, if the rollout can be promoted.
fn promotable(game: &Game) -> Result<(usize, &CanaryStep), Error> {
    let name = game.short_name();
    if !game.is_observed() {
        return refuse(format!(
            "the operator has not observed the latest {name} yet: see {}",
            game.command("status")
        ));
    }
    let Some((index, step)) = game.step().filter(|_| game.is_rolling()) else {
        return refuse(format!("{name} is not at a canary step: nothing to promote"));
    };
    if game.is_paused_by_user() {
        return refuse(format!(
            "{name} is paused by a user, not by canary step {index}: continue with {}",
            game.command("resume")
        ));
    }
    Ok((index, step))
}

//! `pause`, `resume` and `promote`.
//!
//! A pause of the operator's own is `paused: true` with a note in an annotation; `paused: false` by
//! a person ends it. A pause of a user's has no note, so taking the note off takes a pause over.

use gamekeeper_core::api::names::{PAUSE_ANNOTATION, PROMOTE_ANNOTATION};
use gamekeeper_core::api::{CanaryStep, ConditionType};
use gamekeeper_core::plan::Promotion;
use serde_json::Value;

use super::{Change, set};
use crate::error::Error;
use crate::game::Game;
use crate::verdict::name_of;

const PAUSED: [&str; 3] = ["spec", "updateStrategy", "paused"];

/// Pauses a rollout until somebody resumes; a pause step with a duration is held beyond it.
pub fn pause(game: &Game) -> Result<Change, Error> {
    let mut after = game.object.clone();
    if !game.paused {
        set(&mut after, &PAUSED, true);
        let is_complete = game.is_observed() && game.status.holds(ConditionType::Ready).is_some();
        return Ok(Change {
            note: is_complete.then(|| {
                "its rollout is complete: the next template change waits until resumed".to_owned()
            }),
            ..Change::new(after, "paused")
        });
    }
    if game.is_paused_by_user() {
        return Err(Error::Refused(format!(
            "{} is already paused",
            game.short_name()
        )));
    }
    let (index, ends) = match game.step() {
        Some((index, step)) => (
            index,
            step.pause.as_ref().is_some_and(|it| it.duration.is_some()),
        ),
        None => (game.steps.len(), false),
    };
    if !ends {
        return Err(Error::Refused(format!(
            "{} is already paused by canary step {index}, until resumed",
            game.short_name()
        )));
    }
    let annotations = after.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(PAUSE_ANNOTATION);
    }
    Ok(Change {
        note: Some(
            "the pause no longer ends by itself; once resumed, the step's own pause starts again"
                .to_owned(),
        ),
        ..Change::new(
            after,
            format!("paused: took over the pause of canary step {index}"),
        )
    })
}

/// Ends a pause, whoever made it.
pub fn resume(game: &Game) -> Result<Change, Error> {
    if !game.paused {
        return Err(Error::Refused(format!(
            "{} is not paused",
            game.short_name()
        )));
    }
    let mut after = game.object.clone();
    set(&mut after, &PAUSED, false);
    Ok(Change::new(after, "resumed"))
}

/// Goes on from the canary step that pauses.
pub fn promote(game: &Game) -> Result<Change, Error> {
    let (index, step) = promotable(game)?;
    if !game.paused {
        return Err(Error::Refused(format!(
            "canary step {index} ({}) of {} is in progress and continues by itself; --full skips all remaining steps",
            name_of(step),
            game.short_name()
        )));
    }
    let resumed = resume(game)?;
    Ok(Change {
        did: format!("promoted past canary step {index} ({})", name_of(step)),
        ..resumed
    })
}

/// Skips the canary steps that are left, with a note that names this rollout and no other.
pub fn promote_fully(game: &Game) -> Result<Change, Error> {
    let (index, _) = promotable(game)?;
    let note = Promotion {
        revision: game.status.update_revision.clone(),
        step_hash: game.status.current_step_hash.clone().unwrap_or_default(),
    };
    let note = serde_json::to_string(&note).map_err(|error| Error::Odd(error.to_string()))?;
    let mut after = game.object.clone();
    set(
        &mut after,
        &["metadata", "annotations", PROMOTE_ANNOTATION],
        note,
    );
    if game.paused {
        set(&mut after, &PAUSED, false);
    }
    let last = game.steps.len() - 1;
    let skipped = match last - index {
        0 => format!("step {index}"),
        _ => format!("steps {index} to {last}"),
    };
    Ok(Change::new(
        after,
        format!("fully promoted: skips canary {skipped}"),
    ))
}

/// The canary step where a rollout stands that may be promoted.
fn promotable(game: &Game) -> Result<(usize, &CanaryStep), Error> {
    let name = game.short_name();
    let refuse = |why: String| Err(Error::Refused(why));
    if !game.is_observed() {
        return refuse(format!(
            "the operator has not observed the latest {name} yet: see kubectl game status {name}"
        ));
    }
    let Some((index, step)) = game.step().filter(|_| game.is_rolling()) else {
        return refuse(format!(
            "{name} is not at a canary step: nothing to promote"
        ));
    };
    if game.is_paused_by_user() {
        return refuse(format!(
            "{name} is paused by a user, not by canary step {index}: continue with kubectl game resume {name}"
        ));
    }
    Ok((index, step))
}

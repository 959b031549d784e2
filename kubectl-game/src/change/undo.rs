//! `undo`: an earlier pod template again.
//!
//! In the middle of a rollout that is the stable one, and the operator brings every pod back to it
//! without steps. Otherwise it is a rollout like any other.

use gamekeeper_core::plan::canonical;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;

use super::{Change, set};
use crate::error::Error;
use crate::scene::{Scene, template_of};

/// Rolls back to a revision; to the stable or else the previous one when none is named.
pub fn undo(scene: &Scene, to: Option<i64>) -> Result<Change, Error> {
    let game = &scene.game;
    let revision = match to {
        Some(number) if number > 0 => numbered(scene, number)?,
        _ => previous(scene)?,
    };
    let number = revision.revision;
    let template = template_of(revision).ok_or_else(|| {
        Error::Odd(format!(
            "revision {number} ({}) contains no pod template",
            revision.name_any()
        ))
    })?;
    if canonical(&template) == canonical(&game.template) {
        let why = format!("skipped rollback (current template already matches revision {number})");
        return Ok(Change::none(game, why));
    }
    let mut after = game.object.clone();
    set(&mut after, &["spec", "template"], template);
    let is_stable = revision.name_any() == game.status.canary.revision;
    let note = if game.is_paused_by_user() {
        Some(format!(
            "it is paused by a user: no pod is updated until kubectl game resume {}",
            game.short_name()
        ))
    } else if is_stable || game.steps.is_empty() {
        None
    } else {
        Some(format!(
            "this is a rollout with canary steps: follow it with kubectl game tree {} -w",
            game.short_name()
        ))
    };
    Ok(Change {
        note,
        ..Change::new(after, format!("rolled back to revision {number}"))
    })
}

/// The revision of that number.
pub fn numbered(scene: &Scene, number: i64) -> Result<&ControllerRevision, Error> {
    let found = scene.revisions.iter().find(|it| it.revision == number);
    found.ok_or_else(|| {
        let there: Vec<String> = scene
            .revisions
            .iter()
            .rev()
            .map(|it| it.revision.to_string())
            .collect();
        Error::Refused(format!(
            "{} has no revision {number}; there are {}",
            scene.game.short_name(),
            there.join(", ")
        ))
    })
}

fn previous(scene: &Scene) -> Result<&ControllerRevision, Error> {
    let status = &scene.game.status;
    let mut revisions = scene.revisions.iter();
    let found = if scene.game.is_rolling() {
        revisions.find(|it| it.name_any() == status.canary.revision)
    } else {
        revisions.find(|it| it.name_any() != status.update_revision)
    };
    found.ok_or_else(|| {
        Error::Refused(format!(
            "{} has no earlier revision to roll back to",
            scene.game.short_name()
        ))
    })
}

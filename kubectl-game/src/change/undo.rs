//! `undo`: rolls back to an earlier pod template.
//!
//! During a rollout, the default is the stable template: the operator returns all pods to it without steps. Otherwise it
//! is the last one that was stable before. A rollback to any other template is an ordinary rollout. An undo is not undone:
//! that would bring back what it was to get rid of.

use gamekeeper_core::api::names::ROLLED_BACK_ANNOTATION;
use gamekeeper_core::revision::canonical;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;

use super::{Change, set};
use crate::error::{Error, refuse};
use crate::game::Game;
use crate::scene::{Scene, template_of};

/// Rolls back to a revision; by default, to the stable one during a rollout, and to the last stable one before otherwise.
pub fn undo(scene: &Scene, to_revision: Option<i64>) -> Result<Change, Error> {
    let game = &scene.game;
    let revision = match to_revision {
        Some(number) if number > 0 => revision_numbered(scene, number)?,
        _ => previous(scene)?,
    };
    let number = revision.revision;
    let template = template_of(revision).ok_or_else(|| {
        let revision = revision.name_any();
        Error::Unexpected(format!("revision {number} ({revision}) contains no pod template"))
    })?;
    if canonical(&template) == canonical(&game.template) {
        let outcome =
            format!("skipped rollback (current template already matches revision {number})");
        return Ok(Change::new(game.object.clone(), outcome));
    }
    let mut after = game.object.clone();
    let images = Game::images_of(&template).join(", ");
    set(&mut after, &["spec", "template"], template);
    let path = ["metadata", "annotations", ROLLED_BACK_ANNOTATION];
    set(&mut after, &path, revision.name_any());
    let is_stable = revision.name_any() == game.status.canary.revision;
    let note = if game.is_paused_by_user() {
        let resume = game.command("resume");
        Some(format!("it is paused by a user: no pod is updated until you run {resume}"))
    } else if is_stable || game.steps.is_empty() {
        None
    } else {
        let follow = game.command("tree -w");
        Some(format!("this is a rollout with canary steps: follow it with {follow}"))
    };
    Ok(Change {
        note,
        ..Change::new(after, format!("rolled back to revision {number} ({images})"))
    })
}

/// The revision with this number.
pub fn revision_numbered(scene: &Scene, number: i64) -> Result<&ControllerRevision, Error> {
    let mut revisions = scene.revisions.iter();
    if let Some(found) = revisions.find(|it| it.revision == number) {
        return Ok(found);
    }
    let known = scene.revisions.iter().rev();
    let known: Vec<String> = known.map(|it| it.revision.to_string()).collect();
    let (name, known) = (scene.game.short_name(), known.join(", "));
    refuse(format!("{name} has no revision {number}; its revisions are {known}"))
}

fn previous(scene: &Scene) -> Result<&ControllerRevision, Error> {
    let game = &scene.game;
    let (status, name) = (&game.status, game.short_name());
    let find = |name: &str| scene.revisions.iter().find(|it| it.name_any() == name);
    if game.is_rolling() {
        let stable = find(&status.canary.revision);
        return stable.map_or_else(|| refuse(no_stable(game)), Ok);
    }
    if !game.is_observed() {
        return refuse(unknown_previous(&name, &game.options));
    }
    let rolled_back = game.object["metadata"]["annotations"][ROLLED_BACK_ANNOTATION].as_str();
    if rolled_back == Some(status.update_revision.as_str()) {
        let number = find(&status.update_revision).map_or(0, |it| it.revision);
        return refuse(format!(
            "{name} has just been rolled back to revision {number}, and an undo is not undone: choose a revision with \
             --to-revision; see {}",
            game.command("history")
        ));
    }
    let mut earlier = status.earlier_stable_revisions.iter();
    earlier.find_map(|name| find(name)).map_or_else(|| refuse(no_stable(game)), Ok)
}

/// Why there is no revision to return to.
fn no_stable(game: &Game) -> String {
    format!(
        "{} has no earlier revision to roll back to that was ever stable: choose one with --to-revision; see {}",
        game.short_name(),
        game.command("history")
    )
}

/// Why there is no default before the operator has observed the latest change: if it is a new template, the update
/// revision in the status is already the previous one.
pub fn unknown_previous(name: &str, options: &str) -> String {
    format!(
        "the operator has not observed the latest {name} yet, so the previous revision is not known: wait until it has \
         (see kubectl game status {name}{options}), or choose one with --to-revision"
    )
}

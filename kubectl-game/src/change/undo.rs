//! `undo`: rolls back to an earlier pod template.
//!
//! During a rollout, the default is the stable template: the operator returns all pods to it without steps. A
//! rollback to any other template is an ordinary rollout.

use gamekeeper_core::revision::canonical;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;

use super::{Change, set};
use crate::error::{Error, refuse};
use crate::scene::{Scene, template_of};

/// Rolls back to a revision; by default, to the stable one during a rollout, and to the previous one otherwise.
pub fn undo(scene: &Scene, to_revision: Option<i64>) -> Result<Change, Error> {
    let game = &scene.game;
    let revision = match to_revision {
        Some(number) if number > 0 => revision_numbered(scene, number)?,
        _ => previous(scene)?,
    };
    let number = revision.revision;
    let name = game.short_name();
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
    set(&mut after, &["spec", "template"], template);
    let is_stable = revision.name_any() == game.status.canary.revision;
    let note = if game.is_paused_by_user() {
        Some(format!(
            "it is paused by a user: no pod is updated until you run kubectl game resume {name}"
        ))
    } else if is_stable || game.steps.is_empty() {
        None
    } else {
        Some(format!(
            "this is a rollout with canary steps: follow it with kubectl game tree {name} -w"
        ))
    };
    Ok(Change { note, ..Change::new(after, format!("rolled back to revision {number}")) })
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
    let mut revisions = scene.revisions.iter();
    let found = if game.is_rolling() {
        revisions.find(|it| it.name_any() == status.canary.revision)
    } else if game.is_observed() {
        revisions.find(|it| it.name_any() != status.update_revision)
    } else {
        return refuse(unknown_previous(&name));
    };
    found.map_or_else(|| refuse(format!("{name} has no earlier revision to roll back to")), Ok)
}

/// Why there is no default before the operator has observed the latest change: if it is a new template, the update
/// revision in the status is already the previous one.
pub fn unknown_previous(name: &str) -> String {
    format!(
        "the operator has not observed the latest {name} yet, so the previous revision is not known: wait until it has \
         (see kubectl game status {name}), or choose one with --to-revision"
    )
}

//! `kubectl game history`: the revisions, their pods, and their roles in the rollout.

use gamekeeper_core::api::names::CHANGE_CAUSE;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;

use crate::age::age;
use crate::game::Game;
use crate::scene::{Scene, template_of};
use crate::style::{Style, Tone};
use crate::table::{Cell, Table};

/// The table of revisions, oldest first, as in kubectl.
pub fn history(scene: &Scene, style: Style, now: Timestamp) -> String {
    let mut table =
        Table::new(["REVISION", "STATE", "PODS", "IMAGES", "AGE", "NAME", "CHANGE-CAUSE"]);
    let mut revisions: Vec<&ControllerRevision> = scene.revisions.iter().collect();
    revisions.sort_by_key(|revision| revision.revision);
    for revision in revisions {
        let name = revision.name_any();
        let role = scene.role(&name);
        let tone = match role {
            "update" => Tone::Busy,
            "stable" | "current" => Tone::Good,
            _ => Tone::Faint,
        };
        let state = if role.is_empty() { "-" } else { role };
        table.push([
            revision.revision.to_string().into(),
            Cell::state(tone, state),
            scene.pods_at(&name).count().to_string().into(),
            images(revision).into(),
            age(revision.creation_timestamp().as_ref(), now).into(),
            name.into(),
            cause(revision).into(),
        ]);
    }
    table.render(style)
}

pub fn images(revision: &ControllerRevision) -> String {
    let template = template_of(revision).unwrap_or_default();
    Game::images_of(&template).join(",")
}

fn cause(revision: &ControllerRevision) -> String {
    let cause_in_template = || {
        let cause = &template_of(revision)?["metadata"]["annotations"][CHANGE_CAUSE];
        cause.as_str().map(str::to_owned)
    };
    let annotated = revision.annotations().get(CHANGE_CAUSE).cloned();
    annotated.or_else(cause_in_template).unwrap_or_else(|| "<none>".to_owned())
}

/// One revision with its pod template.
pub fn details(game: &Game, revision: &ControllerRevision) -> Result<String, serde_yaml_ng::Error> {
    let template = serde_yaml_ng::to_string(&template_of(revision).unwrap_or_default())?;
    Ok(format!(
        "{} with revision #{} ({})\n{template}",
        game.full_name(),
        revision.revision,
        revision.name_any()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{now, paused_canary};

    #[test]
    fn revisions_with_their_pods_and_their_role() {
        insta::assert_snapshot!(history(&paused_canary(), Style::PLAIN, now()));
    }

    #[test]
    fn a_revision_shows_its_template() {
        let scene = paused_canary();
        let shown = details(&scene.game, &scene.revisions[0]).expect("YAML");
        insta::assert_snapshot!(shown);
    }
}

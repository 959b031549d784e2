//! Accepted first: no pod is touched for a revision that the API server has not taken yet.
//!
//! A typo, a quota or a policy would otherwise cost a running server, and leave a gap behind.

use jiff::SignedDuration;

use crate::api::Reason;
use crate::plan::decision::{Action, Blocked, Draft};
use crate::plan::pods::creation::dry_run_pod;
use crate::plan::update::{Scene, quota};
use crate::plan::world::Verdict;

/// What the API server thinks of the update revision.
#[derive(Clone, Debug)]
pub enum Acceptance {
    /// It takes pods of it.
    Accepted,
    /// It is being asked.
    Asked,
    /// It refuses them.
    Refused(Blocked),
}

/// How long after a refusal it is asked again: a quota may have been raised.
const ASK_AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// Whether the API server takes pods of the update revision; asks it when that is not known. Looked
/// up once a plan, however many pods ask.
pub fn acceptance(scene: &Scene, draft: &mut Draft) -> Acceptance {
    let look_up = || look_up(scene, draft);
    scene.acceptance.get_or_init(look_up).clone()
}

fn look_up(scene: &Scene, draft: &mut Draft) -> Acceptance {
    let update = scene.revisions.update;
    let was_created = scene.world.pods.iter().any(|pod| {
        pod.controller.is_some()
            && pod.revision() == update.name()
            && pod
                .record
                .as_ref()
                .is_none_or(|record| record.revision != update.name)
    });
    if was_created {
        return Acceptance::Accepted;
    }
    let refused = match scene.world.verdicts.get(&update.name) {
        Some(Verdict::Accepted) => return Acceptance::Accepted,
        Some(Verdict::Refused { message, .. }) if fits_in_place_of_an_old_pod(scene, message) => {
            return Acceptance::Accepted;
        }
        Some(Verdict::Refused { message, at }) => {
            let again = at.checked_add(ASK_AGAIN_AFTER).unwrap_or(*at);
            // A clock that was set back would have it wait for longer.
            if again > scene.world.now && *at <= scene.world.now {
                draft.wake_at(again);
                return Acceptance::Refused(refused(message));
            }
            Acceptance::Refused(refused(message))
        }
        None => Acceptance::Asked,
    };
    let pod = dry_run_pod(scene.workload, update);
    draft.push(Action::DryRun {
        revision: update.name.clone(),
        pod,
    });
    refused
}

/// A quota that has no room for one pod more may have it for a new pod instead of an old one.
fn fits_in_place_of_an_old_pod(scene: &Scene, refusal: &str) -> bool {
    let stable = scene.rollout.progress.stable();
    let old = stable.and_then(|name| scene.revisions.get(name));
    old.is_some_and(|old| quota::has_room_for_a_replacement(refusal, &old.template))
}

fn refused(message: &str) -> Blocked {
    Blocked {
        reason: Reason::TemplateRefused,
        message: format!(
            "the API server rejects pods of this template, so no running pod is updated: {message}"
        ),
    }
}

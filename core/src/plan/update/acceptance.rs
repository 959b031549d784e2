//! Accepted first: no pod is touched for a revision that the API server has not taken yet.
//!
//! A typo, a quota or a policy would otherwise cost a running server, and leave a gap behind.

use jiff::{SignedDuration, Timestamp};

use crate::api::Reason;
use crate::plan::decision::{Action, Blocked, Decision};
use crate::plan::in_place::is_at;
use crate::plan::pods::creation::dry_run_pod;
use crate::plan::update::{Scene, quota};
use crate::plan::world::Verdict;

/// What the API server thinks of the update revision.
#[derive(Clone, Debug)]
pub enum Acceptance {
    /// It accepts pods of it.
    Accepted,
    /// It is asked in this plan.
    Asked,
    /// It rejects them.
    Refused {
        /// What users are told.
        why: Blocked,
        /// When it is asked again; None: in this plan.
        again: Option<Timestamp>,
    },
}

/// How long after a refusal it is asked again: a quota may have been raised.
const ASK_AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(30);

impl Scene<'_> {
    /// Whether the API server accepts pods of the update revision. Looked up once a plan, however
    /// many pods depend on it.
    pub fn acceptance(&self) -> &Acceptance {
        self.acceptance.get_or_init(|| look_up(self))
    }

    /// What is asked of the API server, if anything in this plan depends on its answer.
    pub fn question(&self) -> Decision {
        match self.acceptance.get() {
            None | Some(Acceptance::Accepted) => Decision::Wait,
            Some(Acceptance::Refused {
                again: Some(at), ..
            }) => Decision::Until(*at),
            Some(Acceptance::Asked | Acceptance::Refused { again: None, .. }) => {
                let update = self.revisions.update;
                Decision::Do(Action::DryRun {
                    revision: update.name.clone(),
                    pod: dry_run_pod(self.workload, update),
                })
            }
        }
    }
}

fn look_up(scene: &Scene) -> Acceptance {
    let update = scene.revisions.update;
    let was_created = scene.world.pods.iter().any(|pod| {
        pod.controller.is_some()
            && is_at(pod, update.name())
            && pod
                .record
                .as_ref()
                .is_none_or(|record| record.revision != update.name)
    });
    if was_created {
        return Acceptance::Accepted;
    }
    match scene.world.verdicts.get(&update.name) {
        Some(Verdict::Accepted) => Acceptance::Accepted,
        Some(Verdict::Refused { message, .. }) if fits_in_place_of_an_old_pod(scene, message) => {
            Acceptance::Accepted
        }
        Some(Verdict::Refused { message, at }) => {
            let now = scene.world.now;
            let again = at.checked_add(ASK_AGAIN_AFTER).unwrap_or(*at);
            Acceptance::Refused {
                why: refused(message),
                // A clock that was set back would have it wait for longer.
                again: (again > now && *at <= now).then_some(again),
            }
        }
        None => Acceptance::Asked,
    }
}

/// A quota that has no room for one pod more may have it for a new pod instead of an old one.
fn fits_in_place_of_an_old_pod(scene: &Scene, refusal: &str) -> bool {
    let stable = scene.sizes.rollout.progress.stable();
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

//! No pod is updated to a revision that the API server has not accepted yet.
//!
//! Otherwise a typo, a quota or a policy would cost a running game server, without a replacement.

use jiff::{SignedDuration, Timestamp};

use crate::api::Reason;
use crate::observed::Pod;
use crate::sidecar_set::is_current;
use crate::workload::decision::{Blocked, Decision};
use crate::workload::in_place::is_at;
use crate::workload::pods::creation::dry_run_pod;
use crate::workload::update::Scene;
use crate::workload::update::quota::{Usage, has_room_for_a_replacement};
use crate::workload::world::Verdict;
use crate::write::Write;

/// Whether the API server accepts the update revision.
#[derive(Clone, Debug)]
pub enum Acceptance {
    /// It accepts pods of that revision.
    Accepted,
    /// Not known yet: this plan makes a dry run.
    Unknown,
    /// It rejects them.
    Refused {
        /// The reason, for users.
        why: Blocked,
        /// When the dry run is repeated; None if this plan repeats it.
        again: Option<Timestamp>,
    },
}

/// How long after a refusal the dry run is repeated, because a quota may have been raised since.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(30);

impl Scene<'_> {
    /// Whether the API server accepts pods of the update revision. Determined once per plan, however many pods depend
    /// on it.
    pub fn acceptance(&self) -> &Acceptance {
        self.acceptance.get_or_init(|| look_up(self))
    }

    /// The dry run to make, if anything in this plan depends on its result.
    pub fn dry_run(&self) -> Decision {
        match self.acceptance.get() {
            None | Some(Acceptance::Accepted) => Decision::Wait,
            Some(Acceptance::Refused { again: Some(at), .. }) => Decision::Until(*at),
            Some(Acceptance::Unknown | Acceptance::Refused { again: None, .. }) => {
                let update = self.revisions.update;
                let pod = dry_run_pod(self.workload, self.world, update);
                Decision::Do(Write::dry_run(update.name.clone(), pod))
            }
        }
    }
}

fn look_up(scene: &Scene) -> Acceptance {
    let update = scene.revisions.update;
    let has_created_pod = scene.world.pods.iter().any(|pod| {
        pod.controller.is_some()
            && is_at(pod, update.name())
            && pod.record.as_ref().is_none_or(|record| record.revision != update.name)
            && is_current(&scene.world.sidecars, &pod.labels, &pod.sidecars)
    });
    if has_created_pod {
        return Acceptance::Accepted;
    }
    match scene.world.verdicts.get(&update.name) {
        Some(Verdict::Accepted) => Acceptance::Accepted,
        Some(Verdict::Refused { message, .. }) if fits_as_replacement(scene, message) => {
            Acceptance::Accepted
        }
        Some(Verdict::Refused { message, at }) => {
            let now = scene.world.now;
            let retry_at = at.checked_add(RETRY_AFTER).unwrap_or(*at);
            Acceptance::Refused {
                why: refused(message),
                // If the clock was set back, waiting for this time would take too long.
                again: (retry_at > now && *at <= now).then_some(retry_at),
            }
        }
        None => Acceptance::Unknown,
    }
}

/// Whether a quota that has no room for an additional pod has room for a replacement, whichever old pod it replaces.
fn fits_as_replacement(scene: &Scene, refusal: &str) -> bool {
    let fits = |usage: &Usage| has_room_for_a_replacement(refusal, usage);
    let update = scene.revisions.update.name();
    // A pod that has ended does not count against quotas.
    let is_old = |pod: &&&Pod| pod.revision() != update && !pod.ended();
    let mut old = scene.own.iter().filter(is_old).peekable();
    if old.peek().is_some() {
        return old.all(|pod| {
            let revision = scene.revisions.get(pod.revision());
            let template = revision.map(|it| it.template.parse());
            fits(&Usage::of_pod(pod, template.as_ref()))
        });
    }
    // The last old pod has been deleted, and its replacement has yet to be created.
    let stable = scene.sizes.rollout.progress.stable();
    let stable = stable.and_then(|name| scene.revisions.get(name));
    stable.is_some_and(|stable| {
        let pod = dry_run_pod(scene.workload, scene.world, stable);
        fits(&Usage::of_new_pod(&pod))
    })
}

fn refused(message: &str) -> Blocked {
    Blocked {
        reason: Reason::TemplateRefused,
        message: format!(
            "the API server rejects pods of this template, so no running pod is updated: {message}"
        ),
    }
}

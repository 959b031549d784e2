//! No pod is updated to a revision that the API server has not accepted yet.
//!
//! Otherwise a typo, a quota or a policy would cost a running game server, without a replacement.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::api::Reason;
use crate::observed::Pod;
use crate::sidecar_set::{is_current, unreadable_for};
use crate::workload::decision::{Blocked, Decision};
use crate::workload::in_place::is_at;
use crate::workload::pods::creation::dry_run_pod;
use crate::workload::update::Scene;
use crate::workload::update::quota::{Usage, has_room_for_a_replacement, have_same_quota_scopes};
use crate::workload::world::{Replacement, Revision, Verdict};
use crate::write::Write;

/// Whether the API server accepts the update revision.
#[derive(Clone, Debug)]
pub(crate) enum Acceptance {
    /// It accepts pods of that revision.
    Accepted,
    /// A quota has no room for an additional pod. It has room for one that replaces another, as far as its message
    /// shows; but there may be other quotas. So one pod is replaced first.
    OnTrial {
        /// Whether a pod has been given up for it.
        has_room: bool,
    },
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
    pub(crate) fn acceptance(&self) -> &Acceptance {
        self.acceptance.get_or_init(|| look_up(self))
    }

    /// Why no pod of this revision is created, if a SidecarSet that may select it cannot be decoded.
    pub(crate) fn blocked_by_sidecars(&self, revision: &Revision) -> Option<Blocked> {
        let sets = &self.world.unreadable_sidecars;
        if sets.is_empty() {
            return None;
        }
        let pod = dry_run_pod(self.workload, self.world, revision);
        let labels = serde_json::from_value(pod["metadata"]["labels"].clone()).unwrap_or_default();
        let set = unreadable_for(sets, &labels)?;
        Some(Blocked { reason: Reason::SidecarsUnreadable, message: set.why_none_is_created() })
    }

    /// The dry run to make, if anything in this plan depends on its result.
    pub(crate) fn dry_run(&self) -> Decision {
        match self.acceptance.get() {
            None | Some(Acceptance::Accepted | Acceptance::OnTrial { .. }) => Decision::Wait,
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
    if let Some(why) = scene.blocked_by_sidecars(update) {
        // No pod is given up for one that is not created.
        return Acceptance::Refused { why, again: scene.world.now.checked_add(RETRY_AFTER).ok() };
    }
    let has_created_pod = scene.world.pods.iter().any(|pod| {
        pod.controller.is_some()
            && is_at(pod, update.name())
            && pod.record.as_ref().is_none_or(|record| record.revision != update.name)
            && is_current(&scene.world.sidecars, &pod.labels, &pod.sidecars)
    });
    if has_created_pod {
        return Acceptance::Accepted;
    }
    match scene.world.memory.verdicts.get(&update.name) {
        Some(Verdict::Accepted) => Acceptance::Accepted,
        Some(Verdict::Refused { replacement: Replacement::Awaited(_), .. }) => {
            Acceptance::OnTrial { has_room: true }
        }
        Some(Verdict::Refused { message, replacement: Replacement::Untried, .. })
            if fits_as_replacement(scene, message) =>
        {
            Acceptance::OnTrial { has_room: false }
        }
        Some(Verdict::Refused { message, at, replacement }) => {
            let now = scene.world.now;
            let retry_at = at.checked_add(RETRY_AFTER).unwrap_or(*at);
            Acceptance::Refused {
                why: match replacement {
                    Replacement::Failed => refused_as_replacement(message),
                    _ => refused(message),
                },
                // If the clock was set back, waiting for this time would take too long.
                again: (retry_at > now && *at <= now).then_some(retry_at),
            }
        }
        None => Acceptance::Unknown,
    }
}

/// Whether a quota that has no room for an additional pod has room for a replacement, whichever old pod it replaces.
/// What does not count against the same quotas as the new pod makes no room for it.
fn fits_as_replacement(scene: &Scene, refusal: &str) -> bool {
    if scene.workload.max_unavailable == 0 {
        // Only an additional pod can replace an old one.
        return false;
    }
    let update = scene.revisions.update.name();
    let mut templates = BTreeMap::new();
    // A pod that has ended does not count against quotas.
    let is_old = |pod: &&&Pod| pod.revision() != update && !pod.ended();
    let mut old = scene.own.iter().filter(is_old).peekable();
    let exists = old.peek().is_some();
    exists
        && old.all(|pod| {
            let template = templates.entry(pod.revision()).or_insert_with(|| {
                let revision = scene.revisions.get(pod.revision());
                revision.map(|it| it.template.parse())
            });
            let template = template.as_ref();
            let new = &scene.workload.template;
            template.is_none_or(|old| have_same_quota_scopes(old, new))
                && has_room_for_a_replacement(refusal, &Usage::of_pod(pod, template))
        })
}

fn refused_as_replacement(message: &str) -> Blocked {
    Blocked {
        reason: Reason::TemplateRefused,
        message: format!(
            "the API server refused a pod of this template even after a running pod had been deleted for it, so no \
             other is deleted: {message}; make room for an additional pod, or revert the change"
        ),
    }
}

fn refused(message: &str) -> Blocked {
    Blocked {
        reason: Reason::TemplateRefused,
        message: format!(
            "the API server rejects pods of this template, so no running pod is updated: {message}"
        ),
    }
}

//! The input to the update rules.

use std::cell::OnceCell;

use super::acceptance::Acceptance;
use super::method::refused_in_place;
use crate::observed::Pod;
use crate::workload::decision::Blocked;
use crate::workload::revision::Revisions;
use crate::workload::scale::batch::Batch;
use crate::workload::scale::sizes::Sizes;
use crate::workload::scale::to_update::ToUpdate;
use crate::workload::spec::Workload;
use crate::workload::world::World;

/// Everything that the update rules read.
pub(crate) struct Scene<'a> {
    /// The workload.
    pub workload: &'a Workload<'a>,
    /// What was observed.
    pub world: &'a World,
    /// The workload's revisions.
    pub revisions: &'a Revisions<'a>,
    /// All pods of the workload.
    pub own: &'a [&'a Pod],
    /// How many pods there should be, and how far the rollout may go.
    pub sizes: &'a Sizes<'a>,
    /// The batch of the initial creation.
    pub batch: Batch<'a>,
    /// The pods that the rollout may update now.
    pub to_update: ToUpdate<'a>,
    /// Whether the API server accepts the update revision, once that has been determined.
    pub acceptance: OnceCell<Acceptance>,
    /// Why the change to the update revision is refused because it cannot be made in place, once that has been
    /// determined.
    pub in_place_refusal: OnceCell<Option<Blocked>>,
}

impl Scene<'_> {
    /// Why the change from the stable to the update revision is refused because it cannot be made in place.
    pub(crate) fn refused_in_place(&self) -> Option<&Blocked> {
        self.in_place_refusal.get_or_init(|| refused_in_place(self)).as_ref()
    }

    /// Whether the update revision is refused, as far as this plan has found out.
    pub(crate) fn is_refused(&self) -> bool {
        let in_place = self.in_place_refusal.get().is_some_and(Option::is_some);
        in_place || matches!(self.acceptance.get(), Some(Acceptance::Refused { .. }))
    }
}

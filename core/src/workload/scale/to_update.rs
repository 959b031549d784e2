//! Which pods a rollout updates.

use std::collections::HashSet;

use crate::observed::{Pod, PodUid};

/// The pods that the rollout may update now.
pub(crate) struct ToUpdate<'a> {
    /// The candidates, in the order in which they are updated.
    pub old: Vec<&'a Pod>,
    /// How many of them are updated.
    pub count: i64,
    /// Those of `old` that must not be deleted for their update, because they would not come back at the update revision.
    pub not_recreated: HashSet<PodUid<'a>>,
    /// How many of these `count` pods may be changed in place. Surge pods have replaced the others, which are deleted.
    pub in_place: i64,
}

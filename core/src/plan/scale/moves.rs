//! Which pods a rollout brings to the update revision.

use crate::plan::observed::Pod;

/// Pods that the rollout brings to the update revision, as far as it may go now.
pub struct Moves<'a> {
    /// The candidates, in the order in which they are updated.
    pub old: Vec<&'a Pod>,
    /// How many of them are updated.
    pub count: i64,
    /// How many of these can change in place; surge pods have replaced the others.
    pub in_place: i64,
}

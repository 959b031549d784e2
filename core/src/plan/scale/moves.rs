//! Which pods a rollout brings to the update revision.

use crate::plan::observed::Pod;

/// Pods that the rollout, as far as it goes, brings to the update revision.
pub struct Moves<'a> {
    /// Who may be chosen, in the order of their turns.
    pub old: Vec<&'a Pod>,
    /// How many of them are.
    pub count: i64,
    /// How many of these can change in place; surge pods have taken the places of the others.
    pub in_place: i64,
}

//! Which pods a rollout updates.

use crate::observed::Pod;

/// The pods that the rollout may update now.
pub struct ToUpdate<'a> {
    /// The candidates, in the order in which they are updated.
    pub old: Vec<&'a Pod>,
    /// How many of them are updated.
    pub count: i64,
    /// How many of these `count` pods may be changed in place. Surge pods have replaced the others, which are deleted.
    pub in_place: i64,
}

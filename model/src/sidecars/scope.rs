//! The configuration of the SidecarSet, and the changes that users may make to it.

use crate::state::Rev;

/// The configuration of the SidecarSet.
#[derive(Clone, Copy, Debug)]
pub struct SidecarScope {
    /// Whether the set exists at the start.
    pub exists: bool,
    pub max_unavailable: u8,
    /// The number of the set's revisions, each with a different image.
    pub revisions: u8,
    /// The revision whose image never lets pods become ready.
    pub broken: Option<Rev>,
    /// Whether the cache of the set lags.
    pub set_lags: bool,
    /// Whether the pod cache of the set's planner lags.
    pub pods_lag: bool,
}

impl Default for SidecarScope {
    fn default() -> Self {
        Self {
            exists: true,
            max_unavailable: 1,
            revisions: 2,
            broken: None,
            set_lags: false,
            pods_lag: false,
        }
    }
}

/// A change of the set by a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetChange {
    Image(Rev),
    Pause,
    Resume,
    Partition(u8),
    Create,
    Delete,
}

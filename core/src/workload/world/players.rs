//! The guarded pods that may have players and that the operator has not deleted.

use std::collections::BTreeMap;

/// The guarded pods of a workload that may have players, as seen in one world, by uid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GuardedPlayers(pub(in crate::workload) BTreeMap<String, Player>);

/// Such a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Player {
    /// Its name.
    pub pod: String,
    /// Whether a user has released it.
    pub released: bool,
}

impl GuardedPlayers {
    /// Forgets a pod that the operator itself deletes.
    pub fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }
}

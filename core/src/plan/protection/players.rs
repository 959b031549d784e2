//! Which guarded pods have players: what is counted when another client ends one nevertheless.

use std::collections::BTreeSet;

use crate::api::GameWorkload;
use crate::plan::hooks::guard::may_have_players;
use crate::plan::observed::Pod;
use crate::plan::workload::guarded::Guarded;
use crate::plan::world::World;

/// The guarded pods of a workload at one moment, by uid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GuardedPlayers(BTreeSet<String>);

impl GuardedPlayers {
    /// Those that may have players in this world.
    pub fn of(workload: &impl GameWorkload, world: &World) -> Self {
        if Guarded::of(workload).is_none() {
            return Self::default();
        }
        let uid = workload.meta().uid.as_deref();
        let counts = |pod: &&Pod| pod.guarded_by() == uid && may_have_players(pod);
        let pods = living(uid, world).filter(counts);
        Self(pods.map(|pod| pod.uid.clone()).collect())
    }

    /// How many of them are gone or Terminating in a later world.
    pub fn gone(&self, workload: &impl GameWorkload, world: &World) -> usize {
        if self.0.is_empty() {
            return 0;
        }
        let pods = living(workload.meta().uid.as_deref(), world);
        let there: BTreeSet<&str> = pods.map(|pod| pod.uid.as_str()).collect();
        let uids = self.0.iter();
        uids.filter(|uid| !there.contains(uid.as_str())).count()
    }

    /// The operator itself deletes this pod.
    pub fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }
}

/// Pods that are not Terminating; an orphaned one keeps running.
fn living<'a>(uid: Option<&'a str>, world: &'a World) -> impl Iterator<Item = &'a Pod> {
    let pods = world.pods.iter().map(AsRef::as_ref);
    let is_own = move |pod: &&Pod| pod.controller.is_none() || pod.controller.as_deref() == uid;
    pods.filter(is_own).filter(|pod| !pod.terminating)
}

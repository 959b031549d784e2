//! Which guarded pods may have players. A metric counts those that another client ends nevertheless.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::GameWorkload;
use crate::plan::hooks::guard::may_have_players;
use crate::plan::observed::{Disruption, Pod};
use crate::plan::workload::guarded::Guarded;
use crate::plan::world::World;

/// The uids of a workload's guarded pods that may have players at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GuardedPlayers(BTreeSet<String>);

impl GuardedPlayers {
    /// Finds them in a world.
    pub fn of(workload: &impl GameWorkload, world: &World) -> Self {
        if Guarded::of(workload).is_none() {
            return Self::default();
        }
        let uid = workload.meta().uid.as_deref();
        let counts = |pod: &&Pod| pod.guarded_by() == uid && may_have_players(pod);
        let pods = living(uid, world).filter(counts);
        Self(pods.map(|pod| pod.uid.clone()).collect())
    }

    /// What ended each of these pods that, in a later world, no longer exists, is Terminating, or was stopped by its
    /// kubelet; None if its last status does not show that. A pod that ended by itself does not count.
    pub fn ended(&self, workload: &impl GameWorkload, world: &World) -> Vec<Option<Disruption>> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let uid = workload.meta().uid.as_deref();
        let living = living(uid, world).filter(|pod| !is_stopped(pod));
        let living: BTreeSet<&str> = living.map(|pod| pod.uid.as_str()).collect();
        let pods = world.pods.iter();
        let pods: BTreeMap<_, _> = pods.map(|pod| (pod.uid.as_str(), pod)).collect();
        let ended = self.0.iter().map(String::as_str);
        let ended = ended.filter(|uid| !living.contains(uid));
        ended.map(|uid| pods.get(uid)?.disruption).collect()
    }

    /// Forgets a pod that the operator itself deletes.
    pub fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }
}

/// Whether a kubelet stopped the pod, which it does without deleting it.
fn is_stopped(pod: &Pod) -> bool {
    pod.disruption == Some(Disruption::Kubelet) && !may_have_players(pod)
}

/// The workload's pods and orphans that are not Terminating. A pod that was orphaned keeps running.
fn living<'a>(uid: Option<&'a str>, world: &'a World) -> impl Iterator<Item = &'a Pod> {
    let pods = world.pods.iter().map(AsRef::as_ref);
    let is_own = move |pod: &&Pod| pod.controller.is_none() || pod.controller.as_deref() == uid;
    pods.filter(is_own).filter(|pod| !pod.terminating)
}

//! Which guarded pods have players: what is counted when another client ends one nevertheless.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::GameWorkload;
use crate::plan::hooks::guard::may_have_players;
use crate::plan::observed::{Disruption, Pod};
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

    /// What ended those of them that are gone, Terminating, or stopped by their kubelet in a later world, as far as
    /// their last status shows. A match that ends by itself is not among them.
    pub fn ended(&self, workload: &impl GameWorkload, world: &World) -> Vec<Option<Disruption>> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let uid = workload.meta().uid.as_deref();
        let living = living(uid, world).filter(|pod| !is_stopped(pod));
        let living: BTreeSet<&str> = living.map(|pod| pod.uid.as_str()).collect();
        let pods = world.pods.iter();
        let pods: BTreeMap<_, _> = pods.map(|pod| (pod.uid.as_str(), pod)).collect();
        let gone = self.0.iter().map(String::as_str);
        let gone = gone.filter(|uid| !living.contains(uid));
        gone.map(|uid| pods.get(uid)?.disruption).collect()
    }

    /// The operator itself deletes this pod.
    pub fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }
}

/// Whether a kubelet ended the pod, which takes no deletion.
fn is_stopped(pod: &Pod) -> bool {
    pod.disruption == Some(Disruption::Kubelet) && !may_have_players(pod)
}

/// Pods that are not Terminating; an orphaned one keeps running.
fn living<'a>(uid: Option<&'a str>, world: &'a World) -> impl Iterator<Item = &'a Pod> {
    let pods = world.pods.iter().map(AsRef::as_ref);
    let is_own = move |pod: &&Pod| pod.controller.is_none() || pod.controller.as_deref() == uid;
    pods.filter(is_own).filter(|pod| !pod.terminating)
}

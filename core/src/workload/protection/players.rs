//! Which guarded pods may have players. A metric counts those that another client ends anyway.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::GameWorkload;
use crate::guard::may_have_players;
use crate::observed::{Disruption, Pod};
use crate::text::counted;
use crate::workload::spec::guarded::Guarded;
use crate::workload::world::{GuardedPlayers, Player, World};
use crate::write::Event;

/// A guarded pod that ended before its hook allowed it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndedMatch {
    /// The pod.
    pub pod: String,
    /// What ended it.
    pub by: Ending,
}

/// What ended a guarded pod before its hook allowed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// Any client, after a user had released the pod.
    Released,
    /// What the pod's last status shows, if it shows anything.
    Unreleased(Option<Disruption>),
}

impl Ending {
    /// Who ended the match in spite of the guard, for users; None if a user wanted it.
    fn culprit(self) -> Option<&'static str> {
        let Self::Unreleased(disruption) = self else {
            return None;
        };
        Some(match disruption {
            Some(Disruption::Eviction) => "an eviction",
            Some(Disruption::Preemption) => "a pod of a higher priority",
            Some(Disruption::Taint) => "a taint of its node",
            Some(Disruption::LostNode) => "the loss of its node",
            Some(Disruption::Kubelet) => "its kubelet",
            Some(Disruption::Other) | None => "another client",
        })
    }
}

/// The event that tells of matches that were ended in spite of the guard.
pub fn ended_in_spite_of_the_guard(ended: &[EndedMatch]) -> Option<Event> {
    let mut told = ended.iter().filter_map(|it| Some((&it.pod, it.by.culprit()?)));
    let (pod, culprit) = told.next()?;
    let more = match told.count() {
        0 => String::new(),
        more => format!(" ({})", counted(more, "other match too", "other matches too")),
    };
    Some(Event {
        warning: true,
        reason: "MatchEnded".to_owned(),
        message: format!("the match on pod {pod} was ended by {culprit}, without its hook{more}"),
    })
}

impl GuardedPlayers {
    /// Finds the pods in a world.
    pub fn of(workload: &impl GameWorkload, world: &World) -> Self {
        if Guarded::of(workload).is_none() {
            return Self::default();
        }
        let uid = workload.meta().uid.as_deref();
        let is_released = |pod: &Pod| pod.released && pod.controller.as_deref() == uid;
        let counts =
            |pod: &&Pod| (pod.guarded_by() == uid || is_released(pod)) && may_have_players(pod);
        let pods = living(uid, world).filter(counts);
        let player = |pod: &Pod| Player { pod: pod.name.clone(), released: is_released(pod) };
        Self(pods.map(|pod| (pod.uid.clone(), player(pod))).collect())
    }

    /// Compares these pods with a later world. For each pod that no longer exists, is Terminating, or was stopped by
    /// its kubelet, returns what ended it. A pod that ended on its own does not count.
    pub fn ended(&self, workload: &impl GameWorkload, world: &World) -> Vec<EndedMatch> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let uid = workload.meta().uid.as_deref();
        let living = living(uid, world).filter(|pod| !is_stopped(pod));
        let living: BTreeSet<&str> = living.map(|pod| pod.uid.as_str()).collect();
        let pods = world.pods.iter();
        let pods: BTreeMap<_, _> = pods.map(|pod| (pod.uid.as_str(), pod)).collect();
        let ended = self.0.iter();
        let ended = ended.filter(|(uid, _)| !living.contains(uid.as_str()));
        let ending = |(uid, player): (&String, &Player)| {
            let last = pods.get(uid.as_str());
            // The pod may have been released and deleted since the earlier world.
            let by = match player.released || last.is_some_and(|pod| pod.released) {
                true => Ending::Released,
                false => Ending::Unreleased(last.and_then(|pod| pod.disruption)),
            };
            EndedMatch { pod: player.pod.clone(), by }
        };
        ended.map(ending).collect()
    }
}

/// Whether the kubelet stopped the pod. Kubelets do so without deleting pods.
fn is_stopped(pod: &Pod) -> bool {
    pod.disruption == Some(Disruption::Kubelet) && !may_have_players(pod)
}

/// The workload's pods and orphans that are not Terminating. A pod that was orphaned keeps running.
fn living<'a>(uid: Option<&'a str>, world: &'a World) -> impl Iterator<Item = &'a Pod> {
    let pods = world.pods.iter().map(AsRef::as_ref);
    let is_own = move |pod: &&Pod| pod.controller.is_none() || pod.controller.as_deref() == uid;
    pods.filter(is_own).filter(|pod| !pod.terminating)
}

//! A history generated from a seed: a workload, and what users, other clients and crashes do to it.

use std::fmt;
use std::time::Duration;

use super::actors::{Actor, Cascade};
use crate::random::Random;
use crate::workload::manifest::Game;

/// How long users and others act, in milliseconds.
const LENGTH: u64 = 8_000;
/// How much longer they act when the namespace is deleted, in milliseconds: Kubernetes waits for five seconds before it
/// deletes the pods.
const NAMESPACE_DELETION: u64 = 6_000;
/// The earliest time, in milliseconds, at which the workload or its namespace is deleted. Users act only before that.
const EARLIEST_DELETION: u64 = 4_500;

/// The kind of the workload if the operator manages it. In the other variants, the workload is a Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A GameDeployment that is updated by recreating pods.
    Rolling,
    /// A GameDeployment that is updated in place.
    InPlace,
    /// A GameStatefulSet with OrderedReady.
    Ordered,
    /// A GameStatefulSet with Parallel.
    Parallel,
}

impl Kind {
    /// Whether it is a GameStatefulSet.
    pub(super) fn is_stateful_set(self) -> bool {
        matches!(self, Kind::Ordered | Kind::Parallel)
    }
}

/// Something that happens.
#[derive(Clone, Debug)]
pub enum Stimulus {
    /// A user scales.
    Scale(i64),
    /// A user sets an image by its tag.
    Image(String),
    /// The operator is killed (kill -9), and is down for this long.
    Kill(Duration),
    /// Another client acts on the node or the pod with this number.
    Other(Actor, usize),
}

/// A history.
#[derive(Clone, Debug)]
pub struct History {
    /// The seed that determines it.
    pub seed: u64,
    /// The kind of its workload.
    pub kind: Kind,
    /// Replicas at the start.
    pub replicas: i64,
    /// Whether a hook measures again until the answer is yes.
    pub retries: bool,
    /// maxSurge.
    surge: i64,
    /// How long the matches last, in the order in which they begin. If there are more matches, the list repeats.
    pub(super) matches: Vec<Duration>,
    /// What happens, each with its time after the start.
    pub stimuli: Vec<(Duration, Stimulus)>,
}

impl History {
    /// Generates the history of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Random::from_seed(seed);
        let kinds = [Kind::Rolling, Kind::InPlace, Kind::Ordered, Kind::Parallel];
        let kind = kinds[random.index(4)];
        let mut history = History {
            seed,
            kind,
            replicas: 3 + random.below(3) as i64,
            // A hook that refuses an in-place update is not run again automatically, so it has to measure again itself.
            retries: kind == Kind::InPlace || random.below(2) == 0,
            surge: random.below(2) as i64,
            matches: (0..16).map(|_| random.between(1_500, 14_000)).collect(),
            stimuli: Vec::new(),
        };
        history.add_users(&mut random);
        history.add_kills(&mut random);
        history.add_others(&mut random);
        history.stimuli.sort_by_key(|(at, _)| *at);
        history
    }

    fn add_users(&mut self, random: &mut Random) {
        for tag in 2..4 + random.below(2) {
            let stimulus = match random.below(2) {
                0 => Stimulus::Scale(2 + random.below(5) as i64),
                _ => Stimulus::Image(format!("v{tag}")),
            };
            let at = random.between(0, EARLIEST_DELETION);
            self.stimuli.push((at, stimulus));
        }
    }

    fn add_kills(&mut self, random: &mut Random) {
        for _ in 0..random.below(3) {
            let downtime = random.between(200, 1_500);
            self.stimuli.push((random.between(0, LENGTH), Stimulus::Kill(downtime)));
        }
    }

    /// Four different clients and, in three of five histories, one that deletes the workload or its namespace.
    fn add_others(&mut self, random: &mut Random) {
        let mut actors = Actor::ON_PODS.to_vec();
        for _ in 0..4 {
            let actor = actors.swap_remove(random.index(actors.len()));
            let at = random.between(500, LENGTH - 1_000);
            let stimulus = Stimulus::Other(actor, random.index(12));
            self.stimuli.push((at, stimulus));
        }
        let deleter = match self.seed % 5 {
            0 => Actor::DeleteWorkload(Cascade::Background),
            1 => Actor::DeleteWorkload(Cascade::Foreground),
            2 => Actor::DeleteNamespace,
            _ => return,
        };
        let at = random.between(EARLIEST_DELETION, LENGTH - 500);
        self.stimuli.push((at, Stimulus::Other(deleter, 0)));
    }

    /// How long users and others act.
    pub(super) fn length(&self) -> Duration {
        let extra = match self.deleter() {
            Some(Actor::DeleteNamespace) => NAMESPACE_DELETION,
            _ => 0,
        };
        Duration::from_millis(LENGTH + extra)
    }

    /// The first client of this history that matches, if there is one.
    pub(super) fn find(&self, matches: impl Fn(Actor) -> bool) -> Option<Actor> {
        self.stimuli.iter().find_map(|(_, it)| match it {
            Stimulus::Other(actor, _) if matches(*actor) => Some(*actor),
            _ => None,
        })
    }

    /// The client that deletes the workload or its namespace, if there is one.
    pub(super) fn deleter(&self) -> Option<Actor> {
        self.find(|it| matches!(it, Actor::DeleteWorkload(_) | Actor::DeleteNamespace))
    }

    /// The workload, with its hooks.
    pub(super) fn game(&self, template: &str) -> Game {
        let replicas = self.replicas;
        let game = match self.kind {
            Kind::Rolling => Game::rolling(replicas).max_surge(self.surge),
            Kind::InPlace => Game::in_place(replicas).pre_inplace(template),
            Kind::Ordered => Game::ordered(replicas),
            Kind::Parallel => Game::parallel(replicas),
        };
        game.pre_delete(template).max_unavailable(1)
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retries = if self.retries { ", hooks repeat" } else { "" };
        let (seed, kind, replicas) = (self.seed, self.kind, self.replicas);
        writeln!(f, "history {seed}: {kind:?}, {replicas} replicas{retries}")?;
        if self.length() > Duration::from_millis(LENGTH) {
            writeln!(f, "users and other clients act for {:?}", self.length())?;
        }
        for (at, stimulus) in &self.stimuli {
            let at = at.as_secs_f64();
            match stimulus {
                Stimulus::Scale(replicas) => writeln!(f, "{at:.1} s: a user scales to {replicas}")?,
                Stimulus::Image(tag) => writeln!(f, "{at:.1} s: a user sets image {tag}")?,
                Stimulus::Kill(downtime) => {
                    writeln!(f, "{at:.1} s: kill -9, back after {downtime:?}")?
                }
                Stimulus::Other(actor, number) => {
                    writeln!(f, "{at:.1} s: {} ({number})", actor.name())?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_reproduces_its_history() {
        assert_eq!(History::from_seed(5).to_string(), History::from_seed(5).to_string());
        assert_ne!(History::from_seed(5).to_string(), History::from_seed(8).to_string());
    }

    /// If a client acted twice, it could be unclear which of its actions caused a controller to delete a pod.
    #[test]
    fn no_client_acts_twice() {
        for seed in 0..200 {
            let mut seen = Vec::new();
            for (_, stimulus) in History::from_seed(seed).stimuli {
                if let Stimulus::Other(actor, _) = stimulus {
                    assert!(!seen.contains(&actor.name()), "{seed}: {}", actor.name());
                    seen.push(actor.name());
                }
            }
        }
    }

    #[test]
    fn every_client_acts_in_at_least_15_of_100_histories() {
        for actor in Actor::all() {
            let found =
                (0..100).filter(|seed| History::from_seed(*seed).find(|it| it == actor).is_some());
            assert!(found.count() >= 15, "{}", actor.name());
        }
    }
}

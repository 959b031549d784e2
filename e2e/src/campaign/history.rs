//! What happens in a history, as its seed has it.

use std::fmt;
use std::time::Duration;

use super::moment::{Moment, Says};
use super::workload::{Kind, Workload};
use crate::faults::{Script, WatchFault, seeded};
use crate::random::Random;

/// How long a history is disturbed, in seconds.
const SECONDS: u64 = 6;
/// How far a clock jumps, in seconds.
const JUMPS: [i64; 8] = [-7_200, -300, -30, -3, 3, 30, 300, 7_200];

/// A history.
#[derive(Clone, Debug)]
pub struct History {
    /// What decides all of it.
    pub seed: u64,
    /// Its workload.
    pub kind: Kind,
    /// The same, as it is applied.
    pub workload: Workload,
    /// Replicas at the beginning.
    pub replicas: i64,
    /// What hooks say at the beginning.
    pub says: Says,
    /// What the proxy does.
    pub script: Script,
    /// What happens besides, each so long after the beginning.
    pub moments: Vec<(Duration, Moment)>,
}

impl History {
    /// The history of a seed.
    pub fn of(seed: u64) -> Self {
        let kind = Kind::ALL[usize::try_from(seed % 3).unwrap_or(0)];
        let mut random = Random::of(seed);
        let replicas = 2 + random.below(4) as i64;
        let workload = Workload::chosen(kind, replicas, &mut random);
        let says = says(&mut random);
        let watched = ["pods", "hookruns", kind.plural(), "controllerrevisions"];
        let script = seeded(&mut random, &watched, SECONDS);
        let mut history = History {
            seed,
            kind,
            workload,
            replicas,
            says,
            script,
            moments: Vec::new(),
        };
        history.let_the_user_act(&mut random);
        if random.below(2) == 0 {
            history.let_a_burst_be_taken_back(&mut random);
        }
        history.disturb(&mut random);
        history.moments.sort_by_key(|(at, _)| *at);
        history
    }

    fn add(&mut self, at: Duration, moment: Moment) {
        self.moments.push((at, moment));
    }

    fn let_the_user_act(&mut self, random: &mut Random) {
        let mut tag = 1;
        for _ in 0..4 + random.below(5) {
            let moment = match random.below(10) {
                0..=2 => Moment::Scale(random.below(7) as i64),
                3 | 4 => {
                    tag += 1;
                    Moment::Image(new_tag(tag, random))
                }
                5 => Moment::Image("v1".to_owned()),
                6 => Moment::Pause(true),
                7 | 8 => Moment::Pause(false),
                _ => Moment::Retry,
            };
            self.add(moment_of(random), moment);
        }
    }

    /// Many pods more, and none of them while they start; often nothing is heard of that for a while.
    fn let_a_burst_be_taken_back(&mut self, random: &mut Random) {
        let at = random.between(0, 2_500);
        self.add(at, Moment::Scale(8 + random.below(9) as i64));
        let back = at + random.between(400, 2_600);
        self.add(back, Moment::Scale(random.below(4) as i64));
        if random.below(2) == 0 {
            let lag = WatchFault::Lag(random.between(1_000, 3_000));
            let until = (back + Duration::from_secs(2)).as_secs_f64();
            let script = std::mem::take(&mut self.script);
            self.script = script.watching("pods", lag, at.as_secs_f64(), until);
        }
    }

    /// Hooks change their answer; the operator may be killed, and its clock may jump.
    fn disturb(&mut self, random: &mut Random) {
        for _ in 0..random.below(4) {
            let says = says(random);
            self.add(moment_of(random), Moment::Hook(says));
        }
        for _ in 0..random.below(3) {
            self.add(moment_of(random), Moment::Kill);
        }
        if random.below(3) == 0 {
            let seconds = JUMPS[random.index(JUMPS.len())];
            self.add(moment_of(random), Moment::Clock(seconds));
        }
    }

    /// How long it is disturbed.
    pub fn length(&self) -> Duration {
        Duration::from_secs(SECONDS)
    }

    /// Whether its operator needs a clock of its own.
    pub fn has_jumps(&self) -> bool {
        let mut moments = self.moments.iter();
        moments.any(|(_, moment)| matches!(moment, Moment::Clock(_)))
    }
}

fn moment_of(random: &mut Random) -> Duration {
    random.between(0, SECONDS * 1_000)
}

fn says(random: &mut Random) -> Says {
    match random.below(7) {
        0..=2 => Says::Yes,
        3..=5 => Says::No,
        _ => Says::Nonsense,
    }
}

/// A new image; one in six is bad, and one is slow to arrive.
fn new_tag(number: u32, random: &mut Random) -> String {
    match random.below(12) {
        0 => format!("v{number}-nope"),
        1 => format!("v{number}-neverready"),
        2 | 3 => format!("v{number}-slow1"),
        _ => format!("v{number}"),
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let History {
            seed,
            kind,
            replicas,
            says,
            ..
        } = self;
        writeln!(f, "history {seed}: {kind}")?;
        let patient = if self.workload.is_patient {
            " and are asked again"
        } else {
            ""
        };
        writeln!(f, "{replicas} replicas; {}{patient}", Moment::Hook(*says))?;
        writeln!(f, "{}", self.workload.game)?;
        write!(f, "{}", self.script)?;
        for (at, moment) in &self.moments {
            writeln!(f, "{:.1} s: {moment}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_makes_the_same_history() {
        assert_eq!(History::of(5).to_string(), History::of(5).to_string());
        assert_ne!(History::of(5).to_string(), History::of(8).to_string());
    }

    #[test]
    fn moments_are_told_in_their_order() {
        for seed in 0..50 {
            let history = History::of(seed);
            assert!(history.moments.is_sorted_by_key(|(at, _)| *at), "{history}");
        }
    }
}

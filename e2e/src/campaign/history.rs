//! A history generated from a seed: a workload, and everything that happens to it.

use std::fmt;
use std::time::Duration;

use super::stimulus::{HookAnswer, Stimulus};
use super::workload::{Kind, Workload};
use crate::faults::{Script, WatchFault, seeded};
use crate::random::Random;

/// How long the disturbances of a history last, in seconds.
const SECONDS: u64 = 6;
/// How far a clock jumps, in seconds.
const JUMPS: [i64; 8] = [-7_200, -300, -30, -3, 3, 30, 300, 7_200];

/// A history.
#[derive(Clone, Debug)]
pub struct History {
    /// The seed that determines it.
    pub seed: u64,
    /// The kind of its workload.
    pub kind: Kind,
    /// Its workload.
    pub workload: Workload,
    /// Replicas at the start.
    pub replicas: i64,
    /// The hooks' answer at the start.
    pub answer: HookAnswer,
    /// The faults of the proxy.
    pub script: Script,
    /// The other actions, each with its time after the start.
    pub stimuli: Vec<(Duration, Stimulus)>,
}

impl History {
    /// Generates the history of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let kind = Kind::ALL[usize::try_from(seed % 3).unwrap_or(0)];
        let mut random = Random::from_seed(seed);
        let replicas = 2 + random.below(4) as i64;
        let workload = Workload::random(kind, replicas, &mut random);
        let answer = answer(&mut random);
        let watched = ["pods", "hookruns", kind.plural(), "controllerrevisions"];
        let script = seeded(&mut random, &watched, SECONDS);
        let mut history =
            History { seed, kind, workload, replicas, answer, script, stimuli: Vec::new() };
        history.add_user_actions(&mut random);
        if random.below(2) == 0 {
            history.add_burst(&mut random);
        }
        history.add_disturbances(&mut random);
        history.stimuli.sort_by_key(|(at, _)| *at);
        history
    }

    fn add(&mut self, at: Duration, stimulus: Stimulus) {
        self.stimuli.push((at, stimulus));
    }

    /// A user scales, sets images, pauses, resumes and retries failed hooks.
    fn add_user_actions(&mut self, random: &mut Random) {
        let mut tag = 1;
        for _ in 0..4 + random.below(5) {
            let stimulus = match random.below(10) {
                0..=2 => Stimulus::Scale(random.below(7) as i64),
                3 | 4 => {
                    tag += 1;
                    Stimulus::Image(new_tag(tag, random))
                }
                5 => Stimulus::Image("v1".to_owned()),
                6 => Stimulus::Pause(true),
                7 | 8 => Stimulus::Pause(false),
                _ => Stimulus::Retry,
            };
            self.add(random_time(random), stimulus);
        }
    }

    /// A user adds many pods and removes them while they start, in half of the cases with a lagging watch.
    fn add_burst(&mut self, random: &mut Random) {
        let at = random.between(0, 2_500);
        self.add(at, Stimulus::Scale(8 + random.below(9) as i64));
        let scale_in_at = at + random.between(400, 2_600);
        self.add(scale_in_at, Stimulus::Scale(random.below(4) as i64));
        if random.below(2) == 0 {
            let lag = WatchFault::Lag(random.between(1_000, 3_000));
            let until = (scale_in_at + Duration::from_secs(2)).as_secs_f64();
            let script = std::mem::take(&mut self.script);
            self.script = script.watching("pods", lag, at.as_secs_f64(), until);
        }
    }

    /// Hooks change their answer, the operator is killed, and its clock jumps.
    fn add_disturbances(&mut self, random: &mut Random) {
        for _ in 0..random.below(4) {
            let answer = answer(random);
            self.add(random_time(random), Stimulus::Answer(answer));
        }
        for _ in 0..random.below(3) {
            self.add(random_time(random), Stimulus::Kill);
        }
        if random.below(3) == 0 {
            let seconds = JUMPS[random.index(JUMPS.len())];
            self.add(random_time(random), Stimulus::Clock(seconds));
        }
    }

    /// How long the disturbances last.
    pub fn length(&self) -> Duration {
        Duration::from_secs(SECONDS)
    }

    /// Whether the operator's clock jumps. If so, the operator needs a clock of its own.
    pub fn has_jumps(&self) -> bool {
        let mut stimuli = self.stimuli.iter();
        stimuli.any(|(_, stimulus)| matches!(stimulus, Stimulus::Clock(_)))
    }
}

fn random_time(random: &mut Random) -> Duration {
    random.between(0, SECONDS * 1_000)
}

fn answer(random: &mut Random) -> HookAnswer {
    match random.below(7) {
        0..=2 => HookAnswer::Yes,
        3..=5 => HookAnswer::No,
        _ => HookAnswer::Error,
    }
}

/// A new image tag. One in six is bad, and one in six is slow to pull.
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
        let History { seed, kind, replicas, answer, .. } = self;
        writeln!(f, "history {seed}: {kind}")?;
        let retries = if self.workload.retries { ", with retries" } else { "" };
        writeln!(f, "{replicas} replicas; {}{retries}", Stimulus::Answer(*answer))?;
        writeln!(f, "{}", self.workload.game)?;
        write!(f, "{}", self.script)?;
        for (at, stimulus) in &self.stimuli {
            writeln!(f, "{:.1} s: {stimulus}", at.as_secs_f64())?;
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

    #[test]
    fn stimuli_are_sorted_by_time() {
        for seed in 0..50 {
            let history = History::from_seed(seed);
            assert!(history.stimuli.is_sorted_by_key(|(at, _)| *at), "{history}");
        }
    }
}

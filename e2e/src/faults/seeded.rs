//! Scripts that a seed writes.

use super::script::{Fault, Often, Script, WatchFault, Which};
use crate::random::Random;

/// What a script may do to the requests of a history: which, and to how many in a hundred.
const SHARES: [(Which, Sort, u64, u64); 12] = [
    (Which::Writes, Sort::Late, 5, 20),
    (Which::Reads, Sort::Late, 5, 20),
    (Which::Writes, Sort::Plain(Fault::Twice), 5, 20),
    (Which::Writes, Sort::Plain(Fault::Conflict), 3, 12),
    (Which::Writes, Sort::Plain(Fault::Invalid), 2, 6),
    (Which::Every, Sort::Plain(Fault::Busy(1)), 2, 6),
    (Which::Writes, Sort::Plain(Fault::Failing), 3, 10),
    (Which::Reads, Sort::Plain(Fault::Failing), 3, 10),
    (Which::Every, Sort::Plain(Fault::Unavailable), 3, 10),
    (Which::Writes, Sort::Plain(Fault::Lost), 5, 20),
    (Which::Writes, Sort::Plain(Fault::Cut), 3, 12),
    (Which::Reads, Sort::Plain(Fault::Cut), 3, 12),
];

/// A fault whose rest is up to chance.
#[derive(Clone, Copy)]
enum Sort {
    Late,
    Plain(Fault),
}

/// A script for so many seconds: some sorts of faults for requests, and one or two faults of the
/// watches of these resources. The first resource is hit as often as all others together.
pub fn seeded(random: &mut Random, watched: &[&'static str], seconds: u64) -> Script {
    let mut script = Script::default();
    for _ in 0..=random.below(3) {
        let (which, sort, least, most) = SHARES[random.index(SHARES.len())];
        let fault = match sort {
            Sort::Late => Fault::Late(random.between(300, 3_000)),
            Sort::Plain(fault) => fault,
        };
        let share = least + random.below(most - least);
        let often = Often::Percent(share as u32, random.below(u64::MAX));
        script = script.with(which, fault, often);
    }
    for _ in 0..=random.below(2) {
        let resource = match random.below(2) {
            0 => watched[0],
            _ => watched[random.index(watched.len())],
        };
        let fault = match random.below(6) {
            0 | 1 => WatchFault::Lag(random.between(500, 3_500)),
            2 => WatchFault::Stop,
            3 => WatchFault::Hollow,
            4 => WatchFault::Gone,
            _ => WatchFault::Cut,
        };
        let from = random.between(0, 600 * seconds);
        let until = from + random.between(1_000, 3_500);
        let (from, until) = (from.as_secs_f64(), until.as_secs_f64());
        script = script.watching(resource, fault, from, until);
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_writes_the_same_script_and_all_seeds_together_every_fault() {
        let script = |seed| seeded(&mut Random::of(seed), &["pods", "hookruns"], 6);
        assert_eq!(script(7), script(7));
        let all: Vec<Script> = (0..200).map(script).collect();
        let requests = all.iter().flat_map(|it| &it.requests);
        let watches = all.iter().flat_map(|it| &it.watches);
        let mut names: Vec<&str> = requests.map(|rule| rule.fault.name()).collect();
        names.extend(watches.map(|rule| rule.fault.name()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 14, "{names:?}");
    }
}

//! Scripts generated from a seed.

use super::script::{Fault, Frequency, Requests, Script, WatchFault};
use crate::random::Random;

/// The faults that may hit requests, each with the bounds of its percentage.
const SHARES: [(Requests, FaultKind, u64, u64); 12] = [
    (Requests::Writes, FaultKind::Delay, 5, 20),
    (Requests::Reads, FaultKind::Delay, 5, 20),
    (Requests::Writes, FaultKind::Fixed(Fault::Duplicate), 5, 20),
    (Requests::Writes, FaultKind::Fixed(Fault::Conflict), 3, 12),
    (Requests::Writes, FaultKind::Fixed(Fault::Invalid), 2, 6),
    (Requests::Every, FaultKind::Fixed(Fault::TooManyRequests(1)), 2, 6),
    (Requests::Writes, FaultKind::Fixed(Fault::InternalError), 3, 10),
    (Requests::Reads, FaultKind::Fixed(Fault::InternalError), 3, 10),
    (Requests::Every, FaultKind::Fixed(Fault::Unavailable), 3, 10),
    (Requests::Writes, FaultKind::Fixed(Fault::Lost), 5, 20),
    (Requests::Writes, FaultKind::Fixed(Fault::Truncate), 3, 12),
    (Requests::Reads, FaultKind::Fixed(Fault::Truncate), 3, 12),
];

/// A fault whose parameters may be random.
#[derive(Clone, Copy)]
enum FaultKind {
    Delay,
    Fixed(Fault),
}

/// A script for a history of this many seconds: one to three faults of requests, and one or two faults of the
/// watches of these resources. At least half of the watch faults, on average, hit the first resource.
pub fn seeded(random: &mut Random, watched: &[&'static str], seconds: u64) -> Script {
    let mut script = Script::default();
    for _ in 0..=random.below(3) {
        let (requests, kind, least, most) = SHARES[random.index(SHARES.len())];
        let fault = match kind {
            FaultKind::Delay => Fault::Delay(random.between(300, 3_000)),
            FaultKind::Fixed(fault) => fault,
        };
        let share = least + random.below(most - least);
        let frequency = Frequency::Percent(share as u32, random.below(u64::MAX));
        script = script.with(requests, fault, frequency);
    }
    for _ in 0..=random.below(2) {
        let resource = match random.below(2) {
            0 => watched[0],
            _ => watched[random.index(watched.len())],
        };
        let fault = match random.below(6) {
            0 | 1 => WatchFault::Lag(random.between(500, 3_500)),
            2 => WatchFault::Stall,
            3 => WatchFault::BookmarksOnly,
            4 => WatchFault::Expire,
            _ => WatchFault::Truncate,
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
    fn a_seed_always_generates_the_same_script_and_many_seeds_generate_every_fault() {
        let script = |seed| seeded(&mut Random::from_seed(seed), &["pods", "hookruns"], 6);
        assert_eq!(script(7), script(7));
        let all: Vec<Script> = (0..200).map(script).collect();
        let requests = all.iter().flat_map(|script| &script.request_rules);
        let watches = all.iter().flat_map(|script| &script.watch_rules);
        let mut names: Vec<&str> = requests.map(|rule| rule.fault.name()).collect();
        names.extend(watches.map(|rule| rule.fault.name()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 14, "{names:?}");
    }
}

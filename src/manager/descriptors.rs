//! File descriptors: as many as the process may have.
//!
//! Container runtimes often give a soft limit of 1,024, made for programs that use select(2), below a hard
//! one of half a million. Hooks alone have up to 1,024 calls under way at a time, so the soft limit is
//! raised, as Go's runtime does at each start of a program.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// More than calls, connections of callers and watches together take.
const WANTED: u64 = 65_536;

/// Raises the soft limit as far as the hard one lets it, and as it is of use.
pub(super) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let Some(raised) = raised(limit) else { return };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => debug!(?raised, "raised the limit of file descriptors"),
        Err(error) => warn!(%error, ?limit, "cannot raise the limit of file descriptors"),
    }
}

/// The limit to set; None where the one that is there does. None in a limit stands for infinity.
fn raised(limit: Rlimit) -> Option<Rlimit> {
    let current = limit.current?;
    let wanted = limit.maximum.map_or(WANTED, |most| most.min(WANTED));
    (current < wanted).then_some(Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_goes_as_far_as_the_hard_one_and_never_down() {
        for (current, maximum, set) in [
            (Some(1_024), Some(524_288), Some(WANTED)),
            (Some(1_024), Some(4_096), Some(4_096)),
            (Some(1_024), None, Some(WANTED)),
            (Some(1_024), Some(1_024), None),
            (Some(1 << 20), Some(1 << 20), None),
            (None, None, None),
        ] {
            let raised = raised(Rlimit { current, maximum });
            let expected = set.map(|set| Rlimit {
                current: Some(set),
                maximum,
            });
            assert_eq!(raised, expected, "{current:?} of {maximum:?}");
        }
    }
}

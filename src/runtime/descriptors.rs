//! The limit on file descriptors.
//!
//! Container runtimes often set a soft limit of 1,024, for programs that use select(2), and a hard limit of half a
//! million. Hooks alone have up to 1,024 calls in progress, so this process raises its soft limit, as Go's runtime
//! does.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// More than hook calls, callers' connections and watches use together.
const ENOUGH: u64 = 65_536;

/// Raises the soft limit to [`ENOUGH`], or to the hard limit if that is lower.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let Some(raised) = raised(limit) else { return };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => debug!(?raised, "raised the limit on file descriptors"),
        Err(error) => warn!(%error, ?limit, "cannot raise the limit on file descriptors"),
    }
}

/// The limit to set; None if the current one suffices. In a field of a limit, None means infinity.
fn raised(limit: Rlimit) -> Option<Rlimit> {
    let current = limit.current?;
    let raised = limit.maximum.map_or(ENOUGH, |hard| hard.min(ENOUGH));
    (current < raised).then_some(Rlimit { current: Some(raised), maximum: limit.maximum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_up_to_the_hard_limit_and_never_lowered() {
        for (current, maximum, expected) in [
            (Some(1_024), Some(524_288), Some(ENOUGH)),
            (Some(1_024), Some(4_096), Some(4_096)),
            (Some(1_024), None, Some(ENOUGH)),
            (Some(1_024), Some(1_024), None),
            (Some(1 << 20), Some(1 << 20), None),
            (None, None, None),
        ] {
            let raised = raised(Rlimit { current, maximum });
            let soft = raised.and_then(|limit| limit.current);
            assert_eq!(soft, expected, "{current:?} of {maximum:?}");
        }
    }
}

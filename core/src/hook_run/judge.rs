//! Judges one measurement by its two conditions.

use crate::api::HookPhase;

/// The phase of a measurement, derived from whether its conditions hold (None if there is no such
/// condition).
///
/// If both hold, the measurement is Failed.
pub fn judge(success: Option<bool>, failure: Option<bool>) -> HookPhase {
    match (success, failure) {
        (_, Some(true)) | (Some(false), None) => HookPhase::Failed,
        (Some(false), Some(false)) => HookPhase::Inconclusive,
        (Some(true) | None, Some(false)) | (Some(true), None) | (None, None) => {
            HookPhase::Successful
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_conditions_decide_the_phase() {
        let rows = [
            (None, None, HookPhase::Successful),
            (Some(true), None, HookPhase::Successful),
            (Some(false), None, HookPhase::Failed),
            (None, Some(true), HookPhase::Failed),
            (None, Some(false), HookPhase::Successful),
            (Some(true), Some(false), HookPhase::Successful),
            (Some(true), Some(true), HookPhase::Failed),
            (Some(false), Some(true), HookPhase::Failed),
            (Some(false), Some(false), HookPhase::Inconclusive),
        ];
        for (success, failure, phase) in rows {
            assert_eq!(judge(success, failure), phase, "{success:?} {failure:?}");
        }
    }
}

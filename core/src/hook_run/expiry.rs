//! When a run that has ended is deleted.

use jiff::{SignedDuration, Timestamp};

use crate::api::{HookPhase, HookRun};

/// When a run is deleted; None if it is kept.
///
/// A run with a controller is kept, because its workload acts on the result.
pub fn expires_at(run: &HookRun) -> Option<Timestamp> {
    let mut owners = run.metadata.owner_references.iter().flatten();
    if owners.any(|owner| owner.controller == Some(true)) {
        return None;
    }
    let status = run.status.as_ref()?;
    let ttl = run.spec.ttl_strategy.as_ref()?;
    let specific = match status.phase {
        HookPhase::Pending | HookPhase::Running => return None,
        HookPhase::Successful => ttl.seconds_after_success,
        HookPhase::Failed | HookPhase::Error | HookPhase::Inconclusive => ttl.seconds_after_failure,
    };
    let seconds = specific.or(ttl.seconds_after_completion)?;
    let finished = status.finished_at.as_ref()?.0;
    let kept = SignedDuration::from_secs(i64::from(seconds.max(0)));
    Some(finished.checked_add(kept).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn expiry(ttl: serde_json::Value, phase: &str, controlled: bool) -> Option<i64> {
        let run: HookRun = serde_json::from_value(json!({
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookRun",
            "metadata": {"name": "run", "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a", "controller": controlled,
            }]},
            "spec": {"metrics": [], "ttlStrategy": ttl},
            "status": {"phase": phase, "finishedAt": "1970-01-01T00:01:00Z"},
        }))
        .expect("a run");
        expires_at(&run).map(Timestamp::as_second)
    }

    #[test]
    fn the_field_for_the_result_takes_precedence_over_the_one_for_all_results() {
        let ttl = json!({"secondsAfterCompletion": 1, "secondsAfterSuccess": 2, "secondsAfterFailure": 3});
        assert_eq!(expiry(ttl.clone(), "Successful", false), Some(62));
        for phase in ["Failed", "Error", "Inconclusive"] {
            assert_eq!(expiry(ttl.clone(), phase, false), Some(63), "{phase}");
        }
        let all = json!({"secondsAfterCompletion": 1});
        assert_eq!(expiry(all, "Failed", false), Some(61));
        let success = json!({"secondsAfterSuccess": 0});
        assert_eq!(expiry(success.clone(), "Successful", false), Some(60));
        assert_eq!(expiry(success, "Failed", false), None);
    }

    #[test]
    fn a_run_that_is_in_progress_or_has_a_controller_or_no_ttl_is_kept() {
        let ttl = json!({"secondsAfterCompletion": 1});
        assert_eq!(expiry(ttl.clone(), "Running", false), None);
        assert_eq!(expiry(ttl, "Successful", true), None);
        assert_eq!(expiry(json!(null), "Successful", false), None);
    }
}

//! The hook of a sidecar update, as the plan of the SidecarSet reads it.

use kube::ResourceExt;

use crate::api::{HookPhase, HookRun, names};
use crate::observed::SIDECARS;
use crate::sidecar_set::TokenHook;

/// For a run that guards the update of a pod to this revision of a SidecarSet: the pod's uid, and the state of the
/// hook. None if the run is for another action, or is being deleted.
pub fn token_hook<'r>(run: &'r HookRun, revision: &str) -> Option<(&'r str, TokenHook)> {
    let annotations = run.annotations();
    let mut revisions = annotations.get(names::RUN_TARGET)?.split(SIDECARS).skip(1);
    if run.metadata.deletion_timestamp.is_some() || !revisions.any(|it| it == revision) {
        return None;
    }
    let status = run.status.as_ref();
    let finished = status.and_then(|status| status.finished_at.as_ref());
    let hook = match run.phase() {
        HookPhase::Pending | HookPhase::Running => TokenHook::Running,
        HookPhase::Successful => finished.map_or(TokenHook::None, |at| TokenHook::Passed(at.0)),
        HookPhase::Failed | HookPhase::Error | HookPhase::Inconclusive => TokenHook::Refused,
    };
    Some((annotations.get(names::RUN_POD_UID)?, hook))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_hook_of_an_update_to_this_revision_counts() {
        let at = "2026-01-01T00:00:00Z";
        for (target, phase, expected) in [
            ("game-1+log-2", "Running", Some(TokenHook::Running)),
            ("game-1+log-2+mesh-1", "Pending", Some(TokenHook::Running)),
            ("game-1+log-2", "Failed", Some(TokenHook::Refused)),
            ("game-1+log-2", "Inconclusive", Some(TokenHook::Refused)),
            ("game-1+log-2", "Successful", Some(TokenHook::Passed(at.parse().expect("a time")))),
            ("game-1+log-1", "Running", None),
            ("log-2", "Running", None),
            ("", "Running", None),
        ] {
            let run = json!({
                "metadata": {"annotations": {names::RUN_POD_UID: "pod", names::RUN_TARGET: target}},
                "spec": {"metrics": []},
                "status": {"phase": phase, "finishedAt": at},
            });
            let mut run: HookRun = serde_json::from_value(run).expect("a run");
            let expected = expected.map(|hook| ("pod", hook));
            assert_eq!(token_hook(&run, "log-2"), expected, "{target} {phase}");
            run.metadata.deletion_timestamp =
                Some(serde_json::from_value(json!(at)).expect("a time"));
            assert_eq!(token_hook(&run, "log-2"), None);
        }
    }
}

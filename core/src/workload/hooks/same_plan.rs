//! Whether a change to a HookRun matters to a plan. Most measurements change only the status of a run in progress.

use crate::api::HookRun;

/// Whether two states of a run lead to the same plan, or to one that tells of another error. Of a run that has not ended, only
/// whether it is measured matters. An error that differs each time must not cause a write of the workload's status each time.
pub fn makes_same_plan(old: &HookRun, new: &HookRun) -> bool {
    fn end(run: &HookRun) -> Option<impl PartialEq> {
        let status = run.status.as_ref()?;
        let end = (status.phase, &status.message, &status.started_at, &status.finished_at);
        status.phase.is_completed().then_some(end)
    }
    let is_measured = |run: &HookRun| run.current_error().is_none();
    let (before, after) = (&old.metadata, &new.metadata);
    end(old) == end(new)
        && is_measured(old) == is_measured(new)
        && before.uid == after.uid
        && before.labels == after.labels
        && before.annotations == after.annotations
        && before.deletion_timestamp == after.deletion_timestamp
}

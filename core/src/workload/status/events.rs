//! Events about changes of the status: each is reported once.

use crate::api::names::HookPoint;
use crate::api::{Cause, ConditionType, PauseReason, PodHookCondition, Reason, WorkloadStatus};
use crate::write::Event;

/// The events about the change from one status to the next. `steps` is the number of the workload's canary steps.
pub(crate) fn of_change(old: &WorkloadStatus, new: &WorkloadStatus, steps: usize) -> Vec<Event> {
    let mut events = failures(old, new);
    events.extend(troubles(old, new));
    for ((point, new), (_, old)) in new.blocked_pods().into_iter().zip(old.blocked_pods()) {
        let ended = new.iter().filter(|it| !old.contains(it));
        events.extend(ended.map(|it| hook_ended(point, it)));
    }
    events.extend(rollout(old, new, steps));
    events.extend(guard(old, new));
    events
}

fn warning(reason: &str, message: String) -> Event {
    Event { warning: true, reason: reason.to_owned(), message }
}

fn normal(reason: &str, message: String) -> Event {
    Event { warning: false, ..warning(reason, message) }
}

/// The events about what is blocked: about each new message.
pub(crate) fn failures(old: &WorkloadStatus, new: &WorkloadStatus) -> Vec<Event> {
    let types =
        [ConditionType::FailedScale, ConditionType::FailedUpdate, ConditionType::FailedUpkeep];
    let failed = types.into_iter().filter_map(|type_| {
        let failed = new.condition(type_)?;
        let reported = old.condition(type_).map(|it| &it.message);
        (reported != Some(&failed.message)).then(|| warning(&failed.reason, failed.message.clone()))
    });
    failed.collect()
}

/// The events about pods that do not start, run or end as they should, and hooks that cannot run: one for each reason
/// that is new.
fn troubles(old: &WorkloadStatus, new: &WorkloadStatus) -> Vec<Event> {
    let deadline = Reason::ProgressDeadlineExceeded.to_string();
    let exceeded = |status: &WorkloadStatus| {
        let progressing = status.condition(ConditionType::Progressing);
        progressing.filter(|it| it.reason == deadline).map(|it| it.message.clone())
    };
    let failed = exceeded(new).filter(|_| exceeded(old).is_none());
    let is_told = |it: Reason| it.is_pod_trouble() || it.is_broken_hook();
    let is_trouble = |it: &&Cause| Reason::parse(&it.reason).is_some_and(is_told);
    let is_new = |it: &&Cause| !old.causes.iter().any(|old| old.reason == it.reason);
    let causes = new.causes.iter().filter(is_trouble).filter(is_new);
    let causes = causes.map(|it| warning(&it.reason, it.sentence()));
    causes.chain(failed.map(|message| warning(&deadline, message))).collect()
}

fn hook_ended(point: HookPoint, condition: &PodHookCondition) -> Event {
    let PodHookCondition { pod_name, phase, message, .. } = condition;
    let why = if message.is_empty() { String::new() } else { format!(": {message}") };
    warning(
        "HookNotSuccessful",
        format!("{} hook of pod {pod_name} ended {phase:?}{why}", point.as_str()),
    )
}

/// The event about condition Guarded, if that has changed.
fn guard(old: &WorkloadStatus, new: &WorkloadStatus) -> Option<Event> {
    let guarded = new.condition(ConditionType::Guarded)?;
    let before = old.condition(ConditionType::Guarded);
    if before.is_some_and(|it| (&it.status, &it.reason) == (&guarded.status, &guarded.reason)) {
        return None;
    }
    Some(match guarded.status == "True" {
        true => normal(&guarded.reason, guarded.message.clone()),
        false => warning(&guarded.reason, guarded.message.clone()),
    })
}

/// The event about a guard that cannot be removed, and so keeps its workload from being deleted.
pub(crate) fn stuck_guard(old: &WorkloadStatus, new: &WorkloadStatus) -> Option<Event> {
    let guarded = new.condition(ConditionType::Guarded)?;
    let is_stuck = guarded.reason == Reason::BudgetNotDeleted.to_string();
    guard(old, new).filter(|_| is_stuck)
}

fn rollout(old: &WorkloadStatus, new: &WorkloadStatus, steps: usize) -> Vec<Event> {
    let mut events = Vec::new();
    let update = &new.update_revision;
    if old.update_revision != *update && !old.update_revision.is_empty() {
        // A rollout that is reverted returns to the stable revision. Until a revision has worked, there is none.
        let from = match has_rollout(new) {
            true => &new.canary.revision,
            false => &old.update_revision,
        };
        events.push(normal("RolloutStarted", format!("from {from} to {update}")));
    }
    if new.current_step_index != old.current_step_index && has_rollout(new) {
        events.extend(new.current_step_index.and_then(|index| canary_step(update, index, steps)));
    }
    for pause in new.pause_conditions.iter().filter(|it| !old.pause_conditions.contains(it)) {
        let what = format!("{:?} at step {}", pause.reason, new.current_step_index.unwrap_or(0));
        let reason = format!("{:?}", pause.reason);
        let mut causes = new.causes.iter();
        events.push(match (pause.reason, causes.find(|it| it.reason == reason)) {
            (PauseReason::PausedByStepBasedHook, Some(cause)) => {
                warning("RolloutPaused", format!("{what}: {}", cause.message))
            }
            (PauseReason::PausedByStepBasedHook, None) => warning("RolloutPaused", what),
            (PauseReason::PausedByCanaryPauseStep, _) => normal("RolloutPaused", what),
        });
    }
    if old.canary.revision != new.canary.revision && !old.canary.revision.is_empty() {
        events.push(normal(
            "RolloutComplete",
            format!("{} is now the stable revision", new.canary.revision),
        ));
    }
    events
}

/// Whether pods are updated from a stable revision to another one.
fn has_rollout(status: &WorkloadStatus) -> bool {
    let stable = &status.canary.revision;
    !stable.is_empty() && *stable != status.update_revision
}

/// An event about the current step of a rollout, counted from 0.
fn canary_step(update: &str, index: i32, steps: usize) -> Option<Event> {
    let index = usize::try_from(index).ok()?;
    let message = match index < steps {
        true => format!("the rollout to {update} is at step {index}"),
        false if steps == 0 => return None,
        false => format!("the rollout to {update} has completed all of its {steps} steps"),
    };
    Some(normal("CanaryStep", message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The messages of the events about a rollout that reaches this step index.
    fn messages(index: i32, steps: usize) -> Vec<String> {
        let status = |index: Option<i32>| {
            let status = json!({
                "updateRevision": "game-new",
                "currentStepIndex": index,
                "canary": {"revision": "game-old"},
            });
            serde_json::from_value::<WorkloadStatus>(status).unwrap()
        };
        let events = of_change(&status(None), &status(Some(index)), steps);
        events.into_iter().map(|event| event.message).collect()
    }

    #[test]
    fn the_event_of_a_revert_names_the_revision_that_is_reverted() {
        let status = |update: &str| {
            let status = json!({"updateRevision": update, "canary": {"revision": "game-a"}});
            serde_json::from_value::<WorkloadStatus>(status).unwrap()
        };
        let of_change = |old, new| of_change(&status(old), &status(new), 0)[0].message.clone();
        assert_eq!(of_change("game-a", "game-b"), "from game-a to game-b");
        assert_eq!(of_change("game-b", "game-a"), "from game-b to game-a");
        assert_eq!(of_change("game-b", "game-c"), "from game-a to game-c");
    }

    #[test]
    fn a_template_that_replaces_one_that_never_worked_starts_at_that_one_and_walks_no_steps() {
        let status = |update: &str, index: i32| {
            let status = json!({"updateRevision": update, "currentStepIndex": index});
            serde_json::from_value::<WorkloadStatus>(status).unwrap()
        };
        let events = of_change(&status("game-a", 1), &status("game-b", 2), 2);
        let messages: Vec<_> = events.into_iter().map(|it| it.message).collect();
        assert_eq!(messages, ["from game-a to game-b"]);
    }

    #[test]
    fn a_rollout_is_at_a_step_or_has_completed_all_of_them() {
        assert_eq!(messages(0, 3), ["the rollout to game-new is at step 0"]);
        assert_eq!(messages(2, 3), ["the rollout to game-new is at step 2"]);
        let completed = "the rollout to game-new has completed all of its 3 steps";
        assert_eq!(messages(3, 3), [completed]);
        assert_eq!(messages(0, 0), [""; 0]);
    }
}

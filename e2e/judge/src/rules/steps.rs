//! Invariant 4: a pause step is left only by a user or its duration, a hook step by its success or
//! a user; within one rollout the step index only grows; the operator lifts no pause but its own, and
//! promotes nothing itself.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::{Found, is_held_by_a_user};
use crate::names;
use crate::object::{label, phase, uid};
use crate::replay::history::{Resource, Write};
use crate::replay::workload::{Version, pause_of};
use crate::replay::world::{LAG, World};

/// The pause of each workload that has had one, by uid.
#[derive(Debug, Default)]
pub(crate) struct Pauses(BTreeMap<String, Known>);

/// What is known of one workload's pause.
#[derive(Debug, Default)]
struct Known {
    /// The operator's last pause, until a user replaces it with their own.
    made: Option<Pause>,
}

#[derive(Debug)]
struct Pause {
    at: Timestamp,
    /// The step that it was made at.
    index: usize,
    template: Value,
    steps: Value,
    /// Whether a user has resumed.
    resumed: bool,
    /// Whether its step was left.
    left: bool,
}

impl Pauses {
    /// Judges a write of a workload after it took effect.
    pub(crate) fn check(&mut self, world: &World, write: &Write, is_operators: bool) -> Vec<Found> {
        if write.resource != Resource::Workload {
            return Vec::new();
        }
        let (Some(before), Some(after)) = (&write.before, &write.after) else {
            return Vec::new();
        };
        let (before, after) = (
            Version::of(before, write.done),
            Version::of(after, write.done),
        );
        let known = self.0.entry(uid(&after.object).to_owned()).or_default();
        let mut wrong: Vec<String> = Vec::new();
        if is_operators && after.is_promoted() && !before.is_promoted() {
            wrong.push("promotes a rollout, which is for users to do".to_owned());
        }
        wrong.extend(known.follow_pause(&before, &after, write, is_operators));
        wrong.extend(known.follow_steps(world, &before, &after, write));
        wrong.into_iter().map(|why| ("steps", why)).collect()
    }
}

impl Known {
    /// Follows the field `paused`.
    fn follow_pause(
        &mut self,
        before: &Version,
        after: &Version,
        write: &Write,
        is_operators: bool,
    ) -> Option<String> {
        match (before.is_paused(), after.is_paused(), is_operators) {
            (false, true, true) => {
                let new = Pause::new(after, write);
                let since = self.made.as_ref().filter(|old| old.is_same_as(&new));
                let at = since.map_or(new.at, |old| old.at);
                self.made = Some(Pause { at, ..new });
                None
            }
            (true, false, true) => {
                let is_own = |pause: &Pause| pause.may_be_lifted(after, write);
                let is_right = self.made.as_ref().is_some_and(is_own);
                (!is_right).then(|| "lifts a pause that is not its own to lift".to_owned())
            }
            (true, false, false) => {
                if let Some(pause) = self.made.as_mut() {
                    pause.resumed |= !is_apply(write);
                }
                None
            }
            (false, true, false) => {
                self.made = None;
                None
            }
            (true, true, false)
                if before.has_pause_annotation() && !after.has_pause_annotation() =>
            {
                self.made = None;
                None
            }
            _ => None,
        }
    }

    /// Follows status.currentStepIndex within a rollout.
    fn follow_steps(
        &mut self,
        world: &World,
        before: &Version,
        after: &Version,
        write: &Write,
    ) -> Option<String> {
        let is_one_rollout =
            before.rollout() == after.rollout() && before.is_rolling() && after.is_rolling();
        let (old, new) = (before.step_index(), after.step_index());
        if !is_one_rollout || old == new {
            return None;
        }
        if new < old {
            return Some(format!("the step index fell from {old} to {new}"));
        }
        if is_held_by_a_user(world, after, write) {
            return Some(format!(
                "went from step {old} to {new} while a user's pause stood"
            ));
        }
        if after.is_promoted() && !after.is_paused() {
            return None;
        }
        (old..new).find_map(|index| {
            let step = after.steps().get(index)?;
            let is_left_well = if step.get("pause").is_some() {
                self.leave_pause(step, write)
            } else if step.get("hook").is_some() {
                has_passed(world, after, index) || self.leave_pause(step, write)
            } else {
                true
            };
            (!is_left_well).then(|| {
                format!("left step {index} ({step}) without a user, a duration or a success")
            })
        })
    }

    /// Whether a pause stood that may be left; it may be left once.
    fn leave_pause(&mut self, step: &Value, write: &Write) -> bool {
        if pause_of(step).is_some_and(|length| length.is_zero()) {
            return true;
        }
        let pause = self.made.as_mut().filter(|pause| !pause.left);
        pause.is_some_and(|pause| {
            pause.left = pause.resumed || pause.is_over(step, write);
            pause.left
        })
    }
}

impl Pause {
    fn new(workload: &Version, write: &Write) -> Self {
        Pause {
            at: write.received,
            index: workload.step_index(),
            template: part(workload, "/spec/template"),
            steps: part(workload, STEPS),
            resumed: false,
            left: false,
        }
    }

    /// Whether a new pause is this one again, after an apply had undone it.
    fn is_same_as(&self, new: &Pause) -> bool {
        !self.left
            && self.index == new.index
            && self.template == new.template
            && self.steps == new.steps
    }

    /// Whether the operator may lift it: its step is over, or its rollout is.
    fn may_be_lifted(&self, workload: &Version, write: &Write) -> bool {
        // The patch that pauses and the status that shows the step are two writes.
        let steps = workload.steps().iter().skip(self.index).take(2);
        let mut steps = steps.filter(|step| step.get("pause").is_some());
        self.left
            || steps.any(|step| self.is_over(step, write))
            || self.template != part(workload, "/spec/template")
            || self.steps != part(workload, STEPS)
    }

    fn is_over(&self, step: &Value, write: &Write) -> bool {
        let length = pause_of(step);
        length.is_some_and(|length| self.at + length <= write.received + LAG)
    }
}

const STEPS: &str = "/spec/updateStrategy/canary";

fn part(workload: &Version, pointer: &str) -> Value {
    workload
        .object
        .pointer(pointer)
        .cloned()
        .unwrap_or_default()
}

/// Whether a write came from `kubectl apply`, which says what a manifest says, not what a user
/// wants now.
fn is_apply(write: &Write) -> bool {
    let query = write.uri.split_once('?').map_or("", |(_, query)| query);
    query.split('&').any(|pair| {
        matches!(
            pair,
            "fieldManager=kubectl-client-side-apply" | "fieldManager=kubectl"
        )
    })
}

/// Whether the HookRun of a step was Successful.
fn has_passed(world: &World, workload: &Version, index: usize) -> bool {
    world.runs.values().any(|run| {
        let object = &run.object;
        let of = names::RUN_REVISION
            .iter()
            .find_map(|key| label(object, key));
        let step = label(object, names::RUN_STEP).and_then(|step| step.parse().ok());
        of == Some(workload.update_revision())
            && step == Some(index)
            && phase(object) == "Successful"
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::story::{OPERATOR, Story};

    fn at_step(steps: Value, index: usize) -> Story {
        let strategy = json!({"type": "InplaceUpdate", "canary": {"steps": steps}});
        let mut story = Story::with(json!({"replicas": 2, "updateStrategy": strategy}));
        story.status(json!({"updateRevision": "v2", "currentStepIndex": index}));
        story.wait(2);
        story
    }

    fn resume(story: &mut Story, user: &str) {
        story.spec(user, json!({"updateStrategy": {"paused": false}}));
    }

    fn go_to(story: &mut Story, index: usize) {
        story.status(json!({"currentStepIndex": index}));
    }

    #[test]
    fn a_pause_is_left_when_a_user_resumes() {
        let mut story = at_step(json!([{"pause": {}}, {"partition": 1}]), 0);
        story.pause();
        story.wait(5);
        resume(&mut story, "user");
        go_to(&mut story, 1);
        assert_eq!(story.verdict(), []);
    }

    #[test]
    fn a_pause_is_not_left_by_the_operator_alone() {
        let mut story = at_step(json!([{"pause": {}}, {"partition": 1}]), 0);
        story.pause();
        story.wait(5);
        go_to(&mut story, 1);
        assert_eq!(story.broken(), ["steps"]);
        let mut story = at_step(json!([{"pause": {}}, {"partition": 1}]), 0);
        story.pause();
        resume(&mut story, OPERATOR);
        assert_eq!(story.broken(), ["steps"]);
    }

    #[test]
    fn a_pause_step_is_not_jumped_over() {
        let mut story = at_step(
            json!([{"partition": 1}, {"pause": {}}, {"partition": 0}]),
            0,
        );
        go_to(&mut story, 2);
        assert_eq!(story.broken(), ["steps"]);
    }

    #[test]
    fn steps_are_jumped_over_when_a_user_promotes_the_rollout() {
        let steps = json!([{"partition": 1}, {"pause": {}}, {"partition": 0}]);
        let promoted = |user: &str| {
            let mut story = at_step(steps.clone(), 0);
            story.status(json!({"currentStepHash": "steps"}));
            story.promote(user, "v2", "steps");
            go_to(&mut story, 3);
            story
        };
        assert_eq!(promoted("user").verdict(), []);
        assert_eq!(promoted(OPERATOR).broken(), ["steps"]);
        let mut story = at_step(steps.clone(), 0);
        story.promote("user", "v1", "steps");
        go_to(&mut story, 3);
        assert_eq!(story.broken(), ["steps"]);
    }

    #[test]
    fn an_apply_does_not_resume() {
        let mut story = at_step(json!([{"pause": {}}, {"partition": 1}]), 0);
        story.pause();
        story.apply(json!({"updateStrategy": {"paused": false}}));
        go_to(&mut story, 1);
        assert_eq!(story.broken(), ["steps"]);
    }

    #[test]
    fn one_resume_leaves_one_pause() {
        let mut story = at_step(json!([{"pause": {}}, {"pause": {}}]), 0);
        story.pause();
        resume(&mut story, "user");
        go_to(&mut story, 1);
        go_to(&mut story, 2);
        assert_eq!(story.broken(), ["steps"]);
    }

    #[test]
    fn a_pause_with_a_duration_ends_by_itself_and_not_before() {
        let steps = json!([{"pause": {"duration": 10}}, {"partition": 1}]);
        let mut story = at_step(steps.clone(), 0);
        story.pause();
        story.wait(10);
        go_to(&mut story, 1);
        resume(&mut story, OPERATOR);
        assert_eq!(story.verdict(), []);
        let mut story = at_step(steps, 0);
        story.pause();
        story.wait(5);
        go_to(&mut story, 1);
        assert_eq!(story.broken(), ["steps"]);
    }

    #[test]
    fn a_users_pause_has_no_time_out() {
        let mut story = at_step(json!([{"partition": 1}, {"partition": 0}]), 0);
        story.spec("user", json!({"updateStrategy": {"paused": true}}));
        story.wait(100);
        go_to(&mut story, 1);
        assert_eq!(story.broken(), ["steps"]);
        story.wait(2);
        resume(&mut story, OPERATOR);
        assert_eq!(story.broken(), ["steps", "steps"]);
    }

    #[test]
    fn a_hook_step_is_left_by_a_success_or_a_user() {
        let steps = json!([{"hook": {"templateName": "test"}}, {"partition": 1}]);
        let mut story = at_step(steps.clone(), 0);
        go_to(&mut story, 1);
        assert_eq!(story.broken(), ["steps"]);
        let mut story = at_step(steps, 0);
        story.pause();
        resume(&mut story, "user");
        go_to(&mut story, 1);
        assert_eq!(story.verdict(), []);
    }

    #[test]
    fn a_new_rollout_lifts_the_operators_pause_and_starts_over() {
        let mut story = at_step(json!([{"partition": 1}, {"pause": {}}]), 1);
        story.pause();
        story.spec("user", json!({"template": {"image": "v3"}}));
        resume(&mut story, OPERATOR);
        story.status(json!({"updateRevision": "v3", "currentStepIndex": 0}));
        assert_eq!(story.verdict(), []);
    }

    #[test]
    fn the_index_does_not_fall_in_a_rollout() {
        let mut story = at_step(json!([{"partition": 1}, {"partition": 0}]), 1);
        go_to(&mut story, 0);
        assert_eq!(story.broken(), ["steps"]);
    }
}

//! Invariant 4: a pause step is ended only by a user or by its duration, and a hook step only by a user or by its
//! success. Within one rollout the step index only grows. The operator neither ends a user's pause nor promotes
//! a rollout on its own.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::{Found, is_held_by_a_user};
use crate::names;
use crate::object::{label, phase, uid};
use crate::replay::history::{Resource, Write};
use crate::replay::workload::{Version, pause_of};
use crate::replay::world::{LAG, World};

/// The pauses of workloads, by uid.
#[derive(Debug, Default)]
pub(crate) struct Pauses(BTreeMap<String, WorkloadPause>);

/// The pause of a workload.
#[derive(Debug, Default)]
struct WorkloadPause {
    /// The operator's last pause, until a user's pause replaces it.
    last: Option<Pause>,
}

#[derive(Debug)]
struct Pause {
    at: Timestamp,
    /// The step at which it was set.
    index: usize,
    template: Value,
    steps: Value,
    /// Whether a user has resumed.
    resumed: bool,
    /// Whether the end of this pause has already let a step end.
    is_used: bool,
}

impl Pauses {
    /// Checks a write of a workload after it took effect.
    pub(crate) fn check(&mut self, world: &World, write: &Write, by_operator: bool) -> Vec<Found> {
        if write.resource != Resource::Workload {
            return Vec::new();
        }
        let (Some(before), Some(after)) = (&write.before, &write.after) else {
            return Vec::new();
        };
        let (before, after) = (Version::of(before, write.done), Version::of(after, write.done));
        let workload = self.0.entry(uid(&after.object).to_owned()).or_default();
        let mut wrong: Vec<String> = Vec::new();
        if by_operator && after.is_promoted() && !before.is_promoted() {
            wrong.push("promotes a rollout, which only a user may do".to_owned());
        }
        wrong.extend(workload.check_pause(&before, &after, write, by_operator));
        wrong.extend(workload.check_steps(world, &before, &after, write));
        wrong.into_iter().map(|why| ("steps", why)).collect()
    }
}

impl WorkloadPause {
    /// Checks a change of the field `paused`.
    fn check_pause(
        &mut self,
        before: &Version,
        after: &Version,
        write: &Write,
        by_operator: bool,
    ) -> Option<String> {
        // While an apply has set `paused` to false, a user resumes in the annotation.
        if !by_operator
            && after.has_ended_pause()
            && !before.has_ended_pause()
            && let Some(pause) = self.last.as_mut()
        {
            pause.resumed = true;
        }
        match (before.is_paused(), after.is_paused(), by_operator) {
            (false, true, true) => {
                let new = Pause::new(after, write);
                let same = self.last.as_ref().filter(|old| old.is_same_as(&new));
                let at = same.map_or(new.at, |old| old.at);
                self.last = Some(Pause { at, ..new });
                None
            }
            (true, false, true) => {
                // A retry of the step's hook ends the pause, but not the step.
                let is_retried = |pause: &Pause| {
                    let step = before.steps().get(pause.index);
                    before.retries_step() && step.is_some_and(|it| it.get("hook").is_some())
                };
                let may_end = |pause: &Pause| pause.may_end(after, write) || is_retried(pause);
                let is_allowed = self.last.as_ref().is_some_and(may_end);
                (!is_allowed).then(|| "ends a pause that it must not end".to_owned())
            }
            (true, false, false) => {
                if let Some(pause) = self.last.as_mut() {
                    pause.resumed |= !is_apply(write);
                }
                None
            }
            (false, true, false) => {
                self.last = None;
                None
            }
            (true, true, false)
                if before.has_pause_annotation() && !after.has_pause_annotation() =>
            {
                self.last = None;
                None
            }
            _ => None,
        }
    }

    /// Checks a change of status.currentStepIndex within a rollout.
    fn check_steps(
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
            return Some(format!("the step index decreases from {old} to {new}"));
        }
        if is_held_by_a_user(world, after, write) {
            return Some(format!("goes from step {old} to {new} during a user's pause"));
        }
        if after.is_promoted() && !after.is_paused() {
            return None;
        }
        (old..new).find_map(|index| {
            let step = after.steps().get(index)?;
            let may_be_left = if step.get("pause").is_some() {
                self.leave_pause(step, write)
            } else if step.get("hook").is_some() {
                has_passed(world, after, index) || self.leave_pause(step, write)
            } else {
                true
            };
            (!may_be_left).then(|| {
                format!(
                    "ends step {index} ({step}) without a resume, an elapsed duration or a success"
                )
            })
        })
    }

    /// Whether a step may be left because its pause may end. The end of a pause lets only one step end.
    fn leave_pause(&mut self, step: &Value, write: &Write) -> bool {
        if pause_of(step).is_some_and(|length| length.is_zero()) {
            return true;
        }
        let pause = self.last.as_mut().filter(|pause| !pause.is_used);
        pause.is_some_and(|pause| {
            pause.is_used = pause.resumed || pause.is_over(step, write);
            pause.is_used
        })
    }
}

impl Pause {
    fn new(workload: &Version, write: &Write) -> Self {
        Pause {
            at: write.received,
            index: workload.step_index(),
            template: field(workload, "/spec/template"),
            steps: field(workload, STEPS),
            resumed: false,
            is_used: false,
        }
    }

    /// Whether a new pause is this one, set again after an apply has removed it.
    fn is_same_as(&self, new: &Pause) -> bool {
        !self.is_used
            && self.index == new.index
            && self.template == new.template
            && self.steps == new.steps
    }

    /// Whether the operator may end this pause, because its step or its rollout is over.
    fn may_end(&self, workload: &Version, write: &Write) -> bool {
        // The pause and the step index are set in two writes, so the pause may belong to the next step.
        let steps = workload.steps().iter().skip(self.index).take(2);
        let mut steps = steps.filter(|step| step.get("pause").is_some());
        self.is_used
            || steps.any(|step| self.is_over(step, write))
            || self.template != field(workload, "/spec/template")
            || self.steps != field(workload, STEPS)
    }

    fn is_over(&self, step: &Value, write: &Write) -> bool {
        let length = pause_of(step);
        length.is_some_and(|length| self.at + length <= write.received + LAG)
    }
}

const STEPS: &str = "/spec/updateStrategy/canary";

fn field(workload: &Version, pointer: &str) -> Value {
    workload.object.pointer(pointer).cloned().unwrap_or_default()
}

/// Whether a write came from `kubectl apply`, whose `paused: false` is not a request to resume.
fn is_apply(write: &Write) -> bool {
    let query = write.uri.split_once('?').map_or("", |(_, query)| query);
    query.split('&').any(|pair| {
        matches!(pair, "fieldManager=kubectl-client-side-apply" | "fieldManager=kubectl")
    })
}

/// Whether the HookRun of a step was Successful.
fn has_passed(world: &World, workload: &Version, index: usize) -> bool {
    world.runs.values().any(|run| {
        let object = &run.object;
        let revision = names::RUN_REVISION.iter().find_map(|key| label(object, key));
        let step = label(object, names::RUN_STEP).and_then(|step| step.parse().ok());
        revision == Some(workload.update_revision())
            && step == Some(index)
            && phase(object) == "Successful"
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::scenario::{OPERATOR, Scenario};

    fn at_step(steps: Value, index: usize) -> Scenario {
        let strategy = json!({"type": "InplaceUpdate", "canary": {"steps": steps}});
        let mut scenario = Scenario::with(json!({"replicas": 2, "updateStrategy": strategy}));
        scenario.status(json!({"updateRevision": "v2", "currentStepIndex": index}));
        scenario.wait(2);
        scenario
    }

    fn resume(scenario: &mut Scenario, user: &str) {
        scenario.spec(user, json!({"updateStrategy": {"paused": false}}));
    }

    fn go_to(scenario: &mut Scenario, index: usize) {
        scenario.status(json!({"currentStepIndex": index}));
    }

    #[test]
    fn a_resume_by_a_user_ends_a_pause() {
        let mut scenario = at_step(json!([{"pause": {}}, {"partition": 1}]), 0);
        scenario.pause();
        scenario.wait(5);
        resume(&mut scenario, "user");
        go_to(&mut scenario, 1);
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn the_operator_must_not_end_a_pause() {
        let mut scenario = at_step(json!([{"pause": {}}, {"partition": 1}]), 0);
        scenario.pause();
        scenario.wait(5);
        go_to(&mut scenario, 1);
        assert_eq!(scenario.broken(), ["steps"]);
        let mut scenario = at_step(json!([{"pause": {}}, {"partition": 1}]), 0);
        scenario.pause();
        resume(&mut scenario, OPERATOR);
        assert_eq!(scenario.broken(), ["steps"]);
    }

    #[test]
    fn a_pause_step_is_not_skipped() {
        let mut scenario = at_step(json!([{"partition": 1}, {"pause": {}}, {"partition": 0}]), 0);
        go_to(&mut scenario, 2);
        assert_eq!(scenario.broken(), ["steps"]);
    }

    #[test]
    fn a_promotion_by_a_user_skips_steps() {
        let steps = json!([{"partition": 1}, {"pause": {}}, {"partition": 0}]);
        let promoted = |user: &str| {
            let mut scenario = at_step(steps.clone(), 0);
            scenario.status(json!({"currentStepHash": "steps"}));
            scenario.promote(user, "v2", "steps");
            go_to(&mut scenario, 3);
            scenario
        };
        assert_eq!(promoted("user").verdict(), []);
        assert_eq!(promoted(OPERATOR).broken(), ["steps"]);
        let mut scenario = at_step(steps.clone(), 0);
        scenario.promote("user", "v1", "steps");
        go_to(&mut scenario, 3);
        assert_eq!(scenario.broken(), ["steps"]);
    }

    #[test]
    fn an_apply_does_not_resume() {
        let mut scenario = at_step(json!([{"pause": {}}, {"partition": 1}]), 0);
        scenario.pause();
        scenario.apply(json!({"updateStrategy": {"paused": false}}));
        go_to(&mut scenario, 1);
        assert_eq!(scenario.broken(), ["steps"]);
    }

    #[test]
    fn a_user_may_resume_in_the_annotation_of_the_pause() {
        for (user, broken) in [("user", vec![]), (OPERATOR, vec!["steps"])] {
            let mut scenario = at_step(json!([{"pause": {}}, {"partition": 1}]), 0);
            scenario.pause();
            scenario.apply(json!({"updateStrategy": {"paused": false}}));
            scenario.end_pause(user);
            go_to(&mut scenario, 1);
            assert_eq!(scenario.broken(), broken);
        }
    }

    #[test]
    fn one_resume_ends_one_pause() {
        let mut scenario = at_step(json!([{"pause": {}}, {"pause": {}}]), 0);
        scenario.pause();
        resume(&mut scenario, "user");
        go_to(&mut scenario, 1);
        go_to(&mut scenario, 2);
        assert_eq!(scenario.broken(), ["steps"]);
    }

    #[test]
    fn a_pause_step_ends_after_its_duration() {
        let steps = json!([{"pause": {"duration": 10}}, {"partition": 1}]);
        let mut scenario = at_step(steps.clone(), 0);
        scenario.pause();
        scenario.wait(10);
        go_to(&mut scenario, 1);
        resume(&mut scenario, OPERATOR);
        assert_eq!(scenario.verdict(), []);
        let mut scenario = at_step(steps, 0);
        scenario.pause();
        scenario.wait(5);
        go_to(&mut scenario, 1);
        assert_eq!(scenario.broken(), ["steps"]);
    }

    #[test]
    fn a_users_pause_does_not_end_by_itself() {
        let mut scenario = at_step(json!([{"partition": 1}, {"partition": 0}]), 0);
        scenario.spec("user", json!({"updateStrategy": {"paused": true}}));
        scenario.wait(100);
        go_to(&mut scenario, 1);
        assert_eq!(scenario.broken(), ["steps"]);
        scenario.wait(2);
        resume(&mut scenario, OPERATOR);
        assert_eq!(scenario.broken(), ["steps", "steps"]);
    }

    #[test]
    fn a_hook_step_without_a_success_is_ended_only_by_a_user() {
        let steps = json!([{"hook": {"templateName": "test"}}, {"partition": 1}]);
        let mut scenario = at_step(steps.clone(), 0);
        go_to(&mut scenario, 1);
        assert_eq!(scenario.broken(), ["steps"]);
        let mut scenario = at_step(steps, 0);
        scenario.pause();
        resume(&mut scenario, "user");
        go_to(&mut scenario, 1);
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn a_new_rollout_lifts_the_operators_pause_and_starts_over() {
        let mut scenario = at_step(json!([{"partition": 1}, {"pause": {}}]), 1);
        scenario.pause();
        scenario.spec("user", json!({"template": {"image": "v3"}}));
        resume(&mut scenario, OPERATOR);
        scenario.status(json!({"updateRevision": "v3", "currentStepIndex": 0}));
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn the_step_index_does_not_decrease_in_a_rollout() {
        let mut scenario = at_step(json!([{"partition": 1}, {"partition": 0}]), 1);
        go_to(&mut scenario, 0);
        assert_eq!(scenario.broken(), ["steps"]);
    }
}

//! HookRuns in a scenario: their creation, end and deletion.

use jiff::Timestamp;
use serde_json::json;

use super::{GAME, OPERATOR, Scenario};
use crate::names;

impl Scenario {
    /// The operator creates a HookRun for a pod.
    pub(crate) fn run(&mut self, pod: &str, point: &str, target: &str) {
        self.run_by(OPERATOR, pod, point, target);
    }

    /// A user creates a HookRun for a pod. If it has a target, it is for an update of all containers in place.
    pub(crate) fn run_by(&mut self, user: &str, pod: &str, point: &str, target: &str) {
        let changes = (!target.is_empty()).then_some("log,main");
        self.run_for(user, pod, point, target, changes);
    }

    /// A user creates a HookRun for an update of these containers in place, or for a deletion.
    pub(crate) fn run_for(
        &mut self,
        user: &str,
        pod: &str,
        point: &str,
        target: &str,
        changes: Option<&str>,
    ) {
        let prefix = point.to_lowercase();
        let name = format!("{prefix}-{pod}-{}-test", self.log.version);
        let mut run = json!({
            "kind": "HookRun",
            "metadata": {
                "name": name, "uid": name,
                "labels": {names::RUN_TYPE[0]: point},
                "ownerReferences": [{"controller": true, "uid": GAME}],
                "annotations": {
                    names::RUN_POD_UID: format!("uid-{pod}"),
                    names::RUN_TARGET: target,
                    names::RUN_WORKLOAD_UID: GAME,
                },
            },
            "status": {"phase": "Running"},
        });
        if let Some(changes) = changes {
            run["metadata"]["annotations"][names::RUN_CHANGES] = json!(changes);
        }
        let run = self.log.write(user, "create", "hookruns", "", &name, run);
        self.runs.insert(format!("{pod}/{point}"), run);
    }

    /// A HookRun ends.
    pub(crate) fn finish(&mut self, pod: &str, point: &str, phase: &str) {
        self.end_run(pod, point, phase, self.log.now);
    }

    fn end_run(&mut self, pod: &str, point: &str, phase: &str, at: Timestamp) {
        let mut run = self.runs[&format!("{pod}/{point}")].clone();
        run["status"] = json!({"phase": phase, "finishedAt": at});
        let name = run["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let run = self.log.write(OPERATOR, "patch", "hookruns", "status", &name, run);
        self.runs.insert(format!("{pod}/{point}"), run);
    }

    /// A HookRun succeeds, according to a clock that is ahead by this many seconds.
    pub(crate) fn finish_with_clock_ahead(&mut self, pod: &str, point: &str, seconds: i64) {
        self.wait(seconds);
        let ahead = self.log.now;
        self.wait(-seconds);
        self.end_run(pod, point, "Successful", ahead);
    }

    /// The operator creates a HookRun, which succeeds.
    pub(crate) fn pass(&mut self, pod: &str, point: &str, target: &str) {
        self.run(pod, point, target);
        self.finish(pod, point, "Successful");
    }

    /// The operator creates a HookRun for an update of these containers in place, or for a deletion. It succeeds.
    pub(crate) fn pass_for(&mut self, pod: &str, point: &str, target: &str, changes: Option<&str>) {
        self.run_for(OPERATOR, pod, point, target, changes);
        self.finish(pod, point, "Successful");
    }

    /// The operator deletes a HookRun.
    pub(crate) fn delete_run(&mut self, pod: &str, point: &str) {
        self.delete_run_by(OPERATOR, pod, point);
    }

    /// A user deletes a HookRun.
    pub(crate) fn delete_run_by(&mut self, user: &str, pod: &str, point: &str) {
        let run = self.runs.remove(&format!("{pod}/{point}")).expect("a run");
        let name = run["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let gone = json!({"kind": "Status"});
        self.log.write(user, "delete", "hookruns", "", &name, gone);
    }

    /// A client tries to create a HookRun, which is refused with this message.
    pub(crate) fn refuse_run(&mut self, user: &str, name: &str, why: &str) {
        let status = json!({"kind": "Status"});
        self.log.write(user, "create", "hookruns", "", "", status);
        let event = self.log.events.last_mut().expect("an event");
        let status = event.response_status.as_mut().expect("a status");
        status.code = 403;
        status.message = format!("hookruns.tkex.tencent.com {name:?} is forbidden: {why}");
    }
}

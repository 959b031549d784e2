//! Invariant 1: no pod of which a container runs is deleted or changed before its hook was Successful.

use jiff::{SignedDuration, Timestamp};

use super::start::{Act, Purpose, Start, name};
use super::{Found, right_under_one};
use crate::names;
use crate::object::{
    Hook, annotation, arguments, has_ended, phase, pod_hook, point, revision, uid,
};
use crate::replay::history::Write;
use crate::replay::workload::Version;
use crate::replay::world::{End, LAG, Run, World};

/// How long a success is good for.
const FRESH: SignedDuration = SignedDuration::from_secs(60);

/// The rule.
pub(crate) fn hooks(world: &World, write: &Write) -> Option<Found> {
    let start = Start::of_any(world, write)?;
    let is_free = match start.act {
        Act::HotPatch => true,
        Act::Delete => false,
        Act::CloseGate | Act::Change => start.pod.ongoing_update.is_some(),
    };
    if is_free || start.is_on_idle_pod(write) {
        return None;
    }
    let wrong = |version: &Version| {
        let (point, hook) = guard(world, &start, version)?;
        let asked = Asked {
            point,
            hook,
            start: &start,
            version,
            write,
        };
        let mut runs = world.runs.values();
        (!runs.any(|run| asked.is_answered_by(run))).then(|| asked.complaint(world))
    };
    Some(("hooks", right_under_one(start.versions, wrong)?))
}

/// The hook that guards what is begun, and its point.
fn guard<'a>(
    world: &World,
    start: &Start,
    version: &'a Version,
) -> Option<(&'static str, Hook<'a>)> {
    let pre_delete = || Some(("PreDelete", pod_hook(&version.object, "preDelete")?));
    let pre_inplace = || Some(("PreInplace", pod_hook(&version.object, "preInplace")?));
    match start.act {
        Act::Delete if has_ended(&start.pod.object) => pre_delete(),
        Act::Delete if start.purpose(world, version) == Purpose::Update => {
            pre_delete().or_else(pre_inplace)
        }
        Act::Delete => pre_delete(),
        _ => pre_inplace().or_else(pre_delete),
    }
}

/// A hook that had to be Successful.
struct Asked<'a> {
    point: &'static str,
    hook: Hook<'a>,
    start: &'a Start<'a>,
    version: &'a Version,
    write: &'a Write,
}

impl Asked<'_> {
    fn is_about_pod(&self, run: &Run) -> bool {
        let pod = annotation(&run.object, names::RUN_POD_UID);
        pod == Some(uid(&self.start.pod.object)) && point(&run.object) == self.point
    }

    fn is_answered_by(&self, run: &Run) -> bool {
        let object = &run.object;
        let may_rest_on =
            |end: &End| end.at >= self.write.received || end.may_be_unseen_by(self.write);
        let was_there = run.end.as_ref().is_none_or(may_rest_on);
        self.is_about_pod(run)
            && was_there
            && account_namespace(&run.creator) == account_namespace(&self.write.user)
            && phase(object) == "Successful"
            && run.succeeded.is_some_and(|at| self.is_fresh(at))
            && annotation(object, names::RUN_WORKLOAD_UID) == Some(self.start.owner)
            && self.is_of_hook(run)
            && self.leads_to(annotation(object, names::RUN_TARGET).unwrap_or_default())
    }

    fn is_fresh(&self, succeeded: Timestamp) -> bool {
        succeeded + FRESH + LAG >= self.write.received
    }

    fn is_of_hook(&self, run: &Run) -> bool {
        let given = arguments(&run.object, "/spec/args");
        let name = name(&run.object);
        // Names that would be too long are cut.
        let is_named = name.ends_with(&format!("-{}", self.hook.template)) || name.len() > 200;
        is_named && self.hook.args.iter().all(|arg| given.contains(arg))
    }

    fn leads_to(&self, target: &str) -> bool {
        let update = self.version.update_revision();
        match (self.start.act, &self.write.after) {
            (Act::Delete, _) => {
                let own = revision(&self.start.pod.object);
                target.is_empty() || target == update || target == own
            }
            (Act::CloseGate, _) => target == update || target == self.version.stable_revision(),
            (_, Some(after)) => target == revision(after),
            (_, None) => false,
        }
    }

    fn complaint(&self, world: &World) -> String {
        let runs = world.runs.values().filter(|run| self.is_about_pod(run));
        let runs: Vec<String> = runs
            .map(|run| {
                let object = &run.object;
                let target = annotation(object, names::RUN_TARGET).unwrap_or_default();
                let gone = if run.end.is_some() { ", deleted" } else { "" };
                let (name, phase) = (name(object), phase(object));
                format!("{name} ({phase}, for {target:?}{gone})")
            })
            .collect();
        let what = match self.start.pod.runs() {
            true => "a running pod",
            false => "a pod that may have started meanwhile",
        };
        format!(
            "{:?} of {what} without a {} hook {:?} that was Successful; its runs: {}",
            self.start.act,
            self.point,
            self.hook.template,
            if runs.is_empty() {
                "none".to_owned()
            } else {
                runs.join(", ")
            },
        )
    }
}

/// Where a service account is from: the accounts of a test's operators share it.
fn account_namespace(user: &str) -> &str {
    user.rsplit_once(':')
        .map_or(user, |(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::story::Story;

    fn guarded(point: &str) -> Value {
        let mut spec = json!({
            "replicas": 3,
            "updateStrategy": {"type": "InplaceUpdate", "maxUnavailable": 3},
        });
        spec[format!("{point}UpdateStrategy")] = json!({"hook": {"templateName": "test"}});
        spec
    }

    fn scaling_in() -> Story {
        let mut story = Story::with(guarded("preDelete"));
        story.spec("user", json!({"replicas": 2}));
        story.wait(2);
        story
    }

    fn updating(point: &str) -> Story {
        let mut story = Story::with(guarded(point));
        story.status(json!({"updateRevision": "v2"}));
        story.wait(2);
        story
    }

    #[test]
    fn a_deletion_after_its_hook_is_right() {
        let mut story = scaling_in();
        story.pass("a", "PreDelete", "");
        story.delete("a");
        assert_eq!(story.verdict(), []);
    }

    #[test]
    fn a_deletion_without_a_hook_is_found() {
        let mut story = scaling_in();
        story.delete("a");
        assert_eq!(story.broken(), ["hooks"]);
    }

    #[test]
    fn a_pod_of_which_nothing_runs_may_go_as_it_was_seen() {
        for phase in ["Pending", "Running", "Failed"] {
            let mut story = scaling_in();
            story.reports("a", phase, false);
            story.if_unchanged().delete("a");
            assert_eq!(story.verdict(), [], "{phase}");
        }
        let mut story = Story::with(guarded("preDelete"));
        story.spec("user", json!({"replicas": 4}));
        story.wait(2);
        story.create_only("d", "v1");
        story.spec("user", json!({"replicas": 3}));
        story.wait(2);
        story.if_unchanged().delete("d");
        assert_eq!(story.verdict(), []);
    }

    #[test]
    fn a_deletion_that_would_have_met_a_started_pod_too_is_found() {
        for phase in ["Pending", "Running", "Failed"] {
            let mut story = scaling_in();
            story.reports("a", phase, false);
            story.delete("a");
            assert_eq!(story.broken(), ["hooks"], "{phase}");
        }
    }

    #[test]
    fn a_pod_has_something_to_lose_from_the_moment_that_it_is_stored_as_running() {
        for phase in ["Pending", "Running", "Failed"] {
            let mut story = scaling_in();
            story.reports("a", phase, false);
            story.wait(10);
            story.reports("a", phase, true);
            story.if_unchanged().delete("a");
            assert_eq!(story.broken(), ["hooks"], "{phase}");
        }
    }

    #[test]
    fn a_hook_that_runs_or_failed_or_was_called_off_allows_nothing() {
        for end in [None, Some("Failed"), Some("Inconclusive"), Some("Error")] {
            let mut story = scaling_in();
            story.run("a", "PreDelete", "");
            if let Some(end) = end {
                story.finish("a", "PreDelete", end);
            }
            story.delete("a");
            assert_eq!(story.broken(), ["hooks"], "{end:?}");
        }
        let mut story = scaling_in();
        story.pass("a", "PreDelete", "");
        story.drop_run("a", "PreDelete");
        story.delete("a");
        assert_eq!(story.broken(), ["hooks"]);
    }

    #[test]
    fn a_run_of_another_client_allows_nothing() {
        let mut story = scaling_in();
        story.run_by("user", "a", "PreDelete", "");
        story.finish("a", "PreDelete", "Successful");
        story.delete("a");
        assert_eq!(story.broken(), ["hooks"]);
    }

    #[test]
    fn a_success_of_another_pod_or_point_or_hook_allows_nothing() {
        let mut story = scaling_in();
        story.pass("b", "PreDelete", "");
        story.pass("a", "PreInplace", "");
        story.delete("a");
        assert_eq!(story.broken(), ["hooks"]);
        let mut story = scaling_in();
        story.pass("a", "PreDelete", "");
        let other = json!({"hook": {"templateName": "other"}});
        story.spec("user", json!({"preDeleteUpdateStrategy": other}));
        story.wait(2);
        story.delete("a");
        assert_eq!(story.broken(), ["hooks"]);
    }

    #[test]
    fn a_success_is_good_for_a_minute() {
        let mut story = scaling_in();
        story.pass("a", "PreDelete", "");
        story.wait(59);
        story.delete("a");
        assert_eq!(story.verdict(), []);
        let mut story = scaling_in();
        story.pass("a", "PreDelete", "");
        story.wait(62);
        story.delete("a");
        assert_eq!(story.broken(), ["hooks"]);
    }

    #[test]
    fn a_success_is_as_old_as_the_api_server_has_had_it() {
        let cases = [
            (3_600, 0, vec![]),
            (-3_600, 0, vec![]),
            (3_600, 62, vec!["hooks"]),
        ];
        for (ahead, seconds, broken) in cases {
            let mut story = scaling_in();
            story.run("a", "PreDelete", "");
            story.finish_ahead("a", "PreDelete", ahead);
            story.wait(seconds);
            story.delete("a");
            assert_eq!(story.broken(), broken, "{ahead} s ahead, {seconds} s later");
        }
    }

    #[test]
    fn an_in_place_update_waits_for_pre_inplace_or_else_pre_delete() {
        for (point, label) in [("preInplace", "PreInplace"), ("preDelete", "PreDelete")] {
            let mut story = updating(point);
            story.pass("a", label, "v2");
            story.close_gate("a");
            story.change("a", "v2");
            story.open_gate("a");
            assert_eq!(story.verdict(), [], "{point}");
            let mut story = updating(point);
            story.close_gate("a");
            assert_eq!(story.broken(), ["hooks"], "{point}");
        }
    }

    #[test]
    fn a_success_for_another_revision_allows_nothing() {
        let mut story = updating("preInplace");
        story.pass("a", "PreInplace", "v0");
        story.close_gate("a");
        assert_eq!(story.broken(), ["hooks"]);
    }

    #[test]
    fn a_run_that_another_client_deletes_is_missed_within_a_second() {
        for (seconds, broken) in [(0, vec![]), (2, vec!["hooks"])] {
            let mut story = updating("preInplace");
            story.pass("a", "PreInplace", "v2");
            story.drop_run_by("garbage collector", "a", "PreInplace");
            story.wait(seconds);
            story.close_gate("a");
            assert_eq!(story.broken(), broken, "{seconds} s");
        }
    }

    #[test]
    fn a_change_with_the_gate_open_needs_its_own_hook() {
        let mut story = updating("preInplace");
        story.pass("a", "PreInplace", "v2");
        story.close_gate("a");
        story.change("a", "v2");
        story.open_gate("a");
        story.drop_run("a", "PreInplace");
        story.status(json!({"updateRevision": "v3"}));
        story.wait(2);
        story.change("a", "v3");
        assert_eq!(story.broken(), ["hooks", "gate"]);
    }

    #[test]
    fn a_pod_in_an_ongoing_update_goes_to_a_newer_target_without_a_second_hook() {
        let mut story = updating("preInplace");
        story.pass("a", "PreInplace", "v2");
        story.close_gate("a");
        story.change("a", "v2");
        story.drop_run("a", "PreInplace");
        story.status(json!({"updateRevision": "v3"}));
        story.wait(2);
        story.change("a", "v3");
        story.open_gate("a");
        assert_eq!(story.verdict(), []);
    }

    #[test]
    fn a_hot_patch_needs_no_hook() {
        let mut story = updating("preInplace");
        story.hot_patch("a", "v2");
        assert_eq!(story.verdict(), []);
    }
}

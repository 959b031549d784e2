//! Invariant 1: no pod with a running container is deleted or changed before its hook is Successful.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::guard::needs_no_hook;
use super::sidecars::revisions_of_updated_sets;
use super::start::{Act, Purpose, Start, name};
use super::{Found, wrong_under_all};
use crate::names;
use crate::object::{
    Hook, annotation, arguments, changed_images, has_ended, is_terminating, marks, phase, pod_hook,
    point, revision, text, time, uid,
};
use crate::replay::history::Write;
use crate::replay::workload::Version;
use crate::replay::world::{End, LAG, OngoingUpdate, Run, World};

/// How long a success is valid.
const FRESH: SignedDuration = SignedDuration::from_secs(60);

/// Checks a write by the operator. `world` is the state before it.
pub(crate) fn hooks(world: &World, write: &Write) -> Option<Found> {
    let start = Start::of_any(world, write)?;
    let is_exempt = match start.act {
        Act::HotPatch => true,
        Act::Delete => false,
        Act::CloseGate | Act::Change => {
            start.pod.ongoing_update.is_some() && !begins_another_change(&start, write)
        }
    };
    if is_exempt || start.is_on_idle_pod(write) {
        return None;
    }
    let wrong = |version: &Version| {
        if needs_no_hook(&start, version, write) {
            return None;
        }
        let (point, hook) = required_hook(world, &start, version)?;
        let required = RequiredHook { point, hook, start: &start, version, write };
        let mut runs = world.runs.values();
        let has_passed =
            runs.any(|run| required.is_satisfied_by(run)) || required.is_recorded_on_pod(world);
        (!has_passed).then(|| required.violation(world))
    };
    Some(("hooks", wrong_under_all(start.versions, wrong)?))
}

/// The hook that must be Successful before a pod is deleted or changed, and its point.
fn required_hook<'a>(
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

/// A hook that had to be Successful before a write.
struct RequiredHook<'a> {
    point: &'static str,
    hook: Hook<'a>,
    start: &'a Start<'a>,
    version: &'a Version,
    write: &'a Write,
}

impl RequiredHook<'_> {
    fn is_for_pod_and_point(&self, run: &Run) -> bool {
        let pod_uid = annotation(&run.object, names::RUN_POD_UID);
        pod_uid == Some(uid(&self.start.pod.object)) && point(&run.object) == self.point
    }

    fn is_satisfied_by(&self, run: &Run) -> bool {
        let object = &run.object;
        let existed_for_writer =
            |end: &End| end.at >= self.write.received || end.may_be_unseen_by(self.write);
        // One success covers all containers of an update.
        let continues = self.start.continues(self.write, self.version);
        let existed = run.end.as_ref().is_none_or(existed_for_writer);
        self.is_for_pod_and_point(run)
            && (existed || continues)
            && account_namespace(&run.creator) == account_namespace(&self.write.user)
            && phase(object) == "Successful"
            && run.succeeded.is_some_and(|at| self.is_fresh(at) || continues)
            && annotation(object, names::RUN_WORKLOAD_UID) == Some(self.start.owner)
            && self.is_run_of_hook(run)
            && self.is_right_target(annotation(object, names::RUN_TARGET).unwrap_or_default())
            && self.is_right_change(annotation(object, names::RUN_CHANGES))
    }

    fn is_fresh(&self, succeeded: Timestamp) -> bool {
        succeeded + FRESH + LAG >= self.write.received
    }

    fn is_run_of_hook(&self, run: &Run) -> bool {
        let given = arguments(&run.object, "/spec/args");
        self.is_run_name(name(&run.object)) && self.hook.args.iter().all(|arg| given.contains(arg))
    }

    /// Whether a HookRun of this name can be a run of this hook.
    fn is_run_name(&self, run: &str) -> bool {
        // Names that are too long are truncated.
        run.ends_with(&format!("-{}", self.hook.template)) || run.len() > 200
    }

    /// Whether the pod's annotation, and not a HookRun, shows that the hook passed. The annotation counts only if the
    /// API server refused to create the HookRun that it names, because the namespace is being deleted.
    fn is_recorded_on_pod(&self, world: &World) -> bool {
        let result = annotation(&self.start.pod.object, names::HOOK_RESULT);
        let result: Value = result.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default();
        let finished = time(&result, "/finishedAt");
        let run = text(&result, "/hookRun");
        let refused = world.refused_runs.get(run);
        self.start.act == Act::Delete
            && is_terminating(&self.version.object)
            && self.is_run_name(run)
            && refused.is_some_and(|at| *at <= self.write.received)
            && text(&result, "/phase") == "Successful"
            && finished.is_some_and(|at| self.is_fresh(at))
    }

    /// Whether a success for a change of these containers in place (None: for a deletion) allows this write.
    fn is_right_change(&self, containers: Option<&str>) -> bool {
        let known: Option<Vec<&str>> = containers.map(|it| it.split(',').collect());
        match (self.start.act, known, &self.write.after) {
            (Act::Delete, known, _) => known.is_none(),
            (_, None, _) => false,
            (Act::Change, Some(known), Some(after)) => {
                let changed = changed_images(&self.start.pod.object, after);
                changed.iter().all(|it| known.contains(&it.as_str()))
            }
            _ => true,
        }
    }

    /// Whether a success for this target allows this write.
    fn is_right_target(&self, target: &str) -> bool {
        let update = self.version.update_revision();
        match (self.start.act, &self.write.after) {
            (Act::Delete, _) => {
                let pod_revision = revision(&self.start.pod.object);
                target.is_empty() || target == update || target == pod_revision
            }
            (Act::CloseGate, _) => {
                let (target, sidecars) = split(target);
                let known = [update, self.version.stable_revision(), self.start.pod.revision()];
                let tokens = marks(&self.start.pod.object).into_values();
                let tokens: Vec<String> = tokens.filter_map(|mark| mark.token).collect();
                // A change of sidecars alone keeps the pod's revision.
                let known = if sidecars.is_empty() { &known[..2] } else { &known };
                known.contains(&target)
                    && sidecars.iter().all(|it| tokens.iter().any(|token| token == it))
            }
            (_, Some(after)) => {
                let (target, mut sidecars) = split(target);
                sidecars.sort_unstable();
                let mut changed = revisions_of_updated_sets(&self.start.pod.object, after);
                changed.sort_unstable();
                target == revision(after) && sidecars == changed
            }
            (_, None) => false,
        }
    }

    fn violation(&self, world: &World) -> String {
        let runs = world.runs.values().filter(|run| self.is_for_pod_and_point(run));
        let runs: Vec<String> = runs
            .map(|run| {
                let object = &run.object;
                let target = annotation(object, names::RUN_TARGET).unwrap_or_default();
                let deleted = if run.end.is_some() { ", deleted" } else { "" };
                let (name, phase) = (name(object), phase(object));
                format!("{name} ({phase}, for {target:?}{deleted})")
            })
            .collect();
        let pod = match self.start.pod.is_running() {
            true => "a running pod",
            false => "a pod that may have started in the meantime",
        };
        format!(
            "{} of {pod} without a Successful {} hook {:?}; its runs: {}",
            self.start.act,
            self.point,
            self.hook.template,
            if runs.is_empty() { "none".to_owned() } else { runs.join(", ") },
        )
    }
}

/// Splits a run's target into the revision of the template and the revisions of SidecarSets.
fn split(target: &str) -> (&str, Vec<&str>) {
    let mut names = target.split('+');
    (names.next().unwrap_or_default(), names.collect())
}

/// Whether a write during an update makes a change that the update's hook was not run for. Two writes do: the
/// first change of the update, if it includes containers of SidecarSets; a change of the template's containers, if the
/// changes before it were of SidecarSets' containers alone; and a change of a container that the pod's record of the
/// update does not name.
fn begins_another_change(start: &Start, write: &Write) -> bool {
    let before = &start.pod.object;
    let Some(after) = write.after.as_deref().filter(|_| start.act == Act::Change) else {
        return false;
    };
    if start.pod.ongoing_update == Some(OngoingUpdate::Gate { changed: false }) {
        return !revisions_of_updated_sets(before, after).is_empty();
    }
    let injected = marks(before).into_values().flat_map(|it| it.containers);
    let injected: Vec<String> = injected.collect();
    let are_injected = |changed: &[String]| changed.iter().all(|it| injected.contains(it));
    let (last, changed) = (&start.pod.last_changed, changed_images(before, after));
    let is_other = !last.is_empty() && are_injected(last) && !are_injected(&changed);
    let record = annotation(before, names::RECORD);
    let record: Option<Value> = record.and_then(|it| serde_json::from_str(it).ok());
    let is_unrecorded =
        |record: Value| changed.iter().any(|it| record["containers"].get(it).is_none());
    is_other || record.is_some_and(is_unrecorded)
}

/// The namespace of a service account. All operators of a test have accounts in one namespace.
fn account_namespace(user: &str) -> &str {
    user.rsplit_once(':').map_or(user, |(namespace, _)| namespace)
}

#[cfg(test)]
mod tests;

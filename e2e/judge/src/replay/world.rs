//! The state of a namespace, built by replaying writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::history::{Resource, Write};
use super::workload::Version;
use crate::evidence::Event;
use crate::object::{
    changed_images, containers, containers_are_ready, controller, gate_is_closed, has_ended,
    has_gate, is_running, is_terminating, phase, ready_since, restarts, revision, uid,
};

/// The maximum age of the state on which a write may be based. Later changes may have happened while the
/// request was in flight.
pub(crate) const LAG: SignedDuration = SignedDuration::from_secs(1);

/// A namespace at one point in time.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    /// Workloads by uid.
    pub(crate) workloads: BTreeMap<String, Workload>,
    /// Pods by name.
    pub(crate) pods: BTreeMap<String, Pod>,
    /// Pods that were deleted.
    deleted: Vec<Pod>,
    /// The templates of revisions, by the name of their ControllerRevision.
    pub(crate) templates: BTreeMap<String, Value>,
    /// HookRuns by uid, deleted ones included.
    pub(crate) runs: BTreeMap<String, Run>,
    /// The names of HookRuns that the operator could not create because the namespace is being deleted, each with the
    /// time of the refusal. These requests are collected before the replay, because they change nothing.
    pub(crate) refused_runs: BTreeMap<String, Timestamp>,
}

/// A workload, with all its versions so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workload {
    /// Oldest first.
    pub(crate) versions: Vec<Version>,
    /// When it was deleted.
    pub(crate) deleted: Option<Timestamp>,
}

/// A pod.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    /// The newest version.
    pub(crate) object: Arc<Value>,
    /// When it was created.
    pub(crate) created: Timestamp,
    /// When a container started running; None while none is running.
    pub(crate) running_since: Option<Timestamp>,
    /// The periods in which it was ready: start and end of each.
    pub(crate) ready: Vec<(Timestamp, Option<Timestamp>)>,
    /// When a container became unready; None while all are ready.
    pub(crate) unready_since: Option<Timestamp>,
    /// The update in progress.
    pub(crate) ongoing_update: Option<OngoingUpdate>,
    /// The containers whose images were changed last.
    pub(crate) last_changed: Vec<String>,
    /// The write that made it inactive.
    pub(crate) end: Option<End>,
    /// The last write that made it an orphan, and the workload that had controlled it.
    orphaned: Option<(String, End)>,
}

/// The end of an object or of a workload's control over a pod. An object ends with its deletion, and a pod also with
/// the phase Failed or Succeeded.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// The earliest possible time.
    pub(crate) at: Timestamp,
    /// The user whose write caused it.
    pub(crate) by: String,
}

impl End {
    fn of(write: &Write) -> Self {
        End { at: write.received, by: write.user.clone() }
    }

    /// Whether the client that made a write may not have observed this end yet: another client caused it, at most
    /// [`LAG`] earlier.
    pub(crate) fn may_be_unseen_by(&self, write: &Write) -> bool {
        self.by != write.user && self.at + LAG >= write.received
    }
}

/// An update of a pod in progress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OngoingUpdate {
    /// The gate is closed. The update ends when it opens.
    Gate {
        /// Whether the pod has been changed.
        changed: bool,
    },
    /// The pod has no gate. The update ends when a container has been restarted and the pod is ready.
    Restart {
        /// The number of restarts before the update.
        from: i64,
    },
}

/// A HookRun.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The newest version.
    pub(crate) object: Arc<Value>,
    /// When it was stored as Successful. The time in its status comes from the operator's clock, which may be
    /// wrong.
    pub(crate) succeeded: Option<Timestamp>,
    /// The user who created it.
    pub(crate) creator: String,
    /// Its deletion.
    pub(crate) end: Option<End>,
}

impl World {
    /// An empty namespace. `requests` are all requests that the operator will make in it: the refused HookRuns are
    /// collected from them.
    pub(crate) fn with_refused_runs<'a>(requests: impl Iterator<Item = &'a Event>) -> Self {
        let mut world = World::default();
        for event in requests {
            if let Some(run) = event.run_refused_in_terminating_namespace() {
                let first = world.refused_runs.entry(run.to_owned());
                let first = first.or_insert(event.done);
                *first = event.done.min(*first);
            }
        }
        world
    }

    /// Applies a write.
    pub(crate) fn apply(&mut self, write: &Write) {
        match write.resource {
            Resource::Workload => self.apply_workload(write),
            Resource::Pod => self.apply_pod(write),
            Resource::HookRun => self.apply_run(write),
            Resource::Other(_) => self.apply_revision(write),
        }
    }

    /// Templates are kept when their ControllerRevision is deleted: pods may still have the revision.
    fn apply_revision(&mut self, write: &Write) {
        let revision = write.after.as_deref();
        let revision = revision.filter(|_| write.plural == "controllerrevisions");
        if let Some(template) = revision.and_then(|it| it.pointer("/data/spec/template")) {
            let name = write.name.clone();
            self.templates.insert(name, template.clone());
        }
    }

    fn apply_workload(&mut self, write: &Write) {
        let Some(object) = &write.after else {
            if let Some(before) = &write.before {
                let workload = self.workloads.entry(uid(before).to_owned()).or_default();
                workload.deleted = Some(write.done);
            }
            return;
        };
        let workload = self.workloads.entry(uid(object).to_owned()).or_default();
        let mut version = Version { at: write.done, object: object.clone(), replicas_at_step: 0 };
        let position = |v: &Version| (v.update_revision().to_owned(), v.step_index());
        // During a user's pause no step is entered.
        let is_held = |v: &Version| v.is_paused() && !v.has_pause_annotation();
        version.replicas_at_step = match workload.versions.last() {
            // A step that was entered without pods records its share when there are some.
            Some(last)
                if position(last) == position(&version)
                    && !is_held(last)
                    && last.replicas_at_step > 0 =>
            {
                last.replicas_at_step
            }
            _ => version.replicas(),
        };
        workload.versions.push(version);
    }

    fn apply_pod(&mut self, write: &Write) {
        let old = self.pods.remove(&write.name);
        let Some(object) = &write.after else {
            let ended = old.map(|mut pod| {
                pod.end.get_or_insert_with(|| End::of(write));
                pod
            });
            self.deleted.extend(ended);
            return;
        };
        let same = old.filter(|pod| uid(&pod.object) == uid(object));
        let mut pod = same.unwrap_or_else(|| Pod::new(object.clone(), write.received));
        pod.apply(object.clone(), write);
        self.pods.insert(write.name.clone(), pod);
    }

    fn apply_run(&mut self, write: &Write) {
        let Some(object) = write.after.as_ref().or(write.before.as_ref()) else {
            return;
        };
        let is_deleted = write.after.is_none() || is_terminating(object);
        let known = self.runs.get(uid(object));
        let succeeded = known.and_then(|run| run.succeeded);
        let end = known.and_then(|run| run.end.clone());
        let run = Run {
            object: object.clone(),
            succeeded: succeeded.or_else(|| (phase(object) == "Successful").then_some(write.done)),
            creator: known.map_or_else(|| write.user.clone(), |run| run.creator.clone()),
            end: end.or_else(|| is_deleted.then(|| End::of(write))),
        };
        self.runs.insert(uid(object).to_owned(), run);
    }

    /// The workload that controls an object.
    pub(crate) fn workload_of(&self, object: &Value) -> Option<(&str, &Workload)> {
        let (uid, workload) = self.workloads.get_key_value(controller(object)?)?;
        Some((uid.as_str(), workload))
    }

    /// The pods of a workload.
    pub(crate) fn pods_of(&self, workload: &str) -> impl Iterator<Item = &Pod> {
        self.pods.values().filter(move |pod| controller(&pod.object) == Some(workload))
    }

    /// The pods of a workload that are active in a writer's view: those that are active, and those of which the writer
    /// may not have observed that they have ended or are orphans now.
    pub(crate) fn pods_seen_by<'a>(
        &'a self,
        write: &'a Write,
        workload: &'a str,
    ) -> impl Iterator<Item = &'a Pod> {
        let may_seem_owned = move |pod: &&Pod| match &pod.orphaned {
            Some((owner, end)) if owner == workload && end.may_be_unseen_by(write) => true,
            _ => controller(&pod.object) == Some(workload),
        };
        let may_seem_active = |pod: &&Pod| match &pod.end {
            None => true,
            Some(end) => end.may_be_unseen_by(write),
        };
        let pods = self.pods.values().chain(&self.deleted);
        pods.filter(may_seem_owned).filter(may_seem_active)
    }
}

impl Workload {
    /// The versions on which a request that was received at this time may be based. The client may have read the
    /// workload as much as [`LAG`] earlier.
    pub(crate) fn seen_at(&self, received: Timestamp) -> &[Version] {
        let oldest = received - LAG;
        let known = self.versions.iter().rposition(|v| v.at <= oldest);
        &self.versions[known.unwrap_or(0)..]
    }
}

impl Pod {
    fn new(object: Arc<Value>, created: Timestamp) -> Self {
        Pod {
            object,
            created,
            running_since: None,
            ready: Vec::new(),
            unready_since: None,
            ongoing_update: None,
            last_changed: Vec::new(),
            end: None,
            orphaned: None,
        }
    }

    fn apply(&mut self, object: Arc<Value>, write: &Write) {
        let at = write.done;
        self.running_since = is_running(&object).then(|| self.running_since.unwrap_or(at));
        let since = ready_since(&object).filter(|_| !is_terminating(&object));
        let is_ready = self.ready.last().is_some_and(|(_, until)| until.is_none());
        match (since, is_ready) {
            (Some(since), false) => self.ready.push((since, None)),
            (None, true) => {
                if let Some((_, until)) = self.ready.last_mut() {
                    *until = Some(at);
                }
            }
            _ => {}
        }
        let unready = (!containers_are_ready(&object)).then_some(at);
        self.unready_since = unready.map(|now| self.unready_since.unwrap_or(now));
        self.ongoing_update = self.update_after(&object);
        let changed = changed_images(&self.object, &object);
        if !changed.is_empty() {
            self.last_changed = changed;
        }
        if let Some(owner) = controller(&self.object).filter(|_| controller(&object).is_none()) {
            self.orphaned = Some((owner.to_owned(), End::of(write)));
        }
        self.object = object;
        if self.end.is_none() && !self.is_active() {
            self.end = Some(End::of(write));
        }
    }

    /// The update that is in progress once the pod has changed to `new`.
    fn update_after(&self, new: &Value) -> Option<OngoingUpdate> {
        let changes =
            containers(new) != containers(&self.object) || revision(new) != self.revision();
        if has_gate(new) {
            let had_changed = self.ongoing_update == Some(OngoingUpdate::Gate { changed: true });
            let changed = changes || had_changed;
            return gate_is_closed(new).then_some(OngoingUpdate::Gate { changed });
        }
        match self.ongoing_update {
            _ if changes => Some(OngoingUpdate::Restart { from: restarts(&self.object) }),
            Some(OngoingUpdate::Restart { from })
                if restarts(new) > from && ready_since(new).is_some() =>
            {
                None
            }
            other => other,
        }
    }

    /// Whether a container is running.
    pub(crate) fn is_running(&self) -> bool {
        is_running(&self.object)
    }

    /// Its revision.
    pub(crate) fn revision(&self) -> &str {
        revision(&self.object)
    }

    /// Whether it is active: neither ended nor terminating.
    pub(crate) fn is_active(&self) -> bool {
        !is_terminating(&self.object) && !has_ended(&self.object)
    }

    /// Whether the pod was available at this time, or at some time within [`LAG`] before.
    pub(crate) fn may_be_available(&self, at: Timestamp, min_ready: SignedDuration) -> bool {
        self.ready.iter().any(|(from, until)| {
            let from = *from + min_ready;
            from <= at && until.is_none_or(|until| until >= at - LAG && until > from)
        })
    }

    /// Whether the pod was available at this time and throughout [`LAG`] before.
    pub(crate) fn is_surely_available(&self, at: Timestamp, min_ready: SignedDuration) -> bool {
        // A kubelet truncates times to seconds, so the real time may be up to a second later.
        let needed = min_ready + LAG + SignedDuration::from_secs(1);
        let last = self.ready.last();
        last.is_some_and(|(from, until)| *from + needed <= at && until.is_none())
    }
}

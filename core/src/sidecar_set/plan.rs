//! The plan for a SidecarSet: its revision, its pods, its status.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::allot::{Allotment, MarkWrite, allot};
use super::history::{expired, history, named_by_set};
use super::matched::MatchedPod;
use super::revision::SetRevision;
use super::set::Sidecars;
use super::status::{
    REVISION_REFUSED, new_problem, show_refused_clean_up, sidecar_set_status, without_revision,
};
use super::webhook::OtherPods;
use crate::api::{SidecarSet, SidecarSetStatus};
use crate::observed::time::earlier;
use crate::observed::{InPlaceRecord, Pod, PodRef};
use crate::write::{Event, NewImage, Plan, Refused, SidecarPatch, Write};

/// What is observed about a SidecarSet at one moment.
pub struct SetWorld<'w> {
    /// The time.
    pub now: Timestamp,
    /// The set, parsed, with its revisions; None if it selects no pods.
    pub sidecars: Option<&'w Sidecars>,
    /// The set's ControllerRevisions.
    pub revisions: &'w [Arc<SetRevision>],
    /// Those that have lost their set.
    pub orphans: &'w [Arc<SetRevision>],
    /// The names of all others.
    pub taken: &'w BTreeSet<String>,
    /// The namespace of revisions.
    pub revision_namespace: &'w str,
    /// The pods that the set selects.
    pub pods: &'w [MatchedPod],
    /// Pods of other controllers.
    pub others: OtherPods<'w>,
    /// Whether the operator may publish events of cluster-scoped objects.
    pub publishes_events: bool,
    /// The revisions that marks of pods name. All pods are read for it, so it is called only if revisions are to be
    /// deleted.
    pub named: &'w dyn Fn() -> HashSet<String>,
    /// The refusal of its newest revision.
    pub refused_revision: Option<&'w Refused>,
    /// The refusal to delete revisions that are no longer needed.
    pub refused_clean_up: Option<&'w Refused>,
    /// The record of a change of the set's containers in a pod of another controller.
    pub record: fn(&Pod, &Sidecars, Timestamp) -> InPlaceRecord,
}

/// Plans the next writes for a SidecarSet: first its revision, which the status and the marks of pods name; then pods and
/// status; and once these are settled, revisions that nothing names are deleted.
pub fn plan(set: &SidecarSet, world: &SetWorld) -> Plan<SidecarSetStatus> {
    let old = set.status.as_ref();
    let history = history(set, world.revisions, world.orphans, world.taken);
    if history.collisions != old.map_or(0, |status| status.collision_count) {
        // The names of new revisions depend on this number.
        let status = SidecarSetStatus {
            collision_count: history.collisions,
            ..old.cloned().unwrap_or_default()
        };
        return Plan { status: Some(status), status_first: true, ..Plan::nothing() };
    }
    if let Some(write) = history.write {
        return match world.refused_revision {
            Some(refused) => with_refused_revision(set, write, refused, world),
            None => Plan { writes: vec![write], ..Plan::nothing() },
        };
    }
    let allotment = world.sidecars.map(|sidecars| allot(sidecars, world.pods, world.now));
    let Allotment { writes, progress, wake } = allotment.unwrap_or_default();
    let (mut status, status_wake) = sidecar_set_status(
        world.sidecars,
        world.pods,
        &progress,
        &world.others,
        set.metadata.generation.unwrap_or_default(),
        old,
        world.now,
    );
    status.revision_namespace = world.revision_namespace.to_owned();
    let is_unused =
        || !expired(set, world.revisions, &named_by_set(set, &history.newest).collect()).is_empty();
    if let Some(refused) = world.refused_clean_up.filter(|_| is_unused()) {
        show_refused_clean_up(&mut status, &refused.message);
    }
    let sidecars = world.sidecars.into_iter();
    let patches = sidecars.flat_map(|set| writes.iter().map(|it| patch(set, it, world)));
    let mut writes: Vec<Write> = patches.map(Write::patch_sidecars).collect();
    let is_changed = old != Some(&status);
    if !is_changed {
        writes.extend(unused_revisions(set, &history.newest, world));
    }
    let problem = new_problem(old, &status).filter(|_| world.publishes_events);
    let events = problem.map(|it| Event {
        warning: true,
        reason: it.reason.clone(),
        message: it.message.clone(),
    });
    Plan {
        writes,
        events: events.into_iter().collect(),
        status: is_changed.then_some(status),
        status_first: false,
        wake: earlier(wake, status_wake),
    }
}

/// The plan while the newest revision is refused: the status says so, and the write is attempted again later.
fn with_refused_revision(
    set: &SidecarSet,
    write: Write,
    refused: &Refused,
    world: &SetWorld,
) -> Plan<SidecarSetStatus> {
    let old = set.status.as_ref();
    let generation = set.metadata.generation.unwrap_or_default();
    let (status, wake) = without_revision(old, &refused.message, generation, world.now);
    let held_until = refused.held_until(world.now);
    let is_changed = old != Some(&status);
    let shows =
        |old: &SidecarSetStatus| old.conditions.iter().any(|it| it.reason == REVISION_REFUSED);
    let is_new = world.publishes_events && !old.is_some_and(shows);
    let event = Event {
        warning: true,
        reason: REVISION_REFUSED.to_owned(),
        message: refused.message.clone(),
    };
    Plan {
        writes: held_until.is_none().then_some(write).into_iter().collect(),
        events: is_new.then_some(event).into_iter().collect(),
        status: is_changed.then_some(status),
        status_first: true,
        wake: earlier(held_until, wake),
    }
}

/// The patch that gives a pod its new mark and, if no workload of ours does that, its new images.
fn patch(set: &Sidecars, write: &MarkWrite, world: &SetWorld) -> SidecarPatch {
    let MatchedPod { namespace, name, uid, version, running, .. } = write.pod;
    let running = running.as_deref().filter(|_| write.updates);
    let pod = PodRef {
        namespace: namespace.clone(),
        name: name.clone(),
        uid: uid.clone(),
        version: running.map(|_| *version),
        allowed_until: None,
    };
    let images = || {
        let images = set.images().map(|it| NewImage {
            container: it.container.to_owned(),
            image: it.image.to_owned(),
            native: it.native,
        });
        images.collect()
    };
    SidecarPatch {
        pod,
        set: set.name.clone(),
        from: write.from.as_read(),
        to: write.to.text(),
        images: running.map(|pod| (images(), (world.record)(pod, set, world.now))),
    }
}

/// Deletes the oldest revisions if there are more than the history limit. Those that the set or a pod names are kept and
/// do not count.
fn unused_revisions(set: &SidecarSet, newest: &str, world: &SetWorld) -> Vec<Write> {
    let mut named: HashSet<String> = named_by_set(set, newest).collect();
    if expired(set, world.revisions, &named).is_empty() {
        return Vec::new();
    }
    named.extend((world.named)());
    let unused = expired(set, world.revisions, &named).into_iter();
    unused.map(|it| Write::delete_revision(it.name.clone(), it.uid.clone())).collect()
}

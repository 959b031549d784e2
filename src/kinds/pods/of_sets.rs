//! What SidecarSets need to know about pods.

use std::borrow::Cow;

use jiff::Timestamp;

use super::{CachedPod, MinimalPod};
use crate::runtime::store::Cached;
use gamekeeper_core::observed::{Container, Pod, SidecarMark};
use gamekeeper_core::sidecar_set::{Changing, MatchedPod, Sidecars};
use gamekeeper_core::workload::{changing, has_sidecars, progress_in_other_pod};

/// What the status of a SidecarSet depends on in one of its pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SidecarPod<'a> {
    mark: Option<&'a SidecarMark>,
    selected: bool,
    /// Whether the set's update strategy chooses the pod.
    chosen: bool,
    /// The uid of the pod's workload. The workload decides whether the pod is counted, and when it is updated.
    workload: Option<&'a str>,
    ready: bool,
    /// The progress of an update that the pod's workload makes.
    changing: Changing,
    /// What decides the progress of an update that the set makes.
    running: Option<Running<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Running<'a> {
    generations: [i64; 2],
    node: Option<&'a str>,
    containers: &'a [Container],
}

impl CachedPod {
    /// What a set's status depends on in this pod; None if the pod does not count.
    pub fn for_sidecar_set(&self, set: &Sidecars) -> Option<SidecarPod<'_>> {
        let (counts, labels, marks, ready, changing, running) = match self {
            CachedPod::Own(pod) => (
                !pod.terminating && !pod.ended(),
                Cow::Borrowed(&*pod.labels),
                Some(&pod.sidecars),
                pod.ready_since.is_some(),
                changing(pod, &set.name),
                None,
            ),
            CachedPod::Orphan(pod) | CachedPod::Foreign(pod) => (
                !pod.terminating && !pod.ended(),
                Cow::Owned(pod.labels()),
                pod.sidecars(),
                pod.ready,
                Changing::No,
                pod.running().map(|it| Running::of(it)),
            ),
        };
        let selected = set.reach.selects(&labels);
        let mark = marks.and_then(|marks| marks.get(&set.name));
        // A token that is left on a pod must be withdrawn.
        let has_token = mark.is_some_and(|mark| mark.token.is_some());
        (counts && (selected || has_token)).then_some(SidecarPod {
            mark,
            selected,
            chosen: set.chooses(&labels),
            workload: self.own().and_then(|pod| pod.controller.as_deref()),
            ready,
            changing,
            running,
        })
    }

    /// The pod as the set's planner reads it; None if the pod does not count. If `all` is set, pods outside our
    /// workloads count, too.
    pub fn matched(&self, set: &Sidecars, all: bool, now: Timestamp) -> Option<MatchedPod> {
        let SidecarPod { selected, ready, changing, .. } = self.for_sidecar_set(set)?;
        let head = self.head();
        let matched = MatchedPod {
            namespace: head.namespace.to_owned(),
            name: head.name.to_owned(),
            uid: head.uid.to_owned(),
            version: head.version,
            ready,
            own: self.has_workload(),
            changing,
            deselected: !selected,
            ..MatchedPod::default()
        };
        match self {
            CachedPod::Own(pod) => Some(MatchedPod {
                labels: (*pod.labels).clone(),
                marks: pod.sidecars.clone(),
                ..matched
            }),
            CachedPod::Orphan(pod) | CachedPod::Foreign(pod) if all => {
                pod.matched(set, matched, now)
            }
            _ => None,
        }
    }
}

impl<'a> Running<'a> {
    fn of(pod: &'a Pod) -> Self {
        Self {
            generations: [pod.generation, pod.observed_generation],
            node: pod.node.as_deref(),
            containers: &pod.containers,
        }
    }
}

impl MinimalPod {
    /// The pod as the set's planner reads it. A mark that names containers that the pod does not have proves nothing.
    fn matched(&self, set: &Sidecars, pod: MatchedPod, now: Timestamp) -> Option<MatchedPod> {
        let mut marks = self.sidecars().cloned().unwrap_or_default();
        let (changing, look_again) = match self.running() {
            Some(running) => {
                let mark = marks.get(&set.name);
                let can_change = mark.is_some_and(|mark| mark.shape == set.shape);
                if can_change && !has_sidecars(running, set) {
                    marks.remove(&set.name);
                }
                progress_in_other_pod(running, &set.name, now)
            }
            // The pod's namespace was labeled just now, and pods are being listed again.
            None if self.annotated.as_ref().is_some_and(|it| it.is_injected()) => return None,
            None => (Changing::No, None),
        };
        Some(MatchedPod {
            labels: self.labels(),
            marks,
            running: self.running().cloned().filter(|_| !pod.own),
            changing,
            look_again,
            ..pod
        })
    }
}

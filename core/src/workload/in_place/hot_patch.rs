//! Hot patches: a new image without a restart, on kubelets that support it.
//!
//! Other kubelets restart the container, which ends a match. Nodes may differ, so a pod on one node proves nothing about
//! another node: on each node, one pod is patched first, and no two such pods are patched at the same time. Once a
//! patch has restarted a container, no other pod is patched.
//!
//! Whether a patch restarted anything is decided once for each pod, when its status shows the new image, and is then
//! recorded (`done`), so that a crash later on is not mistaken for a restart by the patch.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};

use crate::api::Reason;
use crate::guard::may_have_players;
use crate::observed::{Container, ContainerChange, InPlaceRecord, Pod, PodRef, RevisionName};
use crate::workload::decision::{Blocked, Decided, Decision};
use crate::workload::in_place::same_image;
use crate::write::Write;

/// What the pods of a revision show about hot patches.
#[derive(Debug, Default)]
pub(crate) struct Proof<'a> {
    /// A pod of which a container was restarted.
    restarted: Option<&'a Pod>,
    /// Pods that do not report the new image yet.
    pending: Vec<&'a Pod>,
    /// Nodes on which a new image runs in the same container.
    nodes: HashSet<&'a str>,
    /// Pods whose patch was just observed to have worked.
    shown: Vec<&'a Pod>,
    /// Whether this plan patches the first pod of a node.
    begun: bool,
}

/// What the status of a pod shows about its hot patch.
enum Shown {
    /// The new image runs. If `proves`, it runs in the container that ran before.
    Image { proves: bool },
    /// The new image is awaited.
    Nothing,
    /// A container that ran before the patch was restarted.
    Restart,
}

/// Whether this pod's status has yet to show its hot patch.
pub(crate) fn is_in_progress(pod: &Pod) -> bool {
    record(pod).is_some() && matches!(shown(pod), Shown::Nothing)
}

impl<'a> Proof<'a> {
    /// What these pods show about hot patches to this revision.
    pub(crate) fn of(pods: &[&'a Pod], revision: RevisionName) -> Self {
        let mut proof = Self::default();
        let patched = |pod: &&Pod| pod.revision() == revision && record(pod).is_some();
        for pod in pods.iter().copied().filter(patched) {
            let is_done = record(pod).is_some_and(|record| record.done);
            match shown(pod) {
                Shown::Restart if !is_done => {
                    proof.restarted.get_or_insert(pod);
                }
                _ if pod.terminating => {}
                Shown::Nothing if !is_done => proof.pending.push(pod),
                Shown::Image { proves } if !is_done => {
                    proof.shown.push(pod);
                    proof.nodes.extend(pod.node.as_deref().filter(|_| proves));
                }
                _ => {
                    let is_proof =
                        record(pod).is_some_and(|it| it.containers.values().any(|it| had_run(it)));
                    proof.nodes.extend(pod.node.as_deref().filter(|_| is_proof));
                }
            }
        }
        proof
    }

    /// Why no pod is patched now; None if this one may be.
    pub(crate) fn refusal(&self, pod: &Pod, now: Timestamp) -> Option<Decision> {
        if let Some(blocked) = self.restart() {
            return Some(Decision::Blocked(blocked));
        }
        if !may_have_players(pod) || self.is_proven(pod) {
            return None;
        }
        if self.begun {
            return Some(Decision::Wait);
        }
        let first = self.pending.iter().find(|pod| !self.is_proven(pod));
        first.map(|first| overdue(first, now))
    }

    /// This pod is patched.
    pub(crate) fn begin(&mut self, pod: &Pod) {
        self.begun |= may_have_players(pod) && !self.is_proven(pod);
    }

    fn is_proven(&self, pod: &Pod) -> bool {
        pod.node.as_deref().is_some_and(|it| self.nodes.contains(it))
    }

    /// What users are told about patches that were made, even if there is no other pod to patch. Records which ones
    /// have worked. A restart by a revert needs no answer: it was the revert that users were told to make.
    pub(crate) fn report(&self, now: Timestamp, is_revert: bool) -> Decided {
        let worked = self.shown.iter().filter_map(|pod| {
            // A newer patch has a newer record.
            Some(Decision::Do(Write::finish_in_place(PodRef::unchanged(pod), record(pod)?)))
        });
        let restart = self.restart().filter(|_| !is_revert);
        let restart = restart.map(Decision::Blocked);
        let awaited = self.pending.iter().map(|pod| overdue(pod, now));
        restart.into_iter().chain(worked).chain(awaited).collect()
    }

    fn restart(&self) -> Option<Blocked> {
        let pod = self.restarted?;
        let node = pod.node.as_deref().unwrap_or("(none)");
        Some(Blocked {
            reason: Reason::HotPatchNotSupported,
            message: format!(
                "the hot patch restarted a container of pod {}, so the kubelet of node {node} cannot hot-patch without a \
                 restart, and no other pod is patched; revert the change, or use updateStrategy.type: InplaceUpdate",
                pod.name
            ),
        })
    }
}

/// How long a hot patch may take, including the pull of its image, before a condition reports that it is overdue.
const OVERDUE_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// What to do about a hot patch that others wait for. A condition reports it once it is overdue.
fn overdue(pod: &Pod, now: Timestamp) -> Decision {
    let Some(patched_at) = pod.record.as_ref().map(|record| record.patched_at) else {
        return Decision::Wait;
    };
    let due = patched_at.checked_add(OVERDUE_AFTER).unwrap_or(patched_at);
    if due > now {
        return Decision::Until(due);
    }
    Decision::Blocked(Blocked {
        reason: Reason::HotPatchNotShown,
        message: format!(
            "pod {} was hot-patched at {patched_at} and does not report the new image yet; no pod is patched on a node \
             where no patch has worked before it does; check that its node can pull the image and that its kubelet \
             supports hot patches",
            pod.name
        ),
    })
}

/// The record of the pod's hot patch, if that was its last change.
fn record(pod: &Pod) -> Option<&InPlaceRecord> {
    let record = pod.record.as_deref()?;
    (record.hot && record.revision == pod.revision().as_str()).then_some(record)
}

/// What the status of a hot-patched pod shows.
fn shown(pod: &Pod) -> Shown {
    if changes(pod).any(|(container, change)| is_restarted(container, change)) {
        return Shown::Restart;
    }
    let is_shown = changes(pod).all(|(container, change)| shows(container, change));
    if !is_shown || has_outdated_status(pod) {
        return Shown::Nothing;
    }
    let proves = changes(pod).any(|(_, change)| had_run(change));
    Shown::Image { proves }
}

fn changes(pod: &Pod) -> impl Iterator<Item = (&Container, &ContainerChange)> {
    let record = record(pod);
    pod.containers.iter().filter_map(move |container| {
        let change = record?.containers.get(&container.name)?;
        Some((container, change.as_ref()))
    })
}

/// Whether a container ran before the patch. If it did not, the patch restarts nothing, and proves nothing.
fn had_run(change: &ContainerChange) -> bool {
    !change.from_container_id.is_empty()
}

fn has_outdated_status(pod: &Pod) -> bool {
    changes(pod).any(|(_, change)| had_run(change))
        && pod.observed_generation != 0
        && pod.observed_generation != pod.generation
}

/// Whether a container runs its new image; it need not, if it did not run before.
fn shows(container: &Container, change: &ContainerChange) -> bool {
    let mut status = container.status.iter();
    !had_run(change) || status.any(|status| same_image(&container.image, status))
}

fn is_restarted(container: &Container, change: &ContainerChange) -> bool {
    container.status.as_ref().is_some_and(|status| {
        let has_another_id =
            !status.container_id.is_empty() && status.container_id != change.from_container_id;
        had_run(change) && (status.restart_count > change.from_restart_count || has_another_id)
    })
}

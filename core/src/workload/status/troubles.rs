//! What is wrong with single pods, as far as it is worth telling: part of the causes.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{Actor, Cause};
use crate::guard::{InPlaceState, in_place_state};
use crate::observed::time::{earlier, rounded_down};
use crate::observed::{Pod, RevisionName, Trouble, TroubleKind};
use crate::workload::in_place::{assumed_later, is_at};
use crate::workload::spec::Workload;
use crate::workload::status::causes::{add_pod, cause};
use crate::workload::update::Scene;
use crate::workload::world::World;

/// What is wrong with the pods of a workload, as far as it is worth telling now.
pub(crate) struct Troubles<'a> {
    now: Timestamp,
    update: RevisionName<'a>,
    /// Those that are told, in the order of their time.
    shown: Vec<(&'a Pod, Cow<'a, Trouble>)>,
    /// When another one is told, or one is over.
    changes_at: Option<Timestamp>,
}

impl<'a> Troubles<'a> {
    /// The troubles of all pods.
    pub(crate) fn of(scene: &Scene<'a>) -> Self {
        let now = scene.world.now;
        let pods = scene.own.iter().copied();
        let all = pods.filter_map(|pod| Some((pod, trouble_of(pod, scene.world)?)));
        let mut shown: Vec<_> = all.collect();
        let changes_at = shown.iter().filter_map(|(_, trouble)| trouble.changes_at(now)).min();
        shown.retain(|(_, trouble)| trouble.is_shown(now));
        shown.sort_by_key(|(pod, trouble)| (trouble.since, &pod.name));
        Self { now, update: scene.revisions.update.name(), shown, changes_at }
    }

    /// When the list, or what is overdue, changes although nothing happens.
    pub(crate) fn changes_at(&self, workload: &Workload) -> Option<Timestamp> {
        let due = self.starting().filter_map(|(_, trouble)| due(workload, trouble));
        earlier(self.changes_at, due.filter(|at| *at > self.now).min())
    }

    /// The troubles of pods that the rollout waits for. Those at other revisions are still to be replaced.
    fn starting(&self) -> impl Iterator<Item = (&'a Pod, &Trouble)> {
        let shown = self.shown.iter().map(|(pod, trouble)| (*pod, trouble.as_ref()));
        shown.filter(|(pod, _)| !pod.terminating && is_at(pod, self.update))
    }

    /// The trouble that explains best why nothing moves: that of the pod that has had it longest, but a pod that cannot
    /// become ready comes before one that only takes its time.
    pub(crate) fn most_urgent(&self) -> Option<String> {
        let first = self.shown.iter().min_by_key(|(_, trouble)| urgency(&trouble.kind));
        first.map(|(pod, trouble)| trouble.kind.sentence(&pod.name))
    }

    /// Why the rollout has failed, if a pod is not ready for longer than progressDeadlineSeconds.
    pub(crate) fn overdue(&self, workload: &Workload) -> Option<String> {
        let is_overdue = |(_, trouble): &(&Pod, &Trouble)| {
            due(workload, trouble).is_some_and(|due| due <= self.now)
        };
        let (pod, trouble) = self.starting().find(is_overdue)?;
        let seconds = workload.progress_deadline.as_secs();
        Some(format!(
            "pod {} has not become available within {seconds} s (spec.progressDeadlineSeconds): {}",
            pod.name,
            trouble.kind.sentence(&pod.name)
        ))
    }

    /// One cause for each reason.
    pub(crate) fn causes(&self, workload: &Workload) -> Vec<Cause> {
        let mut causes: Vec<Cause> = Vec::new();
        for (pod, trouble) in &self.shown {
            let reason = trouble.kind.reason().to_string();
            if let Some(cause) = causes.iter_mut().find(|it| it.reason == reason) {
                add_pod(cause, &pod.name);
                continue;
            }
            let due = due(workload, trouble).filter(|_| is_at(pod, self.update));
            let is_overdue = due.is_some_and(|due| due <= self.now);
            let mut cause = Cause {
                container: container(&trouble.kind).to_owned(),
                node: node(&trouble.kind).to_owned(),
                until: trouble.over_at.map(|at| Time(rounded_down(at))),
                ..cause(
                    trouble.kind.reason(),
                    trouble.kind.sentence(&pod.name),
                    if is_overdue { Actor::User } else { actor(&trouble.kind) },
                    trouble.since,
                )
            };
            add_pod(&mut cause, &pod.name);
            causes.push(cause);
        }
        causes
    }
}

/// What is wrong with a pod. Its status shows nothing of a node that does not respond: no kubelet changes it.
fn trouble_of<'a>(pod: &'a Pod, world: &World) -> Option<Cow<'a, Trouble>> {
    let is_up = pod.terminating || pod.ready_since.is_some();
    let node = pod.node.as_ref().filter(|_| !is_up);
    let lost = node.and_then(|it| Some((it, world.lost_nodes.get(it)?)));
    match lost.filter(|(_, lost)| lost.unreachable) {
        Some((node, lost)) => Some(Cow::Owned(Trouble {
            kind: TroubleKind::NodeUnreachable(node.clone()),
            since: lost.since.unwrap_or(world.now),
            over_at: None,
        })),
        None => {
            let shown = pod.trouble.as_deref().map(Cow::Borrowed);
            shown.or_else(|| image_not_shown(pod, world.now).map(Cow::Owned))
        }
    }
}

/// A container that was restarted for an update in place, which counts as complete only after a while, because what the
/// node reports does not show that the container runs the new image.
fn image_not_shown(pod: &Pod, now: Timestamp) -> Option<Trouble> {
    let InPlaceState::Patched(begun) = in_place_state(pod) else {
        return None;
    };
    let (container, at) = assumed_later(pod, begun.record(), now)?;
    let kind = TroubleKind::ImageNotShown {
        container: container.name.clone(),
        image: container.image.clone(),
        shown: container.status.as_ref()?.image.clone(),
    };
    Some(Trouble { kind, since: begun.record().patched_at, over_at: Some(at) })
}

/// When a pod with this trouble has had it for progressDeadlineSeconds. An update that counts as complete after a while
/// does not fail a rollout.
fn due(workload: &Workload, trouble: &Trouble) -> Option<Timestamp> {
    let fails = !matches!(trouble.kind, TroubleKind::ImageNotShown { .. });
    let due = trouble.since.checked_add(workload.progress_deadline).ok();
    due.filter(|_| fails)
}

/// Smaller for what ends without anyone acting least likely.
fn urgency(kind: &TroubleKind) -> u8 {
    match kind {
        TroubleKind::Image { .. }
        | TroubleKind::NotCreated { .. }
        | TroubleKind::Crashing { .. } => 0,
        TroubleKind::ClaimNotBound(_)
        | TroubleKind::Unschedulable(_)
        | TroubleKind::SchedulingGated
        | TroubleKind::NodeUnreachable(_)
        | TroubleKind::NotScheduled => 1,
        TroubleKind::ProbeFails { .. }
        | TroubleKind::GateClosed(_)
        | TroubleKind::Initializing(_)
        | TroubleKind::NotStarted { .. } => 2,
        TroubleKind::Finalizer(_) | TroubleKind::NotEnded(_) => 3,
        TroubleKind::ImageNotShown { .. } => 4,
    }
}

fn actor(kind: &TroubleKind) -> Actor {
    match kind {
        TroubleKind::Image { .. }
        | TroubleKind::NotCreated { .. }
        | TroubleKind::Crashing { .. }
        | TroubleKind::ClaimNotBound(_)
        | TroubleKind::SchedulingGated
        | TroubleKind::NotScheduled
        | TroubleKind::GateClosed(_)
        | TroubleKind::Finalizer(_) => Actor::User,
        TroubleKind::ProbeFails { .. } | TroubleKind::Initializing(_) => Actor::Game,
        TroubleKind::ImageNotShown { .. } => Actor::Nobody,
        TroubleKind::Unschedulable(_)
        | TroubleKind::NotStarted { .. }
        | TroubleKind::NodeUnreachable(_)
        | TroubleKind::NotEnded(_) => Actor::Node,
    }
}

fn container(kind: &TroubleKind) -> &str {
    match kind {
        TroubleKind::Image { container, .. }
        | TroubleKind::NotCreated { container, .. }
        | TroubleKind::Crashing { container, .. }
        | TroubleKind::NotStarted { container, .. }
        | TroubleKind::ProbeFails { container, .. }
        | TroubleKind::ImageNotShown { container, .. }
        | TroubleKind::Initializing(container) => container,
        TroubleKind::NotScheduled
        | TroubleKind::Unschedulable(_)
        | TroubleKind::SchedulingGated
        | TroubleKind::ClaimNotBound(_)
        | TroubleKind::GateClosed(_)
        | TroubleKind::NodeUnreachable(_)
        | TroubleKind::Finalizer(_)
        | TroubleKind::NotEnded(_) => "",
    }
}

/// The node, if it is the cause.
fn node(kind: &TroubleKind) -> &str {
    match kind {
        TroubleKind::NodeUnreachable(node) => node,
        _ => "",
    }
}

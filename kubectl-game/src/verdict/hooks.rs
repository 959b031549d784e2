//! The hooks of pods and steps that block a rollout, and those that it waits for.

use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::api::{Actor, HookRun, PodHookCondition};
use gamekeeper_core::text::counted;
use jiff::Timestamp;
use kube::ResourceExt;

use super::{End, Finding};
use crate::age::span;
use crate::scene::Scene;
use crate::view::run::{clock, summary};

/// Pods whose hook ended without success. They wait for a user, except for a PreDelete hook of guarded pods, which the
/// operator runs again.
pub(super) fn failed_hooks(scene: &Scene, now: Timestamp) -> Vec<Finding> {
    let blocked = scene.game.status.blocked_pods().into_iter();
    let finding = |(point, pods): (HookPoint, &[PodHookCondition])| {
        let first = pods.first()?;
        let is_run = |run: &&HookRun| {
            scene.point(run) == Some(point)
                && run.phase().has_failed()
                && scene.subject(run) == first.pod_name
        };
        let run = scene.runs.iter().find(is_run);
        let message = run.map_or_else(|| first.message.clone(), summary);
        let run = run.map_or_else(String::new, |run| format!(" (HookRun {})", run.name_any()));
        let is_run_again = is_run_again(scene, point);
        let more = match (pods.len() - 1, is_run_again) {
            (0, _) => String::new(),
            (more, true) => format!("; {} too", counted(more, "more pod waits", "more pods wait")),
            (more, false) => {
                let more = counted(more, "more pod is", "more pods are");
                format!("; {more} blocked too")
            }
        };
        let pod = describe_pod(scene, point, first.pod_name.clone());
        let subject = scene.game.subject();
        let cause = scene
            .game
            .status
            .causes
            .iter()
            .find(|it| it.point() == Some(point) && it.until.is_some());
        let point = point.as_str();
        let ended = format!("its {point} hook{run} ended {}: {message}", first.phase);
        let names = pods.iter().map(|pod| pod.pod_name.clone()).collect();
        let since = pods.iter().map(|pod| pod.start_time.0).min();
        let finding = match is_run_again {
            true => {
                let again = cause.and_then(|it| it.until.as_ref()).map(|at| at.0);
                let left = again.map(|at| at.duration_since(now).as_secs()).filter(|it| *it > 0);
                let when = left.map_or_else(
                    || "automatically".to_owned(),
                    |left| format!("automatically in {}", span(left)),
                );
                let sentence =
                    format!("pod {pod} waits, because {ended}; the hook is run again {when}{more}");
                let finding = Finding::new(End::InProgress, "Waiting", sentence);
                Finding { actor: Actor::Game, until: again, ..finding }.with_commands([
                    subject.retry("run it immediately with", point),
                    subject.release(&first.pod_name),
                ])
            }
            false => {
                let sentence = format!("pod {pod} is blocked, because {ended}{more}");
                Finding::new(End::Stopped, "Blocked", sentence)
                    .with_commands([subject.retry("fix the hook or what it checks, then", point)])
            }
        };
        Some(finding.since(since).about(names))
    };
    blocked.filter_map(finding).collect()
}

/// Whether the operator runs unsuccessful hooks of this point again after askAgainSeconds.
pub fn is_run_again(scene: &Scene, point: HookPoint) -> bool {
    point == HookPoint::PreDelete && scene.game.status.protection.is_some()
}

pub(super) fn running_hooks(scene: &Scene, now: Timestamp) -> Vec<Finding> {
    let finding = |point: HookPoint| {
        let is_running =
            |run: &&HookRun| scene.point(run) == Some(point) && !run.phase().is_completed();
        let runs: Vec<&HookRun> = scene.runs.iter().filter(is_running).collect();
        let first = runs.first()?;
        let sentence = match point {
            HookPoint::Step => format!(
                "waits for the hook of canary step {}, {}, {}: {}",
                scene.game.step_index().unwrap_or(0),
                first.name_any(),
                clock(first, now),
                summary(first)
            ),
            _ => {
                let describe = |run: &&HookRun| describe_pod(scene, point, scene.subject(run));
                let pods: Vec<String> = runs.iter().map(describe).collect();
                let hooks = match pods.len() {
                    1 => "hook of pod",
                    _ => "hooks of pods",
                };
                format!(
                    "waits for {} {hooks} {}, {}: {}",
                    point.as_str(),
                    abbreviate(&pods),
                    clock(first, now),
                    summary(first)
                )
            }
        };
        let pods = match point {
            HookPoint::Step => Vec::new(),
            _ => runs.iter().map(|run| scene.subject(run)).collect(),
        };
        let starts = runs.iter().filter_map(|run| run.creation_timestamp());
        let finding = Finding::new(End::InProgress, "Waiting", sentence)
            .since(starts.map(|it| it.0).min())
            .about(pods)
            .with_commands([scene.game.subject().hooks()]);
        let is_measured = runs.iter().all(|run| run.current_error().is_none());
        Some(Finding { actor: if is_measured { Actor::Game } else { Actor::User }, ..finding })
    };
    let points = std::iter::once(HookPoint::Step).chain(HookPoint::OF_PODS);
    points.filter_map(finding).collect()
}

/// The name of a pod with a hook at this point, with a remark if it is to be deleted because its ordinal is
/// reserved.
fn describe_pod(scene: &Scene, point: HookPoint, pod: String) -> String {
    match point == HookPoint::PreDelete && scene.game.is_reserved(&pod) {
        true => format!("{pod} (ordinal reserved)"),
        false => pod,
    }
}

/// The first few of these names, and the number of the others.
pub(super) fn abbreviate(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    match more {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

//! `retry`: runs failed hooks of pods, or that of the canary step, again.

use gamekeeper_core::api::PauseReason;
use gamekeeper_core::api::names::{HookPoint, RETRY_ANNOTATION};
use gamekeeper_core::workload::Retry;

use super::{Change, set};
use crate::error::{Error, refuse};
use crate::scene::Scene;

/// Requests a retry of failed hooks, at one hook point or at all hook points.
pub fn retry(scene: &Scene, point: Option<HookPoint>) -> Result<Change, Error> {
    let game = &scene.game;
    let mut after = game.object.clone();
    let mut retried = Vec::new();
    for (hook_point, blocked) in game.status.blocked_pods() {
        let runs = scene.runs.iter();
        let failed = runs
            .filter(|run| scene.point(run) == Some(hook_point) && run.phase().has_failed())
            .count();
        let failed = failed.max(blocked.len());
        if failed > 0
            && point.is_none_or(|point| point == hook_point)
            && let Some(field) = hook_point.strategy_field()
        {
            set(&mut after, &["spec", field, "retry"], true);
            let s = if failed == 1 { "" } else { "s" };
            retried.push(format!("{failed} {} hook{s}", hook_point.as_str()));
        }
    }
    if point.is_none_or(|point| point == HookPoint::Step) && is_paused_by_hook(scene) {
        let annotation = game.object["metadata"]["annotations"][RETRY_ANNOTATION].as_str();
        let current = annotation.map(str::to_owned);
        let path = ["metadata", "annotations", RETRY_ANNOTATION];
        set(&mut after, &path, Retry::of_step(game.generation, current.as_ref()));
        retried.push(format!("the hook of canary step {}", game.step_index().unwrap_or(0)));
    }
    if retried.is_empty() {
        return nothing_failed(scene, point);
    }
    let outcome = match after == game.object {
        true => "is already being retried".to_owned(),
        false => format!("retried: {}", retried.join(", ")),
    };
    Ok(Change::new(after, outcome))
}

/// Whether the rollout is paused because the hook of its canary step was not successful.
fn is_paused_by_hook(scene: &Scene) -> bool {
    let pause = scene.game.status.pause_conditions.first();
    pause.is_some_and(|it| it.reason == PauseReason::PausedByStepBasedHook)
}

fn nothing_failed<T>(scene: &Scene, point: Option<HookPoint>) -> Result<T, Error> {
    let name = scene.game.short_name();
    refuse(match point {
        Some(HookPoint::Step) => {
            format!("{name} is not paused by the hook of a canary step: nothing to retry")
        }
        Some(point) => {
            format!("no {} hook of a pod of {name} has failed: nothing to retry", point.as_str())
        }
        None => format!("no hook of {name} has failed: nothing to retry"),
    })
}

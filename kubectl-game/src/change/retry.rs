//! `retry`: runs failed hooks of pods again.

use gamekeeper_core::api::HookRun;
use gamekeeper_core::api::names::HookPoint;

use super::{Change, set};
use crate::error::{Error, refuse};
use crate::scene::Scene;

/// Requests a retry of the failed hooks of pods, at one hook point or at all hook points.
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
    if retried.is_empty() {
        return nothing_failed(scene, point);
    }
    let outcome = match after == game.object {
        true => "is already being retried".to_owned(),
        false => format!("retried: {}", retried.join(", ")),
    };
    Ok(Change::new(after, outcome))
}

fn nothing_failed<T>(scene: &Scene, point: Option<HookPoint>) -> Result<T, Error> {
    let name = scene.game.short_name();
    let is_failed_step =
        |run: &HookRun| scene.point(run) == Some(HookPoint::Step) && run.phase().has_failed();
    if point.is_none() && scene.runs.iter().any(is_failed_step) {
        return refuse(format!(
            "the failed hook belongs to a canary step, which is not retried: continue anyway with kubectl game resume {name}, or roll back with kubectl game undo {name}"
        ));
    }
    let point = point.map_or_else(String::new, |point| format!("{} ", point.as_str()));
    refuse(format!("no {point}hook of a pod of {name} has failed: nothing to retry"))
}

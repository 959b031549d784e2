//! `retry`: hooks of pods that ended badly are run again.

use gamekeeper_core::api::names::HookPoint;

use super::{Change, set};
use crate::error::Error;
use crate::scene::{Scene, has_failed};
use crate::verdict::blocked_pods;

/// Asks for a retry of the failed hooks, or of those of one point.
pub fn retry(scene: &Scene, point: Option<HookPoint>) -> Result<Change, Error> {
    let game = &scene.game;
    let mut after = game.object.clone();
    let mut told = Vec::new();
    for (at, blocked) in blocked_pods(game) {
        let runs = scene.runs.iter();
        let failed = runs
            .filter(|run| scene.point(run) == Some(at) && has_failed(run))
            .count();
        let failed = failed.max(blocked.len());
        if failed > 0
            && point.is_none_or(|point| point == at)
            && let Some(field) = at.strategy_field()
        {
            set(&mut after, &["spec", field, "retry"], true);
            let s = if failed == 1 { "" } else { "s" };
            told.push(format!("{failed} {} hook{s}", at.as_str()));
        }
    }
    if told.is_empty() {
        return Err(nothing_failed(scene, point));
    }
    let did = if after == game.object {
        "is already being retried".to_owned()
    } else {
        format!("retried: {}", told.join(", "))
    };
    Ok(Change::new(after, did))
}

fn nothing_failed(scene: &Scene, point: Option<HookPoint>) -> Error {
    let name = scene.game.short_name();
    let is_failed_step = |run: &_| scene.point(run) == Some(HookPoint::Step) && has_failed(run);
    if point.is_none() && scene.runs.iter().any(is_failed_step) {
        return Error::Refused(format!(
            "the failed hook belongs to a canary step, which is not retried: continue anyway with kubectl game resume {name}, or roll back with kubectl game undo {name}"
        ));
    }
    let which = point.map_or("hook", HookPoint::as_str);
    let which = if point.is_some() {
        format!("{which} hook")
    } else {
        which.to_owned()
    };
    Error::Refused(format!(
        "no {which} of a pod of {name} has failed: nothing to retry"
    ))
}

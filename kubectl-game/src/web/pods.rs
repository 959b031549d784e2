//! The tiles: one small row for each pod.

use std::collections::{HashMap, HashSet};

use gamekeeper_core::api::HookRun;
use gamekeeper_core::api::names::{GUARDED_LABEL, HookPoint, RUN_POD_UID};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::head::seconds;
use crate::scene::{Scene, revision_of};
use crate::verdict::hooks::is_run_again;
use crate::view::pod::{self, Activity};
use crate::view::tree::is_for_update;

/// What a tile shows. A pod in several states shows the one that comes first here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Blocked,
    Waiting,
    Deleting,
    Updating,
    NotReady,
    Ready,
}

impl State {
    fn letter(self) -> &'static str {
        match self {
            State::Blocked => "B",
            State::Waiting => "W",
            State::Deleting => "D",
            State::Updating => "U",
            State::NotReady => "N",
            State::Ready => "R",
        }
    }
}

/// The rows of a workload's pods, in the order of the scene: name, and revision, state, whether the pod is guarded, its
/// status, what else is known, when it was created.
pub fn rows(scene: &Scene) -> Vec<(String, Value)> {
    let mut runs: HashMap<&str, Vec<&HookRun>> = HashMap::new();
    for run in &scene.runs {
        if let Some(uid) = run.annotations().get(RUN_POD_UID) {
            runs.entry(uid).or_default().push(run);
        }
    }
    let blocked = scene.game.status.blocked_pods().into_iter();
    let stuck = blocked.clone().filter(|(point, _)| !is_run_again(scene, *point));
    let stuck: HashSet<&str> = names(stuck);
    let waiting: HashSet<&str> = names(blocked.filter(|(point, _)| is_run_again(scene, *point)));
    let row = |pod: &Pod| {
        let name = pod.name_any();
        let runs = pod.metadata.uid.as_ref().and_then(|uid| runs.get(uid.as_str()));
        let runs = runs.map_or(&[][..], Vec::as_slice);
        let state = if stuck.contains(name.as_str()) {
            State::Blocked
        } else if waiting.contains(name.as_str()) || has_running_hook(scene, runs) {
            State::Waiting
        } else {
            match pod::activity(pod) {
                Activity::Ending => State::Deleting,
                Activity::Updating => State::Updating,
                Activity::NotReady => State::NotReady,
                Activity::Ready => State::Ready,
            }
        };
        let is_update = is_for_update(scene, runs.iter().copied());
        let info = pod::info(pod, is_update, scene.game.is_reserved(&name));
        let row = json!([
            revision_of(pod),
            state.letter(),
            u8::from(pod.labels().contains_key(GUARDED_LABEL)),
            pod::state(pod).text(),
            info,
            seconds(pod.creation_timestamp().as_ref()),
        ]);
        (name, row)
    };
    scene.pods.iter().map(row).collect()
}

fn names<'a>(
    pods: impl Iterator<Item = (HookPoint, &'a [gamekeeper_core::api::PodHookCondition])>,
) -> HashSet<&'a str> {
    pods.flat_map(|(_, pods)| pods).map(|pod| pod.pod_name.as_str()).collect()
}

fn has_running_hook(scene: &Scene, runs: &[&HookRun]) -> bool {
    let mut runs = runs.iter();
    runs.any(|run| scene.point(run).is_some() && !run.phase().is_completed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failed_pod_hook, guarded, many_pods, paused_canary};

    fn letters(scene: &Scene) -> String {
        let rows = rows(scene);
        rows.iter().filter_map(|(_, row)| row[1].as_str()).collect()
    }

    #[test]
    fn each_pod_shows_what_is_most_important_about_it() {
        for (scene, expected) in [
            (paused_canary(), "RRRR"),
            (failed_pod_hook(), "RBRR"),
            (guarded(), "RWRR"),
            (many_pods(), "RRRRRRRNRBRR"),
        ] {
            assert_eq!(letters(&scene), expected, "{}", scene.game.name);
        }
    }

    #[test]
    fn a_row_is_small() {
        let rows = rows(&paused_canary());
        let size = serde_json::to_string(&rows).expect("JSON").len() / rows.len();
        assert!(size < 80, "{size} bytes");
    }
}

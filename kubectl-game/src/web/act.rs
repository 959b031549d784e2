//! What the page can change: the plugin's own commands.

use gamekeeper_core::api::names::HookPoint;
use serde::Deserialize;
use serde_json::{Value, json};

use super::rights::Rights;
use crate::change::Change;
use crate::change::pause::{pause, promote, promote_fully, resume};
use crate::change::retry::retry;
use crate::change::scale::scale;
use crate::change::undo::undo;
use crate::cluster::{Cluster, Needs};
use crate::error::{Error, refuse};
use crate::kind::Reference;
use crate::move_pods;
use crate::release;
use crate::scene::Scene;

/// A change that a visitor has confirmed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Action {
    Resume,
    Promote,
    PromoteFully,
    Pause,
    Retry,
    Undo { revision: Option<i64> },
    Scale { replicas: i64 },
    Move { pod: String },
    Release { pod: String },
}

impl Action {
    /// The actions on a workload that need no argument, in the order of their buttons.
    const PLAIN: [Action; 6] = [
        Action::Resume,
        Action::Promote,
        Action::PromoteFully,
        Action::Retry,
        Action::Pause,
        Action::Undo { revision: None },
    ];

    /// The change of the workload; refused if the action makes no sense in this state. None for actions on pods.
    fn change(&self, scene: &Scene) -> Option<Result<Change, Error>> {
        let game = &scene.game;
        Some(match self {
            Action::Resume => resume(game),
            Action::Promote => promote(game),
            Action::PromoteFully => promote_fully(game),
            Action::Pause => pause(game),
            Action::Retry => retry(scene, None::<HookPoint>),
            Action::Undo { revision } => undo(scene, *revision),
            Action::Scale { replicas } => scale(game, *replicas),
            Action::Move { .. } | Action::Release { .. } => return None,
        })
    }

    fn label(&self) -> &'static str {
        match self {
            Action::Resume => "Resume",
            Action::Promote => "Promote",
            Action::PromoteFully => "Promote fully",
            Action::Pause => "Pause",
            Action::Retry => "Retry hooks",
            Action::Undo { .. } => "Undo",
            Action::Scale { .. } => "Scale",
            Action::Move { .. } => "Move",
            Action::Release { .. } => "Release",
        }
    }

    /// The command that does the same.
    fn command(&self, workload: &str, namespace: &str) -> String {
        let words = match self {
            Action::Resume => format!("resume {workload}"),
            Action::Promote => format!("promote {workload}"),
            Action::PromoteFully => format!("promote {workload} --full"),
            Action::Pause => format!("pause {workload}"),
            Action::Retry => format!("retry {workload}"),
            Action::Undo { revision: None } => format!("undo {workload}"),
            Action::Undo { revision: Some(number) } => {
                format!("undo {workload} --to-revision {number}")
            }
            Action::Scale { replicas } => {
                return format!("kubectl scale {workload} --replicas={replicas} -n {namespace}");
            }
            Action::Move { pod } => format!("move pod/{pod}"),
            Action::Release { pod } => format!("release pod/{pod}"),
        };
        format!("kubectl game {words} -n {namespace}")
    }

    fn verb(&self) -> &'static str {
        match self {
            Action::Resume => "resume",
            Action::Promote => "promote",
            Action::PromoteFully => "promote-fully",
            Action::Pause => "pause",
            Action::Retry => "retry",
            Action::Undo { .. } => "undo",
            Action::Scale { .. } => "scale",
            Action::Move { .. } => "move",
            Action::Release { .. } => "release",
        }
    }
}

/// The actions that make sense now and that the visitor may do. The commands' own functions decide what makes sense.
pub fn offered(scene: &Scene, rights: Rights) -> Value {
    let game = &scene.game;
    if !rights.workload || game.deleting {
        return json!([]);
    }
    let makes_sense = |action: &&Action| {
        let changed = action.change(scene).and_then(Result::ok);
        changed.is_some_and(|change| change.patch(game).is_some())
    };
    let button = |action: &Action| {
        json!({
            "verb": action.verb(), "label": action.label(),
            "command": action.command(&game.short_name(), &game.namespace),
        })
    };
    Action::PLAIN.iter().filter(makes_sense).map(button).collect()
}

/// What an action did.
pub struct Outcome {
    pub outcome: String,
    pub note: Option<String>,
}

/// Does what the visitor has confirmed.
pub async fn act(
    cluster: &Cluster,
    reference: &Reference,
    action: &Action,
) -> Result<Outcome, Error> {
    match action {
        Action::Move { pod } => {
            own_pod(cluster, reference, pod).await?;
            let outcome = move_pods::request(cluster, pod).await?;
            return Ok(Outcome { outcome, note: None });
        }
        Action::Release { pod } => {
            own_pod(cluster, reference, pod).await?;
            let outcome = release::request(cluster, pod).await?;
            return Ok(Outcome { outcome, note: None });
        }
        _ => {}
    }
    let decide = |scene: &Scene| match action.change(scene) {
        Some(change) => change,
        None => refuse("this is no action on a workload"),
    };
    let (game, change) = cluster.change(reference, Needs::Scene, false, decide).await?;
    let outcome = format!("{} {}", game.short_name(), change.outcome);
    Ok(Outcome { outcome, note: change.note })
}

/// Fails unless the pod belongs to the workload whose page the visitor sees.
async fn own_pod(cluster: &Cluster, reference: &Reference, pod: &str) -> Result<(), Error> {
    let scene = cluster.scene(reference).await?;
    let is_own = scene.pods.iter().any(|own| own.metadata.name.as_deref() == Some(pod));
    match is_own {
        true => Ok(()),
        false => refuse(format!("{} has no pod {pod}", scene.game.short_name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failed_pod_hook, paused_canary, stateful_set};

    const ALL: Rights = Rights { workload: true, pods: true };

    #[test]
    fn only_what_makes_sense_and_is_allowed_is_offered() {
        for (scene, expected) in [
            (paused_canary(), "Resume, Promote, Promote fully, Undo"),
            (failed_pod_hook(), "Retry hooks, Pause"),
            (stateful_set(), "Pause"),
        ] {
            let offered = offered(&scene, ALL);
            let labels = offered.as_array().into_iter().flatten();
            let labels: Vec<&str> = labels.filter_map(|it| it["label"].as_str()).collect();
            assert_eq!(labels.join(", "), expected, "{}", scene.game.name);
        }
        let none = offered(&paused_canary(), Rights { workload: false, pods: true });
        assert_eq!(none, json!([]));
    }

    #[test]
    fn each_verb_is_read_as_it_is_written() {
        for action in Action::PLAIN {
            let read = serde_json::from_value(json!({"verb": action.verb()}));
            assert_eq!(read.ok(), Some(action));
        }
        for (text, is_read) in [
            (r#"{"verb": "scale", "replicas": 3}"#, true),
            (r#"{"verb": "move", "pod": "a"}"#, true),
            (r#"{"verb": "release", "pod": "a"}"#, true),
            (r#"{"verb": "undo", "revision": 2}"#, true),
            (r#"{"verb": "delete"}"#, false),
            (r#"{"verb": "scale"}"#, false),
        ] {
            assert_eq!(serde_json::from_str::<Action>(text).is_ok(), is_read, "{text}");
        }
    }
}

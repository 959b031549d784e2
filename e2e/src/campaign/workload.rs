//! The workloads of histories.

use std::fmt;

use serde_json::{Value, json};

use super::stimulus::HOOK;
use crate::random::Random;
use crate::servers::hook_server::HookServer;
use crate::workload::manifest::{Game, hook_template, retrying_hook_template};

/// Name of the HookTemplate.
const TEMPLATE: &str = "is-empty";

/// The kind of a history's workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A GameDeployment that is updated in place, with canary steps and hooks.
    Canary,
    /// A GameDeployment that is updated by recreating pods, with a PreDelete hook.
    Rolling,
    /// A GameStatefulSet.
    Set,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 3] = [Kind::Canary, Kind::Rolling, Kind::Set];

    /// Plural name of the resource.
    pub fn plural(self) -> &'static str {
        match self {
            Kind::Canary | Kind::Rolling => "gamedeployments",
            Kind::Set => "gamestatefulsets",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Canary => "GameDeployment in place, canary steps",
            Kind::Rolling => "GameDeployment recreated, PreDelete",
            Kind::Set => "GameStatefulSet",
        })
    }
}

/// A workload, and how its hooks measure.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its manifest.
    pub game: Game,
    /// Whether a hook measures again until the answer is yes.
    pub retries: bool,
}

impl Workload {
    /// A random workload of a kind.
    pub fn random(kind: Kind, replicas: i64, random: &mut Random) -> Self {
        let game = match kind {
            Kind::Canary => canary(replicas, random),
            Kind::Rolling => rolling(replicas, random),
            Kind::Set => set(replicas, random),
        };
        let seconds = random.below(3);
        let game = match seconds {
            0 => game,
            _ => game.annotated("stage.gamekeeper/start-seconds", &seconds.to_string()),
        };
        Workload {
            game: game.max_unavailable(1 + random.below(3) as i64),
            retries: random.below(3) == 0,
        }
    }

    /// The HookTemplate of its hooks.
    pub fn hook_template(&self, hooks: &HookServer) -> Value {
        let url = hooks.url(HOOK);
        match self.retries {
            true => retrying_hook_template(TEMPLATE, &url),
            false => hook_template(TEMPLATE, &url),
        }
    }
}

/// A GameDeployment that is updated in place, with hooks and canary steps.
fn canary(replicas: i64, random: &mut Random) -> Game {
    let hook = json!({"hook": {"templateName": TEMPLATE}});
    let pause = match random.below(2) {
        0 => json!({"pause": {}}),
        _ => json!({"pause": {"duration": "1s"}}),
    };
    let steps = [json!({"partition": replicas - 1}), pause, hook, json!({"partition": "50%"})];
    // One or more of these steps, all of them consecutive.
    let first = random.index(steps.len());
    let length = 1 + random.index(steps.len() - first);
    let steps = Value::from(&steps[first..first + length]);
    let game = hooked_in_place(Game::in_place(replicas), random).steps(steps);
    let grace = "/spec/updateStrategy/inPlaceUpdateStrategy/gracePeriodSeconds";
    game.set(grace, random.below(2) as i64)
}

fn rolling(replicas: i64, random: &mut Random) -> Game {
    let game = Game::rolling(replicas).pre_delete(TEMPLATE);
    game.max_surge(random.below(3) as i64)
}

fn set(replicas: i64, random: &mut Random) -> Game {
    let game = match random.below(2) {
        0 => Game::ordered(replicas),
        _ => Game::parallel(replicas),
    };
    match random.below(2) {
        0 => game.pre_delete(TEMPLATE),
        _ => hooked_in_place(game.updated_by("InplaceUpdate"), random),
    }
}

/// Adds a PreDelete hook, a PreInplace hook or both, and sometimes a PostInplace hook.
fn hooked_in_place(game: Game, random: &mut Random) -> Game {
    let game = match random.below(3) {
        0 => game.pre_delete(TEMPLATE),
        1 => game.pre_inplace(TEMPLATE),
        _ => game.pre_delete(TEMPLATE).pre_inplace(TEMPLATE),
    };
    match random.below(3) {
        0 => game.post_inplace(TEMPLATE),
        _ => game,
    }
}

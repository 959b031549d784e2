//! The scopes that are walked, each to its end.

mod canary;
mod in_place;
mod ordinals;
mod rolling;

pub use canary::{paused_without_steps, renewed};
pub use ordinals::set;

use std::io::Write as _;
use std::time::Instant;

use gamekeeper_core::api::UpdateStrategyType;

use super::explore::explore;
use super::model::Model;
use super::scope::{Lags, Scope};
use super::start::settled;
use super::state::Left;

/// Walks a scope, and prints how many states there are.
fn walk(name: &str, scope: Scope) {
    let model = Model::new(scope);
    let began = Instant::now();
    let start = settled(&model);
    let walked = explore(&model, &start, true).unwrap_or_else(|story| panic!("{story}"));
    let seconds = began.elapsed().as_secs_f64();
    let line = format!("model: {name}: {walked}, in {seconds:.1} s\n");
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("a terminal");
}

/// All caches lag, but that of the revisions, which change once a rollout.
const LAGS: Lags = Lags {
    workload: true,
    pods: true,
    runs: true,
    revisions: false,
};

/// What may still happen: so many changes of mind, crashes, and hooks that fail.
pub fn left(user: u8, crashes: u8, failures: u8) -> Left {
    Left {
        user,
        crashes,
        breaks: 0,
        failures,
        ticks: 0,
    }
}

/// Three pods that are guarded by a PreDelete hook.
pub fn guarded() -> Scope {
    Scope {
        pre_delete: true,
        left: left(2, 1, 1),
        lags: LAGS,
        ..Scope::default()
    }
}

/// Three pods that are updated in place.
pub fn in_place() -> Scope {
    Scope {
        strategy: UpdateStrategyType::InplaceUpdate,
        pre_delete: false,
        ..guarded()
    }
}

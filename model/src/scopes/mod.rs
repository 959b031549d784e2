//! The scopes that are explored completely.

mod canary;
mod guard;
mod in_place;
mod ordinals;
mod rolling;
mod sidecars;

pub use canary::{paused_without_steps, recreated, three_revisions};
pub use ordinals::{stateful_set, surging_stateful_set};
pub use rolling::{denied, first_templates};
pub use sidecars::{sidecars_with_steps, with_sidecars};

use std::io::Write as _;
use std::time::Instant;

use gamekeeper_core::api::{ContainerOrder, UpdateStrategyType};

use super::explore::explore;
use super::model::Model;
use super::scope::{Amount, Lags, Scope, User};
use super::start::start;
use super::state::Remaining;
use super::translate::DEADLINE;

/// Explores a scope and prints its size.
fn check(name: &str, scope: Scope) {
    let model = Model::new(scope);
    let began = Instant::now();
    let start = start(&model);
    let explored =
        explore(&model, &start, true).unwrap_or_else(|counterexample| panic!("{counterexample}"));
    let seconds = began.elapsed().as_secs_f64();
    let line = format!("model: {name}: {explored}, in {seconds:.1} s\n");
    std::io::stderr().write_all(line.as_bytes()).expect("a terminal");
}

/// All caches lag, except that of revisions, which change only once per rollout.
const LAGS: Lags = Lags { workload: true, pods: true, runs: true, revisions: false };

/// Bounds on the number of users' changes, of crashes of the operator, and of hooks that fail.
pub fn remaining(user: u8, crashes: u8, failures: u8) -> Remaining {
    Remaining { user, crashes, breaks: 0, failures, ticks: 0 }
}

/// Three pods with a PreDelete hook.
pub fn hooked() -> Scope {
    Scope { pre_delete: true, remaining: remaining(2, 1, 1), lags: LAGS, ..Scope::default() }
}

/// Three pods with a PreDelete hook. An update creates the replacement of a pod before it deletes the pod.
pub fn surge() -> Scope {
    Scope { max_unavailable: Amount::Number(0), max_surge: Amount::Number(1), ..hooked() }
}

/// Two guarded pods with a PreDelete hook.
pub fn protected() -> Scope {
    Scope { replicas: 2, protected: true, ..hooked() }
}

/// Two guarded pods that are updated in place, moved and scaled in, before or after their deadline.
pub fn guarded_in_place() -> Scope {
    Scope {
        strategy: UpdateStrategyType::InplaceUpdate,
        user: vec![User::Template(1), User::Scale(1), User::Move(0)],
        ticks: vec![DEADLINE],
        remaining: Remaining { ticks: 1, ..remaining(2, 1, 1) },
        ..protected()
    }
}

/// A pod with two containers. The first change of the template changes the second container, to an image that is broken;
/// the next one changes both.
pub fn one_container_after_the_other() -> Scope {
    Scope {
        replicas: 1,
        templates: 3,
        containers: 2,
        images: vec![[0, 0], [0, 1], [2, 2]],
        broken: Some(1),
        pre_inplace: true,
        user: vec![User::Template(1), User::Template(2), User::Template(0)],
        remaining: remaining(3, 1, 0),
        ..in_place()
    }
}

/// Two pods that wait for a grace period while users change how they are updated.
pub fn another_strategy_after_the_hook() -> Scope {
    Scope {
        replicas: 2,
        pre_inplace: true,
        grace: 1,
        user: vec![
            User::Template(1),
            User::Strategy(UpdateStrategyType::RollingUpdate),
            User::Strategy(UpdateStrategyType::InplaceUpdate),
            User::Scale(1),
        ],
        ticks: vec![1],
        remaining: Remaining { ticks: 1, ..remaining(3, 0, 0) },
        ..in_place()
    }
}

/// Three pods that get hot patches. The kubelet of two of them restarts their containers.
pub fn hot_patched_on_nodes_that_differ() -> Scope {
    Scope {
        strategy: UpdateStrategyType::HotPatchUpdate,
        max_unavailable: Amount::Number(3),
        pods_on_node: 2,
        hot_patch_restarts: true,
        pre_delete: false,
        user: vec![User::Template(1), User::Template(0), User::Scale(2)],
        ..hooked()
    }
}

/// Two guarded pods that are updated and scaled in, while other clients change the annotations of one of them.
pub fn guarded_and_annotated(strategy: UpdateStrategyType) -> Scope {
    Scope {
        strategy,
        user: vec![
            User::Scale(1),
            User::Template(1),
            User::Mark(0, true),
            User::Mark(0, false),
            User::Since(0, Some(0)),
            User::Since(0, None),
        ],
        ticks: vec![DEADLINE],
        remaining: Remaining { ticks: 1, ..remaining(3, 0, 0) },
        ..protected()
    }
}

/// Two guarded pods, one of them on the node whose state changes. The operator moves pods off nodes that are about to
/// be removed.
pub fn moving_off_nodes() -> Scope {
    Scope { moves_off_nodes: true, pods_on_node: 1, ..protected() }
}

/// Three pods that are updated in place.
pub fn in_place() -> Scope {
    Scope { strategy: UpdateStrategyType::InplaceUpdate, pre_delete: false, ..hooked() }
}

/// Three pods, and one index more than there are pods.
pub fn indexed() -> Scope {
    Scope { indexes: 4, ..hooked() }
}

/// A pod with two containers. An update in place changes one container after the other.
pub fn in_order() -> Scope {
    Scope { replicas: 1, containers: 2, order: ContainerOrder::OrderedUpdated, ..in_place() }
}

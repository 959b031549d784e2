//! In-place updates and hot patches.

use super::*;
use crate::scope::User;

#[test]
fn in_place_with_hooks() {
    check(
        "in place with hooks",
        Scope {
            pre_inplace: true,
            post_inplace: true,
            user: vec![User::Template(1), User::Template(0), User::Pause, User::Resume],
            remaining: remaining(3, 1, 1),
            ..in_place()
        },
    );
}

#[test]
fn in_place_with_pre_delete() {
    check(
        "in place with PreDelete",
        Scope {
            pre_delete: true,
            user: vec![User::Template(1), User::Template(0), User::Scale(2), User::Scale(3)],
            grace: 1,
            ticks: vec![1],
            remaining: Remaining { ticks: 1, ..remaining(2, 1, 1) },
            ..in_place()
        },
    );
}

#[test]
fn hot_patch() {
    check(
        "hot patch",
        Scope {
            strategy: UpdateStrategyType::HotPatchUpdate,
            user: vec![
                User::Template(1),
                User::Template(0),
                User::Pause,
                User::Resume,
                User::Scale(2),
            ],
            pre_delete: false,
            remaining: remaining(3, 1, 1),
            ..hooked()
        },
    );
}

#[test]
fn hot_patch_on_nodes_that_differ() {
    check("hot patch, nodes that differ", hot_patched_on_nodes_that_differ());
}

#[test]
fn one_container_and_then_another() {
    check("one container, then another", one_container_after_the_other());
    check(
        "one container, then another, in order",
        Scope { order: ContainerOrder::OrderedUpdated, ..one_container_after_the_other() },
    );
}

#[test]
fn a_hook_and_then_another_strategy() {
    check("in place, then recreated", another_strategy_after_the_hook());
}

#[test]
fn three_updates() {
    check(
        "three updates",
        Scope {
            templates: 3,
            post_inplace: true,
            user: vec![User::Template(1), User::Template(2), User::Template(0)],
            remaining: remaining(3, 0, 0),
            lags: Lags { workload: true, ..Lags::default() },
            ..in_place()
        },
    );
}

#[test]
fn in_place_with_container_crashes() {
    check(
        "in place, with container crashes",
        Scope {
            replicas: 2,
            pre_inplace: true,
            post_inplace: true,
            container_crashes: true,
            user: vec![User::Template(1), User::Scale(3)],
            remaining: Remaining { breaks: 1, ..remaining(2, 0, 1) },
            lags: Lags { pods: true, ..Lags::default() },
            ..in_place()
        },
    );
}

#[test]
fn containers_in_order() {
    check(
        "containers in order",
        Scope {
            pre_inplace: true,
            post_inplace: true,
            user: vec![User::Template(1), User::Template(0), User::Pause],
            remaining: remaining(3, 1, 0),
            ..in_order()
        },
    );
}

#[test]
fn containers_in_order_each_once_the_previous_one_is_ready() {
    check(
        "containers in order, each once the previous one is ready",
        Scope {
            templates: 3,
            order: ContainerOrder::OrderedReady,
            user: vec![User::Template(1), User::Template(2), User::Template(0)],
            remaining: Remaining { breaks: 1, ..remaining(3, 1, 0) },
            lags: Lags { workload: true, ..Lags::default() },
            ..in_order()
        },
    );
}

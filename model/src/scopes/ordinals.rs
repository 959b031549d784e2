//! GameStatefulSets with three ordinals, ordered and parallel; and pods that are moved, also those of GameDeployments.

use gamekeeper_core::api::PodManagementPolicy;
use gamekeeper_core::api::PodManagementPolicy::{OrderedReady, Parallel};

use super::*;
use crate::scope::{Amount, Step, User};

/// A GameStatefulSet of three pods with a PreDelete hook.
pub fn stateful_set(policy: PodManagementPolicy) -> Scope {
    Scope { stateful_set: Some(policy), ..hooked() }
}

fn changes() -> Vec<User> {
    vec![User::Scale(1), User::Scale(3), User::Template(1), User::Template(0)]
}

#[test]
fn ordered() {
    let user = changes();
    check("ordered", Scope { user, ..stateful_set(OrderedReady) });
}

#[test]
fn parallel() {
    let user = changes();
    check("parallel", Scope { user, ..stateful_set(Parallel) });
}

#[test]
fn moved_pods() {
    for (name, scope) in [
        ("moved", hooked()),
        ("moved, surge", surge()),
        ("moved, protected", protected()),
        ("moved, ordered", stateful_set(OrderedReady)),
        ("moved, parallel", stateful_set(Parallel)),
    ] {
        let user = vec![User::Move(0), User::Scale(1), User::Template(1)];
        check(name, Scope { user, ..scope });
    }
}

#[test]
fn moved_pods_of_a_paused_workload() {
    let user = vec![User::Move(0), User::Pause, User::Template(1)];
    check("moved, surge, paused", Scope { user, ..surge() });
}

#[test]
fn ordered_with_pods_that_break() {
    check(
        "ordered, pods break",
        Scope {
            pre_delete: false,
            user: vec![User::Scale(2), User::Scale(3), User::Template(1), User::Delete(1)],
            remaining: Remaining { breaks: 1, ..remaining(2, 1, 0) },
            ..stateful_set(OrderedReady)
        },
    );
}

#[test]
fn ordered_with_a_broken_template() {
    check(
        "ordered, broken template",
        Scope {
            pre_delete: false,
            broken: Some(1),
            user: vec![User::Template(1), User::Template(0), User::Scale(4), User::Scale(2)],
            remaining: remaining(3, 1, 0),
            ..stateful_set(OrderedReady)
        },
    );
}

#[test]
fn ordinals_in_place() {
    check(
        "ordinals in place",
        Scope {
            stateful_set: Some(OrderedReady),
            user: vec![User::Template(1), User::Template(0), User::Scale(2), User::Partition(2)],
            ..in_place()
        },
    );
}

#[test]
fn ordinals_in_steps() {
    check(
        "ordinals in steps",
        Scope {
            pre_delete: false,
            steps: vec![vec![Step::Partition(Amount::Number(2)), Step::Pause(None)]],
            user: vec![User::Template(1), User::Template(0), User::Resume, User::Scale(4)],
            remaining: remaining(3, 1, 0),
            ..stateful_set(Parallel)
        },
    );
}

/// A GameStatefulSet whose updates create surge pods instead of making pods unavailable.
pub fn surging_stateful_set() -> Scope {
    Scope {
        max_unavailable: Amount::Number(0),
        max_surge: Amount::Number(1),
        ..stateful_set(Parallel)
    }
}

#[test]
fn ordinals_with_surge() {
    check(
        "ordinals with surge",
        Scope {
            user: vec![User::Template(1), User::Template(0), User::Scale(2), User::Scale(4)],
            ..surging_stateful_set()
        },
    );
}

#[test]
fn surge_pods_without_hooks() {
    check(
        "surge, no hooks",
        Scope {
            pre_delete: false,
            user: vec![User::Template(1), User::Template(0), User::Scale(2)],
            remaining: remaining(3, 1, 0),
            ..surging_stateful_set()
        },
    );
}

fn reserved() -> Vec<User> {
    vec![User::Reserve(1), User::Unreserve(1), User::Template(1)]
}

#[test]
fn reserved_in_order() {
    check("reserved, ordered", Scope { user: reserved(), ..stateful_set(OrderedReady) });
}

#[test]
fn reserved_in_parallel() {
    check("reserved, parallel", Scope { user: reserved(), ..stateful_set(Parallel) });
}

#[test]
fn reserved_without_hooks() {
    check(
        "reserved, no hooks",
        Scope {
            pre_delete: false,
            user: vec![
                User::Reserve(1),
                User::Unreserve(1),
                User::Scale(2),
                User::Partition(1),
                User::Template(1),
            ],
            remaining: remaining(3, 1, 0),
            ..stateful_set(Parallel)
        },
    );
}

/// A partition is raised while the set grows: pods that are yet to be created and old ones have the same room.
#[test]
fn reserved_while_the_set_grows() {
    check(
        "reserved, growing",
        Scope {
            replicas: 1,
            pre_delete: false,
            user: vec![User::Reserve(0), User::Template(1), User::Partition(2), User::Scale(4)],
            remaining: remaining(4, 0, 0),
            ..stateful_set(OrderedReady)
        },
    );
}

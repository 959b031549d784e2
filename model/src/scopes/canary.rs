//! Canary steps.

use gamekeeper_core::api::names::HookPoint;

use super::*;
use crate::scope::{Amount, Step, User};

#[test]
fn canary_pause() {
    check(
        "canary pause",
        Scope {
            pre_delete: false,
            steps: vec![vec![Step::Partition(Amount::Number(2)), Step::Pause(None)]],
            user: vec![
                User::Template(1),
                User::Template(0),
                User::Pause,
                User::Resume,
                User::Apply,
                User::Scale(4),
            ],
            remaining: remaining(3, 1, 0),
            ..hooked()
        },
    );
}

/// A rollout without steps. A user may pause it, change the template and scale out.
pub fn paused_without_steps() -> Scope {
    Scope {
        replicas: 1,
        templates: 3,
        pre_delete: false,
        user: vec![User::Template(1), User::Template(2), User::Pause, User::Scale(2)],
        remaining: remaining(4, 0, 0),
        lags: Lags::default(),
        ..hooked()
    }
}

#[test]
fn paused_by_a_user() {
    check("paused without steps", paused_without_steps());
}

/// A canary rollout whose template is replaced while pods have three revisions.
pub fn three_revisions() -> Scope {
    Scope {
        templates: 3,
        pre_delete: false,
        steps: vec![vec![Step::Partition(Amount::Number(2)), Step::Pause(None)]],
        user: vec![User::Template(1), User::Template(2), User::Resume, User::Scale(2)],
        remaining: remaining(3, 1, 0),
        lags: Lags { pods: true, ..Lags::default() },
        ..hooked()
    }
}

#[test]
fn a_canary_replaces_another() {
    check("three revisions at a step", three_revisions());
    let strategy = UpdateStrategyType::InplaceUpdate;
    check("three revisions in place", Scope { strategy, ..three_revisions() });
}

/// A canary rollout, during which a user may recreate the workload.
pub fn recreated() -> Scope {
    Scope {
        pre_delete: false,
        steps: vec![vec![Step::Partition(Amount::Number(2)), Step::Pause(None)]],
        user: vec![User::Template(1), User::Template(0), User::Resume, User::Recreate],
        remaining: remaining(3, 1, 0),
        lags: Lags { workload: true, ..Lags::default() },
        ..hooked()
    }
}

#[test]
fn lost_status() {
    check("lost status", recreated());
}

#[test]
fn canary_hook() {
    check(
        "canary hook",
        Scope {
            pre_delete: false,
            steps: vec![vec![Step::Partition(Amount::Number(2)), Step::Hook]],
            user: vec![User::Template(1), User::Template(0), User::Resume, User::Scale(2)],
            remaining: remaining(2, 1, 1),
            ..hooked()
        },
    );
}

#[test]
fn promoted_canary() {
    check(
        "promoted canary",
        Scope {
            templates: 3,
            pre_delete: false,
            steps: vec![vec![Step::Partition(Amount::Number(2)), Step::Hook, Step::Pause(None)]],
            user: vec![
                User::Template(1),
                User::Template(2),
                User::Template(0),
                User::Promote,
                User::Pause,
            ],
            remaining: remaining(3, 1, 1),
            lags: Lags { workload: true, ..Lags::default() },
            ..hooked()
        },
    );
}

#[test]
fn canary_with_timed_pauses() {
    check(
        "canary with timed pauses",
        Scope {
            pre_delete: false,
            steps: vec![vec![
                Step::Pause(Some(1)),
                Step::Partition(Amount::Percent(50)),
                Step::Pause(Some(1)),
            ]],
            user: vec![User::Template(1), User::Template(0), User::Pause, User::Resume],
            ticks: vec![1, 1],
            remaining: Remaining { ticks: 2, ..remaining(3, 1, 1) },
            lags: Lags { workload: true, ..Lags::default() },
            ..hooked()
        },
    );
}

#[test]
fn changed_steps() {
    check(
        "changed steps",
        Scope {
            pre_delete: false,
            steps: vec![
                vec![
                    Step::Partition(Amount::Number(2)),
                    Step::Hook,
                    Step::Partition(Amount::Number(1)),
                    Step::Pause(None),
                ],
                vec![Step::Partition(Amount::Number(1)), Step::Hook],
            ],
            user: vec![User::Template(1), User::Steps(1), User::Resume, User::Scale(5)],
            remaining: remaining(3, 1, 1),
            lags: Lags { workload: true, runs: true, ..Lags::default() },
            ..hooked()
        },
    );
}

#[test]
fn canary_with_pre_delete() {
    check(
        "canary with PreDelete",
        Scope {
            steps: vec![vec![Step::Partition(Amount::Number(2)), Step::Pause(None)]],
            user: vec![
                User::Template(1),
                User::Template(0),
                User::Scale(2),
                User::Resume,
                User::Retry(HookPoint::PreDelete),
            ],
            remaining: remaining(3, 1, 1),
            ..hooked()
        },
    );
}

//! Canary steps.

use gamekeeper_core::api::names::HookPoint;

use super::*;
use crate::scope::{Amount, Step, User};

#[test]
fn canary_pause() {
    walk(
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
            left: left(3, 1, 0),
            ..guarded()
        },
    );
}

/// A rollout without steps that a user pauses, and gives another template.
pub fn paused_without_steps() -> Scope {
    Scope {
        replicas: 1,
        templates: 3,
        pre_delete: false,
        user: vec![
            User::Template(1),
            User::Template(2),
            User::Pause,
            User::Scale(2),
        ],
        left: left(4, 0, 0),
        lags: Lags::default(),
        ..guarded()
    }
}

#[test]
fn paused_by_a_user() {
    walk("paused without steps", paused_without_steps());
}

/// A canary whose workload is recreated.
pub fn renewed() -> Scope {
    Scope {
        pre_delete: false,
        steps: vec![vec![Step::Partition(Amount::Number(2)), Step::Pause(None)]],
        user: vec![
            User::Template(1),
            User::Template(0),
            User::Resume,
            User::Renew,
        ],
        left: left(3, 1, 0),
        lags: Lags {
            workload: true,
            ..Lags::default()
        },
        ..guarded()
    }
}

#[test]
fn status_lost() {
    walk("status lost", renewed());
}

#[test]
fn canary_hook() {
    walk(
        "canary hook",
        Scope {
            pre_delete: false,
            steps: vec![vec![Step::Partition(Amount::Number(2)), Step::Hook]],
            user: vec![
                User::Template(1),
                User::Template(0),
                User::Resume,
                User::Scale(2),
            ],
            left: left(2, 1, 1),
            ..guarded()
        },
    );
}

#[test]
fn canary_promoted() {
    walk(
        "canary promoted",
        Scope {
            templates: 3,
            pre_delete: false,
            steps: vec![vec![
                Step::Partition(Amount::Number(2)),
                Step::Hook,
                Step::Pause(None),
            ]],
            user: vec![
                User::Template(1),
                User::Template(2),
                User::Template(0),
                User::Promote,
                User::Pause,
            ],
            left: left(3, 1, 1),
            lags: Lags {
                workload: true,
                ..Lags::default()
            },
            ..guarded()
        },
    );
}

#[test]
fn canary_timed() {
    walk(
        "canary timed",
        Scope {
            pre_delete: false,
            steps: vec![vec![
                Step::Pause(Some(1)),
                Step::Partition(Amount::Percent(50)),
                Step::Pause(Some(1)),
            ]],
            user: vec![
                User::Template(1),
                User::Template(0),
                User::Pause,
                User::Resume,
            ],
            ticks: vec![1, 1],
            left: Left {
                ticks: 2,
                ..left(3, 1, 1)
            },
            lags: Lags {
                workload: true,
                ..Lags::default()
            },
            ..guarded()
        },
    );
}

#[test]
fn steps_change() {
    walk(
        "steps change",
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
            user: vec![
                User::Template(1),
                User::Steps(1),
                User::Resume,
                User::Scale(5),
            ],
            left: left(3, 1, 1),
            lags: Lags {
                workload: true,
                runs: true,
                ..Lags::default()
            },
            ..guarded()
        },
    );
}

#[test]
fn canary_behind_pre_delete() {
    walk(
        "canary behind PreDelete",
        Scope {
            steps: vec![vec![Step::Partition(Amount::Number(2)), Step::Pause(None)]],
            user: vec![
                User::Template(1),
                User::Template(0),
                User::Scale(2),
                User::Resume,
                User::Retry(HookPoint::PreDelete),
            ],
            left: left(3, 1, 1),
            ..guarded()
        },
    );
}

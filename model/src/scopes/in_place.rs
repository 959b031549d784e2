//! Updates in place, and hot patches.

use super::*;
use crate::scope::User;

#[test]
fn in_place_with_hooks() {
    walk(
        "in place",
        Scope {
            pre_inplace: true,
            post_inplace: true,
            user: vec![
                User::Template(1),
                User::Template(0),
                User::Pause,
                User::Resume,
            ],
            left: left(3, 1, 1),
            ..in_place()
        },
    );
}

#[test]
fn in_place_behind_pre_delete() {
    walk(
        "in place behind PreDelete",
        Scope {
            pre_delete: true,
            user: vec![
                User::Template(1),
                User::Template(0),
                User::Scale(2),
                User::Scale(3),
            ],
            grace: 1,
            ticks: vec![1],
            left: Left {
                ticks: 1,
                ..left(2, 1, 1)
            },
            ..in_place()
        },
    );
}

#[test]
fn hot_patch() {
    walk(
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
            left: left(3, 1, 1),
            ..guarded()
        },
    );
}

#[test]
fn three_updates() {
    walk(
        "three updates",
        Scope {
            templates: 3,
            post_inplace: true,
            user: vec![User::Template(1), User::Template(2), User::Template(0)],
            left: left(3, 0, 0),
            lags: Lags {
                workload: true,
                ..Lags::default()
            },
            ..in_place()
        },
    );
}

#[test]
fn in_place_crashes() {
    walk(
        "in place, with crashes",
        Scope {
            replicas: 2,
            pre_inplace: true,
            post_inplace: true,
            crashes: true,
            user: vec![User::Template(1), User::Scale(3)],
            left: Left {
                breaks: 1,
                ..left(2, 0, 1)
            },
            lags: Lags {
                pods: true,
                ..Lags::default()
            },
            ..in_place()
        },
    );
}

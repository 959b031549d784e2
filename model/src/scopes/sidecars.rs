//! A SidecarSet: its planner allots tokens, and the workload's planner acts on them.

use super::*;
use crate::scope::{Amount, Step, User};
use crate::sidecars::{SetChange, SidecarScope};

/// Two pods, each with a sidecar. The pods are updated in place.
pub fn with_sidecars(set: SidecarScope) -> Scope {
    Scope {
        replicas: 2,
        strategy: UpdateStrategyType::InplaceUpdate,
        remaining: remaining(2, 1, 0),
        sidecars: Some(set),
        ..Scope::default()
    }
}

fn image(rev: u8) -> User {
    User::Sidecars(SetChange::Image(rev))
}

#[test]
fn sidecars_with_hooks() {
    check(
        "sidecars, hooks",
        Scope {
            pre_inplace: true,
            post_inplace: true,
            user: vec![image(1), image(0), User::Template(1)],
            remaining: remaining(2, 1, 1),
            ..with_sidecars(SidecarScope::default())
        },
    );
}

#[test]
fn sidecars_within_limits() {
    let set = SidecarScope { max_unavailable: 2, revisions: 3, ..SidecarScope::default() };
    for (name, max_unavailable, set) in [
        ("sidecars, limit of the workload", 1, set),
        ("sidecars, limit of the set", 2, SidecarScope { max_unavailable: 1, ..set }),
    ] {
        check(
            name,
            Scope {
                max_unavailable: Amount::Number(max_unavailable),
                user: vec![image(1), image(2), image(0)],
                ..with_sidecars(set)
            },
        );
    }
}

#[test]
fn sidecars_with_lagging_caches() {
    let set = SidecarScope { set_lags: true, pods_lag: true, ..SidecarScope::default() };
    let user = [SetChange::Image(1), SetChange::Image(0), SetChange::Pause, SetChange::Resume];
    let lags = Lags { pods: true, ..Lags::default() };
    check(
        "sidecars, lagging caches",
        Scope { user: user.map(User::Sidecars).to_vec(), lags, ..with_sidecars(set) },
    );
}

#[test]
fn sidecars_with_a_partition() {
    check(
        "sidecars, partition",
        Scope {
            user: vec![
                image(1),
                User::Sidecars(SetChange::Partition(1)),
                User::Sidecars(SetChange::Partition(0)),
                User::Scale(3),
                User::Scale(1),
            ],
            remaining: remaining(3, 1, 0),
            ..with_sidecars(SidecarScope::default())
        },
    );
}

#[test]
fn sidecars_created_and_deleted() {
    for (name, strategy) in [
        ("sidecars, created and deleted", UpdateStrategyType::RollingUpdate),
        ("sidecars, created and deleted, in place", UpdateStrategyType::InplaceUpdate),
    ] {
        let set = SidecarScope { exists: false, set_lags: true, ..SidecarScope::default() };
        check(
            name,
            Scope {
                strategy,
                user: vec![
                    User::Sidecars(SetChange::Create),
                    User::Sidecars(SetChange::Delete),
                    image(1),
                    User::Template(1),
                    User::Scale(3),
                ],
                remaining: remaining(4, 0, 0),
                ..with_sidecars(set)
            },
        );
    }
}

#[test]
fn sidecars_of_a_paused_workload() {
    check(
        "sidecars, paused workload",
        Scope {
            grace: 1,
            user: vec![
                image(1),
                User::Template(1),
                User::Pause,
                User::Resume,
                User::Sidecars(SetChange::Pause),
            ],
            ticks: vec![3],
            remaining: Remaining { ticks: 1, ..remaining(3, 0, 0) },
            ..with_sidecars(SidecarScope::default())
        },
    );
}

/// Two pods, each with a sidecar, and a canary rollout that reaches `last_step` once one pod is updated.
pub fn sidecars_with_steps(last_step: Step) -> Scope {
    Scope {
        user: vec![image(1), User::Template(1), User::Resume],
        steps: vec![vec![Step::Partition(Amount::Number(1)), last_step]],
        remaining: remaining(3, 0, 1),
        ..with_sidecars(SidecarScope::default())
    }
}

#[test]
fn sidecars_during_a_canary() {
    check("sidecars, canary pause", sidecars_with_steps(Step::Pause(None)));
    check("sidecars, canary hook", sidecars_with_steps(Step::Hook));
    check(
        "sidecars, broken at a canary step",
        Scope {
            user: vec![image(1), image(2), User::Template(1)],
            ..with_broken_sidecars(sidecars_with_steps(Step::Hook))
        },
    );
}

/// The same scope, with a sidecar whose first new image is broken and whose second new image works.
fn with_broken_sidecars(scope: Scope) -> Scope {
    Scope {
        sidecars: Some(SidecarScope { revisions: 3, broken: Some(1), ..SidecarScope::default() }),
        ..scope
    }
}

#[test]
fn broken_sidecars() {
    check(
        "sidecars, broken image",
        Scope {
            max_unavailable: Amount::Number(2),
            user: vec![image(1), image(0), image(2)],
            remaining: remaining(3, 0, 0),
            ..with_sidecars(SidecarScope {
                revisions: 3,
                broken: Some(1),
                ..SidecarScope::default()
            })
        },
    );
}

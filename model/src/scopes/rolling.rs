//! Scaling and rolling updates with a PreDelete hook.

use gamekeeper_core::api::PodManagementPolicy;
use gamekeeper_core::api::names::HookPoint;

use super::*;
use crate::scope::{Amount, Quota, QuotaKind, Step, User};

#[test]
fn rolling() {
    let user = vec![
        User::Scale(2),
        User::Scale(3),
        User::Template(1),
        User::Template(0),
        User::Pause,
        User::Resume,
    ];
    check("rolling", Scope { user, ..hooked() });
}

#[test]
fn recreated_with_pre_inplace() {
    let user = vec![User::Scale(2), User::Template(1), User::Template(0)];
    check(
        "recreated with PreInplace",
        Scope { pre_delete: false, pre_inplace: true, user, ..hooked() },
    );
}

#[test]
fn surge_pods() {
    check(
        "surge",
        Scope {
            user: vec![
                User::Scale(2),
                User::Template(1),
                User::Template(0),
                User::Pause,
                User::Resume,
            ],
            ..surge()
        },
    );
}

#[test]
fn retry() {
    check(
        "retry",
        Scope {
            user: vec![User::Scale(2), User::Scale(3), User::Retry(HookPoint::PreDelete)],
            remaining: remaining(4, 1, 2),
            ..hooked()
        },
    );
}

#[test]
fn expired_successes() {
    check(
        "expired successes",
        Scope {
            user: vec![User::Scale(2), User::Scale(3), User::Template(1), User::Template(0)],
            ticks: vec![7],
            ahead: 7,
            remaining: Remaining { ticks: 1, ..remaining(2, 1, 1) },
            lags: Lags { pods: false, ..LAGS },
            ..hooked()
        },
    );
}

#[test]
fn pods_to_delete() {
    check(
        "podsToDelete",
        Scope {
            user: vec![
                User::PodToDelete(0),
                User::PodToDelete(1),
                User::Scale(2),
                User::Template(1),
            ],
            remaining: remaining(2, 1, 1),
            ..hooked()
        },
    );
}

#[test]
fn pods_to_delete_with_surge() {
    let user = vec![
        User::PodToDelete(0),
        User::PodToDelete(1),
        User::Scale(2),
        User::Template(1),
        User::Pause,
    ];
    check("podsToDelete, surge", Scope { user, ..surge() });
}

#[test]
fn broken_template() {
    check(
        "broken template",
        Scope {
            broken: Some(1),
            user: vec![User::Template(1), User::Template(0), User::Scale(2)],
            remaining: Remaining { breaks: 1, ..remaining(2, 1, 0) },
            lags: Lags { pods: true, ..Lags::default() },
            ..hooked()
        },
    );
}

#[test]
fn refused_template() {
    check(
        "refused template",
        Scope {
            refused: Some(1),
            user: vec![User::Template(1), User::Template(0), User::Scale(4), User::Delete(0)],
            remaining: Remaining { breaks: 1, ..remaining(2, 1, 0) },
            lags: Lags { pods: true, ..Lags::default() },
            ..hooked()
        },
    );
}

#[test]
fn full_quotas() {
    for kind in [QuotaKind::Pods, QuotaKind::Second, QuotaKind::Twice, QuotaKind::Scoped] {
        check(
            &format!("full quota, {kind:?}"),
            Scope {
                quota: Some(Quota { rev: 1, kind }),
                max_unavailable: Amount::Number(2),
                user: vec![User::Template(1), User::Template(0)],
                remaining: remaining(2, 1, 0),
                lags: Lags { pods: true, ..Lags::default() },
                ..hooked()
            },
        );
    }
}

/// New workloads whose first template never works. A user applies a fixed one.
pub fn first_templates() -> Vec<Scope> {
    let fixed = || Scope {
        batch: 2,
        pre_delete: false,
        user: vec![User::Template(1)],
        remaining: remaining(1, 0, 0),
        ..hooked()
    };
    let steps =
        || vec![vec![Step::Partition(Amount::Number(2)), Step::Partition(Amount::Number(0))]];
    let ordered = Some(PodManagementPolicy::OrderedReady);
    vec![
        Scope { broken: Some(0), steps: steps(), ..fixed() },
        Scope { broken: Some(0), partition: 2, ..fixed() },
        Scope { broken: Some(0), steps: steps(), stateful_set: ordered, ..fixed() },
    ]
}

#[test]
fn first_template_that_never_works() {
    for (number, scope) in first_templates().into_iter().enumerate() {
        check(&format!("first template never works, {number}"), scope);
    }
}

#[test]
fn deleted_by_hand() {
    check(
        "deleted by hand",
        Scope {
            replicas: 1,
            user: vec![User::Scale(0), User::Scale(1), User::Delete(0), User::Template(1)],
            remaining: remaining(4, 1, 1),
            ..hooked()
        },
    );
}

#[test]
fn changed_hooks() {
    check(
        "changed hooks",
        Scope {
            user: vec![
                User::Scale(2),
                User::Hook(1),
                User::Hook(0),
                User::Unhook,
                User::Template(1),
                User::Partition(1),
            ],
            remaining: remaining(3, 1, 1),
            lags: Lags { pods: false, ..LAGS },
            ..hooked()
        },
    );
}

#[test]
fn pods_slow_to_become_available() {
    check(
        "pods slow to become available",
        Scope {
            min_ready: 1,
            user: vec![User::Template(1), User::Scale(2)],
            ticks: vec![1, 1],
            remaining: Remaining { ticks: 2, ..remaining(1, 1, 0) },
            lags: Lags { pods: true, ..Lags::default() },
            ..hooked()
        },
    );
}

#[test]
fn pods_that_start_unobserved() {
    check(
        "pods that start unobserved",
        Scope {
            replicas: 2,
            late_sidecars: true,
            user: vec![User::Scale(3), User::Scale(2), User::Template(1)],
            remaining: remaining(3, 1, 1),
            ..hooked()
        },
    );
}

#[test]
fn container_crashes() {
    check(
        "container crashes",
        Scope {
            replicas: 2,
            container_crashes: true,
            user: vec![User::Scale(1), User::Scale(2), User::Template(1)],
            remaining: Remaining { breaks: 1, ..remaining(2, 1, 1) },
            lags: Lags { pods: true, ..Lags::default() },
            ..hooked()
        },
    );
}

#[test]
fn on_delete() {
    check(
        "on delete",
        Scope {
            strategy: UpdateStrategyType::OnDelete,
            user: vec![
                User::Template(1),
                User::Template(0),
                User::PodToDelete(0),
                User::Scale(2),
                User::Scale(4),
            ],
            remaining: remaining(2, 1, 1),
            lags: Lags { runs: false, ..LAGS },
            ..hooked()
        },
    );
}

#[test]
fn indexes() {
    check(
        "indexes",
        Scope {
            replicas: 2,
            indexes: 4,
            max_surge: Amount::Number(1),
            max_unavailable: Amount::Number(0),
            user: vec![User::Scale(3), User::Scale(1), User::Template(1)],
            pre_delete: false,
            remaining: remaining(3, 1, 0),
            lags: Lags { pods: true, ..Lags::default() },
            ..hooked()
        },
    );
}

/// Pods that are updated and scaled in while a policy of the cluster may refuse their deletion.
pub fn denied() -> Scope {
    Scope {
        replicas: 2,
        pre_delete: false,
        user: vec![User::Template(1), User::Scale(1), User::Deny(true), User::Deny(false)],
        remaining: remaining(4, 1, 0),
        lags: Lags { pods: true, ..Lags::default() },
        ..hooked()
    }
}

#[test]
fn refused_deletions() {
    check("refused deletions", denied());
    let stateful_set = Some(PodManagementPolicy::OrderedReady);
    check("refused deletions in order", Scope { stateful_set, ..denied() });
    let max_surge = Amount::Number(1);
    let hook = Scope { pre_delete: true, max_surge, remaining: remaining(3, 0, 1), ..denied() };
    check("refused deletions after hooks", hook);
}

fn batches() -> Scope {
    Scope {
        batch: 1,
        pre_delete: false,
        user: vec![User::Scale(2), User::Scale(4), User::Template(1)],
        ..hooked()
    }
}

#[test]
fn first_pods_in_batches() {
    check("batches", batches());
}

#[test]
fn first_pods_of_a_game_stateful_set_in_batches() {
    check(
        "batches of a GameStatefulSet",
        Scope {
            stateful_set: Some(PodManagementPolicy::Parallel),
            user: vec![User::Reserve(0), User::Scale(2), User::Template(1)],
            ..batches()
        },
    );
}

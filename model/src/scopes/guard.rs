//! Guarded pods: the guard is switched on and off, and the workload is deleted.

use super::*;
use crate::scope::User;
use crate::state::Cascade;

#[test]
fn guarded_pods() {
    let user = vec![
        User::Scale(1),
        User::Scale(2),
        User::Template(1),
        User::Delete(0),
    ];
    check(
        "guarded pods",
        Scope {
            user,
            ..protected()
        },
    );
}

#[test]
fn guard_switched() {
    let user = vec![User::Scale(1), User::Guard(false), User::Guard(true)];
    check(
        "guard switched on and off",
        Scope {
            user,
            ..protected()
        },
    );
}

#[test]
fn guarded_and_deleted() {
    for (name, cascade) in [
        ("guarded and deleted", Cascade::Background),
        ("guarded and orphaned", Cascade::Orphan),
    ] {
        let user = vec![
            User::DeleteWorkload(cascade),
            User::Scale(1),
            User::Guard(false),
        ];
        check(
            name,
            Scope {
                user,
                ..protected()
            },
        );
    }
}

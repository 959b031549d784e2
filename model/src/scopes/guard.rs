//! Guarded pods: the guard is switched on and off; the workload is deleted; pods are evicted and released; and a node
//! is cordoned, has a taint that the pods tolerate, is about to be removed, stops responding, or is lost.

use gamekeeper_core::api::PodManagementPolicy;

use super::*;
use crate::scope::User;
use crate::state::{Cascade, Node};

#[test]
fn guarded_pods() {
    let user = vec![User::Scale(1), User::Scale(2), User::Template(1), User::Delete(0)];
    check("guarded pods", Scope { user, ..protected() });
}

#[test]
fn guarded_and_updated_in_place() {
    check("guarded, in place", guarded_in_place());
}

#[test]
fn guarded_with_foreign_annotations() {
    for (name, strategy) in [
        ("guarded, foreign annotations", UpdateStrategyType::RollingUpdate),
        ("guarded, foreign annotations, in place", UpdateStrategyType::InplaceUpdate),
    ] {
        check(name, guarded_and_annotated(strategy));
    }
}

#[test]
fn guard_switched_on_and_off() {
    let user = vec![User::Scale(1), User::Guard(false), User::Guard(true)];
    check("guard switched on and off", Scope { user, ..protected() });
}

#[test]
fn guarded_without_a_hook() {
    let user = vec![User::Unhook, User::Template(1), User::Scale(1), User::Release(0)];
    check("guarded without a hook", Scope { user, remaining: remaining(3, 1, 1), ..protected() });
}

#[test]
fn guarded_and_deleted() {
    for (name, cascade) in [
        ("guarded and deleted", Cascade::Background),
        ("guarded and deleted in the foreground", Cascade::Foreground),
        ("guarded and orphaned", Cascade::Orphan),
    ] {
        let user = vec![User::DeleteWorkload(cascade), User::Scale(1), User::Guard(false)];
        check(name, Scope { user, ..protected() });
    }
}

#[test]
fn guarded_and_evicted() {
    let user = vec![User::Evict(0), User::Evict(1), User::Delete(1), User::Scale(1)];
    let remaining = Remaining { breaks: 1, ..remaining(2, 1, 1) };
    check("guarded and evicted", Scope { user, remaining, ..protected() });
}

#[test]
fn guarded_and_released() {
    let user = vec![
        User::Release(0),
        User::Evict(0),
        User::Scale(1),
        User::DeleteWorkload(Cascade::Background),
        User::Guard(false),
    ];
    check("guarded and released", Scope { user, remaining: remaining(3, 1, 1), ..protected() });
}

#[test]
fn nodes_that_are_about_to_be_removed() {
    let user = [Node::Cordoned, Node::Going, Node::Fine];
    let user = user.into_iter().map(User::Node).chain([User::Scale(1)]);
    check(
        "nodes that are about to be removed",
        Scope { user: user.collect(), ..moving_off_nodes() },
    );
}

#[test]
fn nodes_with_taints_that_pods_tolerate() {
    let user = vec![User::Node(Node::Tolerated), User::Template(1)];
    check("nodes with taints that pods tolerate", Scope { user, ..moving_off_nodes() });
}

#[test]
fn nodes_that_are_lost() {
    let nodes = [Node::Silent, Node::Lost, Node::Fine];
    let user = nodes.into_iter().map(User::Node);
    let user = user.chain([User::Template(1), User::Move(0)]).collect();
    check(
        "nodes that are lost",
        Scope { user, remaining: remaining(3, 1, 1), ..moving_off_nodes() },
    );
}

#[test]
fn pods_of_a_game_stateful_set_leave_a_node() {
    let user = [Node::Going, Node::Lost, Node::Fine].map(User::Node);
    check(
        "pods of a GameStatefulSet leave a node",
        Scope {
            stateful_set: Some(PodManagementPolicy::Parallel),
            user: user.to_vec(),
            ..moving_off_nodes()
        },
    );
}

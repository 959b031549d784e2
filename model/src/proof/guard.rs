//! Bugs in what guards pods: budgets, finalizers, releases, and nodes that are removed.

use gamekeeper_core::api::UpdateStrategyType;

use super::{GUARDED, HOOK, NODES, SETTLES, find};
use crate::fault::Fault;
use crate::scope::{Scope, User};
use crate::scopes::{
    guarded_and_annotated, guarded_in_place, moving_off_nodes, protected, remaining,
};
use crate::state::{Cascade, Node, Remaining};

#[test]
fn bugs_in_guards_are_found() {
    let switched_off = Scope { user: vec![User::Guard(false)], ..protected() };
    find(Fault::BudgetFirst, GUARDED, switched_off);
    let deleted = |cascade| Scope {
        user: vec![User::Scale(1), User::DeleteWorkload(cascade)],
        ..protected()
    };
    let background = deleted(Cascade::Background);
    find(Fault::FinalizerFirst, GUARDED, background);
    // A pod that a scale-in has chosen is orphaned, and its hook allows the deletion afterward.
    let orphan = deleted(Cascade::Orphan);
    find(Fault::NoVersionPrecondition, GUARDED, orphan);
    let user = vec![User::Scale(1)];
    let scope = Scope { user, ..protected() };
    find(Fault::DeadlinePassesImmediately, GUARDED, scope);
    find(Fault::WaitInPlaceCounts, GUARDED, guarded_in_place());
}

#[test]
fn bugs_in_waits_are_found() {
    let annotated = |user: Vec<User>| Scope {
        user,
        ..guarded_and_annotated(UpdateStrategyType::RollingUpdate)
    };
    let since = || annotated(vec![User::Scale(1), User::Since(0, Some(0))]);
    find(Fault::TimeOnPodCounts, GUARDED, since());
    find(Fault::TimeKept, SETTLES, since());
    let unmarked = annotated(vec![User::Scale(1), User::Mark(0, false), User::Mark(1, false)]);
    find(Fault::WaitEndsWithMark, GUARDED, unmarked);
    let removed = annotated(vec![User::Scale(1), User::Since(0, None), User::Since(1, None)]);
    find(Fault::WaitEndsWithTime, GUARDED, removed);
}

#[test]
fn a_bug_that_forgets_a_removed_hook_is_found() {
    for change in [User::Template(1), User::Scale(1)] {
        let scope = Scope { user: vec![User::Unhook, change], ..protected() };
        find(Fault::RemovedHookForgotten, GUARDED, scope);
    }
}

#[test]
fn bugs_in_the_budget_of_guarded_pods_are_found() {
    // The initial budget was applied without the bug, so the guard is switched off and on again.
    let reapplied = |user: Vec<User>| Scope {
        user: [vec![User::Guard(false), User::Guard(true)], user].concat(),
        remaining: remaining(4, 0, 0),
        ..protected()
    };
    let surplus = reapplied(vec![User::Scale(1), User::Evict(0)]);
    find(Fault::SurplusEvictable, GUARDED, surplus);
    let unready = Scope {
        replicas: 1,
        remaining: Remaining { breaks: 1, ..remaining(3, 0, 0) },
        ..reapplied(vec![User::Evict(0)])
    };
    find(Fault::UnreadyEvictable, GUARDED, unready);
}

#[test]
fn bugs_in_foreground_deletions_are_found() {
    let deleted = || Scope { user: vec![User::DeleteWorkload(Cascade::Foreground)], ..protected() };
    find(Fault::FinalizerFirst, GUARDED, deleted());
    find(Fault::LabelsFirst, GUARDED, deleted());
}

#[test]
fn bugs_in_releases_are_found() {
    let released = || Scope { user: vec![User::Release(0), User::Scale(1)], ..protected() };
    find(Fault::ReleaseForgotten, GUARDED, released());
    find(Fault::AllReleased, HOOK, released());
}

#[test]
fn bugs_in_moves_off_nodes_are_found() {
    let node_becomes = |nodes: &[Node]| Scope {
        user: nodes.iter().copied().map(User::Node).collect(),
        ..moving_off_nodes()
    };
    let tolerated = node_becomes(&[Node::Tolerated]);
    find(Fault::TolerationIgnored, NODES, tolerated);
    let cordoned = node_becomes(&[Node::Cordoned]);
    find(Fault::GoingOverlooked, SETTLES, cordoned);
    let going = node_becomes(&[Node::Going]);
    find(Fault::GoingOverlooked, SETTLES, going);
    let uncordoned = node_becomes(&[Node::Cordoned, Node::Fine]);
    find(Fault::RequestKept, SETTLES, uncordoned.clone());
    find(Fault::OutdatedRequestCounts, NODES, uncordoned);
    find(Fault::SilentMeansLost, NODES, node_becomes(&[Node::Silent]));
    let recovered = node_becomes(&[Node::Lost, Node::Fine]);
    find(Fault::NoVersionPrecondition, GUARDED, recovered);
}

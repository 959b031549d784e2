//! Tests of the checker: each deliberate bug is found, and violates the expected rule.

use std::io::Write as _;

use super::explore;
use super::fault::Fault;
use super::state::Scope;

/// Explores a scope with a bug. The bug must be found, and must violate the expected rule.
fn find(fault: Fault, rule: &str, scope: &Scope) {
    let Err(violation) = explore(scope, Some(fault)) else {
        panic!("{fault:?} is not found");
    };
    assert!(violation.rule.contains(rule), "{fault:?}: {}\n{}", violation.rule, violation.moves);
    let moves = violation.moves.lines().count();
    let line = format!("model: {fault:?} is found after {moves} moves: {}\n", violation.rule);
    std::io::stderr().write_all(line.as_bytes()).expect("a terminal");
}

const INSTALL: Scope = Scope {
    workers: 1,
    failures: 0,
    crashes: 0,
    deletions: 0,
    joins: 0,
    losses: 0,
    edits: 0,
    pauses: 0,
    version_changes: 0,
    early_kubelets: 0,
};
const UPGRADE: Scope = Scope { version_changes: 1, ..INSTALL };
const UNPROVEN: &str = "is recorded without a success";

#[test]
fn bugs_in_the_order_of_an_install_are_found() {
    let failing = Scope { failures: 1, ..INSTALL };
    find(Fault::RunningMeansPassed, UNPROVEN, &INSTALL);
    find(Fault::FailureMeansPassed, UNPROVEN, &failing);
    find(Fault::NeverRetried, "the Cluster hangs", &failing);
    find(Fault::FirstHookIgnored, "too early", &INSTALL);
    find(Fault::WorkerIsMaster, "not the first master", &INSTALL);
    let nodes = Scope { workers: 0, joins: 1, losses: 1, ..INSTALL };
    find(Fault::LossIgnored, "which is lost", &nodes);
    find(Fault::TaintRemovedFirst, "loses its taint", &nodes);
    find(Fault::StatusAlwaysWritten, "does not settle", &INSTALL);
}

#[test]
fn bugs_in_handling_a_users_changes_are_found() {
    let deleted = Scope { deletions: 1, ..INSTALL };
    find(Fault::NoQuorumGet, "in the wrong phase", &deleted);
    find(Fault::DeleteHooksIgnored, "is removed before Ensure", &deleted);
    find(Fault::RecordsIgnored, "before the records", &deleted);
    let paused = Scope { pauses: 1, ..INSTALL };
    find(Fault::PauseIgnored, "while paused", &paused);
    let edited = Scope { edits: 1, ..INSTALL };
    find(Fault::OwnWritesUnseen, "is repeated", &edited);
    find(Fault::CanceledMeansEnded, "two scripts run on", &edited);
}

#[test]
fn bugs_in_upgrades_are_found() {
    find(Fault::KubeletIgnored, "too early", &UPGRADE);
    find(Fault::CordonIgnored, "before its node is cordoned", &UPGRADE);
    find(Fault::CordonKept, "left cordoned", &UPGRADE);
    find(Fault::NodesAtOnce, "while another node is being upgraded", &UPGRADE);
    let reverted = Scope { version_changes: 2, ..UPGRADE };
    find(Fault::RevertIgnored, "was set back", &reverted);
    let upgraded_again = Scope { workers: 0, version_changes: 3, ..UPGRADE };
    find(Fault::AnyUpgradeCounts, UNPROVEN, &upgraded_again);
}

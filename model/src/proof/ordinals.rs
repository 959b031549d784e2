//! Bugs in ordinals and indexes: order, ranges, reservations and surge.

use super::{ENOUGH, HOOK, INDEXES, ORDINALS, PARTITION, PAUSED, RESERVED, find, scaled, updated};
use crate::fault::Fault;
use crate::scope::{Amount, Scope, Step, User};
use crate::scopes::{indexed, remaining, stateful_set, surging_stateful_set};

#[test]
fn bugs_in_ordinals_are_found() {
    use gamekeeper_core::api::PodManagementPolicy::{OrderedReady, Parallel};
    let grown =
        || Scope { pre_delete: false, user: vec![User::Scale(5)], ..stateful_set(OrderedReady) };
    find(Fault::OrderIgnored, ORDINALS, grown());
    find(Fault::HealthIgnored, ORDINALS, grown());
    let shrunk = Scope { user: vec![User::Scale(1)], ..stateful_set(OrderedReady) };
    find(Fault::OrderIgnored, ORDINALS, shrunk);
    let updated_in_order =
        Scope { pre_delete: false, user: vec![User::Template(1)], ..stateful_set(OrderedReady) };
    find(Fault::NoBudget, ENOUGH, updated_in_order);
    let canary = Scope {
        steps: vec![vec![Step::Partition(Amount::Number(2)), Step::Pause(None)]],
        pre_delete: false,
        user: vec![User::Template(1)],
        ..stateful_set(Parallel)
    };
    find(Fault::NoPartition, PARTITION, canary);
    let changed = || Scope { user: [scaled(), updated()].concat(), ..stateful_set(Parallel) };
    let changed_more = Scope { remaining: remaining(3, 0, 0), ..changed() };
    find(Fault::AnyTargetCounts, HOOK, changed_more);
    find(Fault::SuccessKept, HOOK, changed());
    find(Fault::OffByOne, ENOUGH, changed());
    let user = vec![User::Template(1), User::Pause];
    find(Fault::NoQuorumGet, PAUSED, Scope { user, ..stateful_set(Parallel) });
}

#[test]
fn a_bug_that_deletes_surge_pods_early_is_found() {
    let scope =
        Scope { pre_delete: false, user: vec![User::Template(1)], ..surging_stateful_set() };
    find(Fault::SurgeLeavesEarly, ENOUGH, scope);
}

#[test]
fn bugs_in_reserved_ordinals_are_found() {
    use gamekeeper_core::api::PodManagementPolicy::{OrderedReady, Parallel};
    let grown = || Scope {
        pre_delete: false,
        user: vec![User::Reserve(3), User::Scale(4)],
        ..stateful_set(Parallel)
    };
    find(Fault::ReservationIgnored, RESERVED, grown());
    find(Fault::NoQuorumGet, RESERVED, grown());
    let reserved = |policy| Scope { user: vec![User::Reserve(1)], ..stateful_set(policy) };
    find(Fault::HealthIgnored, ENOUGH, reserved(Parallel));
    find(Fault::HealthIgnored, ENOUGH, reserved(OrderedReady));
}

#[test]
fn bugs_in_indexes_are_found() {
    let scope =
        Scope { pre_delete: false, user: vec![User::Template(1), User::Scale(2)], ..indexed() };
    find(Fault::TerminatingIndexFree, INDEXES, scope);
}

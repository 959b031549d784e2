//! Bugs in hooks: what a success is valid for, and which pods need one.

use gamekeeper_core::api::ContainerOrder;
use gamekeeper_core::api::names::HookPoint;

use super::{GATE, HOOK, HOT_PATCHES, ONE_RUN, find, scaled, updated};
use crate::fault::Fault;
use crate::scope::{Scope, User};
use crate::scopes::{
    another_strategy_after_the_hook, hooked, hot_patched_on_nodes_that_differ, in_order, in_place,
    one_container_after_the_other, remaining,
};
use crate::state::Remaining;

#[test]
fn bugs_in_the_validity_of_successes_are_found() {
    let user = [scaled(), updated()].concat();
    find(Fault::AnyTargetCounts, HOOK, Scope { user, ..hooked() });
    let scope = Scope {
        user: scaled(),
        ticks: vec![7],
        remaining: Remaining { ticks: 1, ..remaining(1, 0, 0) },
        ..hooked()
    };
    find(Fault::OldSuccessCounts, HOOK, scope);
    let scope = Scope { user: scaled(), ahead: 7, ..hooked() };
    find(Fault::FutureSuccessCounts, HOOK, scope);
    find(Fault::SuccessKept, HOOK, Scope { user: updated(), ..hooked() });
    let user = vec![User::Scale(2), User::Retry(HookPoint::PreDelete)];
    find(Fault::RetryMeansSuccess, HOOK, Scope { user, ..hooked() });
    let user = vec![User::Scale(2), User::Hook(1)];
    find(Fault::AnyArgumentsCount, HOOK, Scope { user, ..hooked() });
}

#[test]
fn bugs_in_what_a_success_is_for_are_found() {
    let fault = Fault::AnyContainerCovered;
    find(fault, HOOK, one_container_after_the_other());
    let fault = Fault::ChangeCountsForDeletion;
    find(fault, HOOK, another_strategy_after_the_hook());
}

#[test]
fn bugs_in_hot_patches_are_found() {
    for fault in [Fault::HotPatchRestartOverlooked, Fault::OneNodeProvesAll] {
        find(fault, HOT_PATCHES, hot_patched_on_nodes_that_differ());
    }
}

#[test]
fn bugs_in_the_protection_of_running_pods_are_found() {
    let scaled_out_and_in = || Scope { user: vec![User::Scale(4), User::Scale(3)], ..hooked() };
    let late_sidecars = Scope { late_sidecars: true, ..scaled_out_and_in() };
    find(Fault::PhaseDecides, HOOK, late_sidecars);
    find(Fault::NoVersionPrecondition, HOOK, scaled_out_and_in());
    let crashes = Scope {
        user: vec![User::Scale(2)],
        container_crashes: true,
        remaining: Remaining { breaks: 1, ..remaining(1, 0, 0) },
        ..hooked()
    };
    find(Fault::NoVersionPrecondition, HOOK, crashes);
    let changed = |pre_inplace: bool| Scope {
        pre_inplace,
        user: vec![User::Scale(4), User::Template(1)],
        ..in_place()
    };
    find(Fault::NoVersionPreconditionInPlace, HOOK, changed(true));
    find(Fault::NoVersionPreconditionInPlace, GATE, changed(false));
}

#[test]
fn bugs_in_hooks_of_updates_are_found() {
    let scope = Scope { pre_delete: false, pre_inplace: true, user: updated(), ..hooked() };
    find(Fault::RecreationUnguarded, HOOK, scope);
    let scope = Scope { post_inplace: true, user: updated(), ..in_place() };
    find(Fault::PostHookIgnored, HOOK, scope);
    let scope = Scope { post_inplace: true, user: updated(), ..in_place() };
    find(Fault::OtherRunsOverlooked, ONE_RUN, scope);
    let scope =
        Scope { pre_inplace: false, user: vec![User::Scale(4), User::Template(1)], ..in_place() };
    find(Fault::UnsetGateIgnored, GATE, scope);
    let scope = Scope { user: updated(), ..in_order() };
    find(Fault::TurnNotAwaited, "containers in order", scope);
    let scope = Scope {
        order: ContainerOrder::OrderedReady,
        user: updated(),
        remaining: Remaining { breaks: 1, ..remaining(1, 0, 0) },
        ..in_order()
    };
    let fault = Fault::NoVersionPreconditionInPlace;
    find(fault, "containers in order", scope);
}

//! Bugs in sidecars: tokens, limits of the set, and hooks.

use super::{
    CANARY_STEPS, ENOUGH, GAME, HOOK, INJECTED, LIMIT, ONE_CHANGE, SET, SETTLES, TOKEN, find,
};
use crate::fault::Fault;
use crate::scope::{Scope, Step, User};
use crate::scopes::{sidecars_with_steps, with_sidecars};
use crate::sidecars::{SetChange, SidecarScope};

/// Pods with sidecars, and a user who makes these changes to the SidecarSet.
fn changed(changes: &[SetChange]) -> Scope {
    Scope {
        user: changes.iter().copied().map(User::Sidecars).collect(),
        ..with_sidecars(SidecarScope::default())
    }
}

#[test]
fn bugs_in_tokens_are_found() {
    use SetChange::{Image, Pause};
    find(Fault::NoTokenNeeded, TOKEN, changed(&[Image(1)]));
    find(Fault::SetUpdatesPods, TOKEN, changed(&[Image(1)]));
    find(Fault::TokenUntested, TOKEN, changed(&[Image(1), Pause]));
    find(Fault::TokenKept, SETTLES, changed(&[Image(1), Image(0)]));
    let set = SidecarScope { set_lags: true, ..SidecarScope::default() };
    let scope = Scope { sidecars: Some(set), ..changed(&[Image(1), Pause]) };
    find(Fault::NoQuorumGetOfSet, SET, scope);
    let user = vec![User::Scale(3)];
    let scope = Scope { user, ..changed(&[]) };
    find(Fault::InjectionForgotten, INJECTED, scope);
}

#[test]
fn bugs_in_limits_of_sidecars_are_found() {
    use SetChange::Image;
    let two_unavailable = SidecarScope { max_unavailable: 2, ..SidecarScope::default() };
    let scope = Scope { sidecars: Some(two_unavailable), ..changed(&[Image(1)]) };
    find(Fault::NoBudget, ENOUGH, scope);
    find(Fault::SetLimitIgnored, LIMIT, changed(&[Image(1)]));
    find(Fault::BusyIgnored, LIMIT, changed(&[Image(1)]));
    let lagging = SidecarScope { set_lags: true, pods_lag: true, ..SidecarScope::default() };
    let scope = Scope { sidecars: Some(lagging), ..changed(&[Image(1), Image(0)]) };
    find(Fault::OwnTokensUnseen, LIMIT, scope);
}

#[test]
fn bugs_in_hooks_of_sidecars_are_found() {
    let both = || Scope {
        pre_inplace: true,
        user: vec![User::Sidecars(SetChange::Image(1)), User::Template(1)],
        ..changed(&[])
    };
    find(Fault::SidecarsUnguarded, HOOK, both());
    find(Fault::SuccessOfGameCounts, HOOK, both());
    find(Fault::SupersededForgotten, ONE_CHANGE, both());
    find(Fault::GameRestarted, GAME, changed(&[SetChange::Image(1)]));
}

#[test]
fn a_bug_that_updates_sidecars_at_a_canary_step_is_found() {
    let scope = sidecars_with_steps(Step::Pause(None));
    find(Fault::SidecarsAtSteps, CANARY_STEPS, scope);
}

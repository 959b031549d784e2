//! Tests of the checker: each deliberate bug is found, and violates the expected rule.

use std::io::Write as _;

use gamekeeper_core::api::ContainerOrder;
use gamekeeper_core::api::names::HookPoint;

use super::explore::explore;
use super::fault::Fault;
use super::model::Model;
use super::scope::{Amount, Scope, Step, User};
use super::scopes::{
    hooked, in_order, in_place, indexed, leaving, paused_without_steps, protected, recreated,
    remaining, set, surging, with_sidecars,
};
use super::sidecars::{SetChange, SidecarScope};
use super::start::start;
use super::state::{Cascade, Node, Remaining};

/// Explores a scope with a bug until it is found, and compares the violated rule.
fn find(fault: Fault, rule: &str, scope: Scope) {
    let mut model = Model::new(scope);
    let start = start(&model);
    model.plant(fault);
    let counterexample = match explore(&model, &start, rule == SETTLES) {
        Ok(explored) => panic!("{fault:?} is not found in {explored}"),
        Err(counterexample) => counterexample,
    };
    assert_eq!(
        counterexample.violation.rule, rule,
        "{fault:?}: {counterexample}"
    );
    let moves = counterexample.moves.len();
    let line = format!("model: {fault:?} is found after {moves} moves: {rule}\n");
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("a terminal");
}

const HOOK: &str = "1: hook first";
const GATE: &str = "gate closed";
const ENOUGH: &str = "2: enough pods";
const TOO_MANY: &str = "2: not too many pods";
const PARTITION: &str = "3: partition";
const PAUSES: &str = "4: pauses";
const PAUSED: &str = "5: paused";
const ONE_RUN: &str = "6: one HookRun";
const ORDINALS: &str = "7: ordinals";
const RESERVED: &str = "7: reserved ordinals";
const INDEXES: &str = "7: pod indexes";
const BATCHES: &str = "batches";
const GUARDED: &str = "11: guarded";
const NODES: &str = "nodes";
const SETTLES: &str = "settles";
const TOKEN: &str = "13: token";
const LIMIT: &str = "13: limit of the set";
const SET: &str = "13: the set's spec";
const GAME: &str = "13: game";
const ONE_CHANGE: &str = "13: one change";
const INJECTED: &str = "13: injected";

fn updated() -> Vec<User> {
    vec![User::Template(1), User::Template(0)]
}

fn scaled() -> Vec<User> {
    vec![User::Scale(2), User::Scale(3)]
}

fn canary(steps: &[Step]) -> Scope {
    Scope {
        pre_delete: false,
        steps: vec![steps.to_vec()],
        user: vec![User::Template(1), User::Resume],
        ..hooked()
    }
}

#[test]
fn bugs_in_pauses_and_steps_are_found() {
    let user = vec![User::Template(1), User::Pause];
    let pause = [Step::Pause(None), Step::Partition(Amount::Number(0))];
    find(Fault::PauseWithoutAnnotation, PAUSES, canary(&pause));
    find(Fault::PauseIgnored, PAUSED, Scope { user, ..hooked() });
    let partition = [Step::Partition(Amount::Number(2)), Step::Pause(None)];
    find(Fault::NoPartition, PARTITION, canary(&partition));
    find(Fault::StatusLast, PARTITION, canary(&partition));
    let scope = Scope {
        user: updated(),
        remaining: remaining(3, 0, 0),
        ..canary(&[Step::Hook])
    };
    find(Fault::StepRunsKept, SETTLES, scope);
    let scope = Scope {
        templates: 3,
        user: vec![User::Template(1), User::Promote, User::Template(2)],
        remaining: remaining(3, 0, 0),
        ..canary(&pause)
    };
    find(Fault::AnyPromotionCounts, PAUSES, scope);
}

#[test]
fn bugs_in_the_memory_of_a_rollout_are_found() {
    find(Fault::HeldKept, PARTITION, paused_without_steps());
    find(Fault::LostStatusMeansDone, PAUSES, recreated());
}

#[test]
fn bugs_in_the_validity_of_successes_are_found() {
    let both = [scaled(), updated()].concat();
    find(
        Fault::AnyTargetCounts,
        HOOK,
        Scope {
            user: both,
            ..hooked()
        },
    );
    let scope = Scope {
        user: scaled(),
        ticks: vec![7],
        remaining: Remaining {
            ticks: 1,
            ..remaining(1, 0, 0)
        },
        ..hooked()
    };
    find(Fault::OldSuccessCounts, HOOK, scope);
    let scope = Scope {
        user: scaled(),
        ahead: 7,
        ..hooked()
    };
    find(Fault::FutureSuccessCounts, HOOK, scope);
    find(
        Fault::SuccessKept,
        HOOK,
        Scope {
            user: updated(),
            ..hooked()
        },
    );
    let user = vec![User::Scale(2), User::Retry(HookPoint::PreDelete)];
    find(Fault::RetryMeansSuccess, HOOK, Scope { user, ..hooked() });
    let user = vec![User::Scale(2), User::Hook(1)];
    find(Fault::AnyArgumentsCount, HOOK, Scope { user, ..hooked() });
}

#[test]
fn bugs_in_the_protection_of_running_pods_are_found() {
    let grown = || Scope {
        user: vec![User::Scale(4), User::Scale(3)],
        ..hooked()
    };
    let late = Scope {
        late_sidecars: true,
        ..grown()
    };
    find(Fault::PhaseDecides, HOOK, late);
    find(Fault::NoVersionPrecondition, HOOK, grown());
    let crashes = Scope {
        user: vec![User::Scale(2)],
        crashes: true,
        remaining: Remaining {
            breaks: 1,
            ..remaining(1, 0, 0)
        },
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
    let scope = Scope {
        pre_delete: false,
        pre_inplace: true,
        user: updated(),
        ..hooked()
    };
    find(Fault::RecreationUnguarded, HOOK, scope);
    let scope = Scope {
        post_inplace: true,
        user: updated(),
        ..in_place()
    };
    find(Fault::PostHookIgnored, HOOK, scope);
    let scope = Scope {
        post_inplace: true,
        user: updated(),
        ..in_place()
    };
    find(Fault::OtherRunsOverlooked, ONE_RUN, scope);
    let scope = Scope {
        pre_inplace: false,
        user: vec![User::Scale(4), User::Template(1)],
        ..in_place()
    };
    find(Fault::UnsetGateIgnored, GATE, scope);
    let scope = Scope {
        user: updated(),
        ..in_order()
    };
    find(Fault::TurnNotAwaited, "containers in order", scope);
    let scope = Scope {
        order: ContainerOrder::OrderedReady,
        user: updated(),
        remaining: Remaining {
            breaks: 1,
            ..remaining(1, 0, 0)
        },
        ..in_order()
    };
    let fault = Fault::NoVersionPreconditionInPlace;
    find(fault, "containers in order", scope);
}

#[test]
fn bugs_in_choices_and_budgets_are_found() {
    let scope = Scope {
        pre_delete: true,
        user: vec![User::Scale(2), User::Template(1)],
        ..in_place()
    };
    find(Fault::WaitingIgnored, "choice of pods", scope);
    find(
        Fault::NoBudget,
        ENOUGH,
        Scope {
            user: updated(),
            ..hooked()
        },
    );
    let scope = Scope {
        min_ready: 1,
        user: updated(),
        ..in_place()
    };
    find(Fault::NotYetAvailableIsFree, ENOUGH, scope);
    let scope = Scope {
        refused: Some(1),
        user: updated(),
        ..hooked()
    };
    find(Fault::NotAcceptedFirst, "accepted first", scope);
}

#[test]
fn bugs_in_cancellations_are_found() {
    find(
        Fault::MarkKept,
        SETTLES,
        Scope {
            user: scaled(),
            ..hooked()
        },
    );
    let scope = Scope {
        user: vec![User::Template(1), User::Pause],
        grace: 1,
        ..in_place()
    };
    find(Fault::GateKeptClosed, SETTLES, scope);
}

#[test]
fn bugs_in_ordinals_are_found() {
    use gamekeeper_core::api::PodManagementPolicy::{OrderedReady, Parallel};
    let grown = || Scope {
        pre_delete: false,
        user: vec![User::Scale(5)],
        ..set(OrderedReady)
    };
    find(Fault::OrderIgnored, ORDINALS, grown());
    find(Fault::HealthIgnored, ORDINALS, grown());
    let shrunk = Scope {
        user: vec![User::Scale(1)],
        ..set(OrderedReady)
    };
    find(Fault::OrderIgnored, ORDINALS, shrunk);
    let kept = Scope {
        pre_delete: false,
        user: vec![User::Template(1)],
        ..set(OrderedReady)
    };
    find(Fault::NoBudget, ENOUGH, kept);
    let step = Scope {
        steps: vec![vec![Step::Partition(Amount::Number(2)), Step::Pause(None)]],
        pre_delete: false,
        user: vec![User::Template(1)],
        ..set(Parallel)
    };
    find(Fault::NoPartition, PARTITION, step);
    let scope = || Scope {
        user: [scaled(), updated()].concat(),
        ..set(Parallel)
    };
    let more = Scope {
        remaining: remaining(3, 0, 0),
        ..scope()
    };
    find(Fault::AnyTargetCounts, HOOK, more);
    find(Fault::SuccessKept, HOOK, scope());
    find(Fault::OffByOne, ENOUGH, scope());
    let user = vec![User::Template(1), User::Pause];
    find(
        Fault::NoQuorumGet,
        PAUSED,
        Scope {
            user,
            ..set(Parallel)
        },
    );
}

#[test]
fn a_bug_that_deletes_surge_pods_early_is_found() {
    let scope = Scope {
        pre_delete: false,
        user: vec![User::Template(1)],
        ..surging()
    };
    find(Fault::SurgeLeavesEarly, ENOUGH, scope);
}

#[test]
fn bugs_in_reserved_ordinals_are_found() {
    use gamekeeper_core::api::PodManagementPolicy::{OrderedReady, Parallel};
    let grown = || Scope {
        pre_delete: false,
        user: vec![User::Reserve(3), User::Scale(4)],
        ..set(Parallel)
    };
    find(Fault::ReservationIgnored, RESERVED, grown());
    find(Fault::NoQuorumGet, RESERVED, grown());
    let reserved = |policy| Scope {
        user: vec![User::Reserve(1)],
        ..set(policy)
    };
    find(Fault::HealthIgnored, ENOUGH, reserved(Parallel));
    find(Fault::HealthIgnored, ENOUGH, reserved(OrderedReady));
}

#[test]
fn bugs_in_indexes_are_found() {
    let scope = || Scope {
        pre_delete: false,
        user: vec![User::Template(1), User::Scale(2)],
        ..indexed()
    };
    find(Fault::TerminatingIndexFree, INDEXES, scope());
}

#[test]
fn bugs_in_batches_are_found() {
    let scope = || Scope {
        batch: 1,
        pre_delete: false,
        ..hooked()
    };
    find(Fault::HealthIgnored, BATCHES, scope());
    find(Fault::StatusLast, BATCHES, scope());
}

#[test]
fn bugs_in_guards_are_found() {
    let switched = Scope {
        user: vec![User::Guard(false)],
        ..protected()
    };
    find(Fault::BudgetFirst, GUARDED, switched);
    let deleted = |cascade| Scope {
        user: vec![User::Scale(1), User::DeleteWorkload(cascade)],
        ..protected()
    };
    let background = deleted(Cascade::Background);
    find(Fault::FinalizerFirst, GUARDED, background);
    // A pod that is to be deleted by a scale-in is orphaned, and its hook allows the deletion afterwards.
    let orphan = deleted(Cascade::Orphan);
    find(Fault::NoVersionPrecondition, GUARDED, orphan);
    let user = vec![User::Scale(1)];
    let scope = Scope {
        user,
        ..protected()
    };
    find(Fault::DeadlinePassesImmediately, HOOK, scope);
}

#[test]
fn bugs_in_the_budget_of_guarded_pods_are_found() {
    // The budget that is in force at the start was applied without the bug.
    let applied = |user: Vec<User>| Scope {
        user: [vec![User::Guard(false), User::Guard(true)], user].concat(),
        remaining: remaining(4, 0, 0),
        ..protected()
    };
    let surplus = applied(vec![User::Scale(1), User::Evict(0)]);
    find(Fault::SurplusEvictable, GUARDED, surplus);
    let unready = Scope {
        replicas: 1,
        remaining: Remaining {
            breaks: 1,
            ..remaining(3, 0, 0)
        },
        ..applied(vec![User::Evict(0)])
    };
    find(Fault::UnreadyEvictable, GUARDED, unready);
}

#[test]
fn bugs_in_foreground_deletions_are_found() {
    let deleted = || Scope {
        user: vec![User::DeleteWorkload(Cascade::Foreground)],
        ..protected()
    };
    find(Fault::FinalizerFirst, GUARDED, deleted());
    find(Fault::LabelsFirst, GUARDED, deleted());
}

#[test]
fn bugs_in_releases_are_found() {
    let released = || Scope {
        user: vec![User::Release(0), User::Scale(1)],
        ..protected()
    };
    find(Fault::ReleaseForgotten, GUARDED, released());
    find(Fault::AllReleased, HOOK, released());
}

#[test]
fn bugs_in_moves_off_nodes_are_found() {
    let with = |nodes: &[Node]| Scope {
        user: nodes.iter().copied().map(User::Node).collect(),
        ..leaving()
    };
    find(Fault::TolerationIgnored, NODES, with(&[Node::Tolerated]));
    find(Fault::GoingOverlooked, SETTLES, with(&[Node::Cordoned]));
    find(Fault::GoingOverlooked, SETTLES, with(&[Node::Going]));
    let uncordoned = with(&[Node::Cordoned, Node::Fine]);
    find(Fault::RequestKept, SETTLES, uncordoned.clone());
    find(Fault::OutdatedRequestCounts, NODES, uncordoned);
    find(Fault::SilentMeansLost, NODES, with(&[Node::Silent]));
    let back = with(&[Node::Lost, Node::Fine]);
    find(Fault::NoVersionPrecondition, GUARDED, back);
}

#[test]
fn bugs_in_the_execution_of_plans_are_found() {
    let user = vec![User::Template(1), User::Pause];
    find(Fault::NoQuorumGet, PAUSED, Scope { user, ..hooked() });
    let scope = Scope {
        pre_delete: false,
        user: vec![User::Template(1)],
        ..hooked()
    };
    find(Fault::OwnWritesUnseen, TOO_MANY, scope);
    let user = vec![User::Scale(5)];
    let scope = Scope { user, ..hooked() };
    find(Fault::LeaderDoesNotWait, TOO_MANY, scope);
}

/// Pods with sidecars, whose set users change in these ways.
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
    let set = SidecarScope {
        set_lags: true,
        ..SidecarScope::default()
    };
    let scope = Scope {
        sidecars: Some(set),
        ..changed(&[Image(1), Pause])
    };
    find(Fault::NoQuorumGetOfSet, SET, scope);
    let user = vec![User::Scale(3)];
    let scope = Scope {
        user,
        ..changed(&[])
    };
    find(Fault::InjectionForgotten, INJECTED, scope);
}

#[test]
fn bugs_in_limits_of_sidecars_are_found() {
    use SetChange::Image;
    let two = SidecarScope {
        max_unavailable: 2,
        ..SidecarScope::default()
    };
    let scope = Scope {
        sidecars: Some(two),
        ..changed(&[Image(1)])
    };
    find(Fault::NoBudget, ENOUGH, scope);
    find(Fault::SetLimitIgnored, LIMIT, changed(&[Image(1)]));
    find(Fault::BusyIgnored, LIMIT, changed(&[Image(1)]));
    let lagging = SidecarScope {
        set_lags: true,
        pods_lag: true,
        ..SidecarScope::default()
    };
    let scope = Scope {
        sidecars: Some(lagging),
        ..changed(&[Image(1), Image(0)])
    };
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
    find(Fault::MistakenForGame, HOOK, both());
    find(Fault::SupersededForgotten, ONE_CHANGE, both());
    find(Fault::GameRestarted, GAME, changed(&[SetChange::Image(1)]));
}

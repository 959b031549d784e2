//! Bugs in rollouts: steps, pauses, choices, budgets, batches, and the execution of plans.

use super::{
    BATCHES, ENOUGH, ONE_TRIAL, PARTITION, PAUSED, PAUSES, SETTLES, TOO_MANY, find, scaled, updated,
};
use crate::fault::Fault;
use crate::scope::{Amount, Quota, QuotaKind, Scope, Step, User};
use crate::scopes::{
    denied, first_templates, hooked, in_place, paused_without_steps, recreated, remaining, surge,
    three_revisions,
};

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
    let scope = Scope { user: updated(), remaining: remaining(3, 0, 0), ..canary(&[Step::Hook]) };
    find(Fault::StepRunsKept, SETTLES, scope);
    let scope = Scope {
        templates: 3,
        user: vec![User::Template(1), User::Promote, User::Template(2)],
        remaining: remaining(3, 0, 0),
        ..canary(&pause)
    };
    find(Fault::AnyPromotionCounts, PAUSES, scope);
    let scope = Scope { remaining: remaining(2, 0, 0), ..three_revisions() };
    find(Fault::OtherCanaryCounts, PAUSES, scope);
    find(Fault::RefusalForgotten, SETTLES, denied());
}

#[test]
fn bugs_in_requested_replacements_are_found() {
    let user = vec![User::PodToDelete(0), User::Pause];
    let scope = Scope { user, ..surge() };
    find(Fault::RequestsPaused, SETTLES, scope.clone());
    find(Fault::SurgeForgotten, ENOUGH, scope);
}

#[test]
fn bugs_in_the_memory_of_a_rollout_are_found() {
    find(Fault::HeldKept, PARTITION, paused_without_steps());
    find(Fault::LostStatusMeansDone, PAUSES, recreated());
}

#[test]
fn bugs_in_choices_and_budgets_are_found() {
    let scope =
        Scope { pre_delete: true, user: vec![User::Scale(2), User::Template(1)], ..in_place() };
    find(Fault::WaitingIgnored, "choice of pods", scope);
    find(Fault::NoBudget, ENOUGH, Scope { user: updated(), ..hooked() });
    let scope = Scope { min_ready: 1, user: updated(), ..in_place() };
    find(Fault::NotYetAvailableIsFree, ENOUGH, scope);
    let scope = Scope { refused: Some(1), user: updated(), ..hooked() };
    find(Fault::NotAcceptedFirst, "accepted first", scope);
}

#[test]
fn bugs_in_trials_of_quotas_are_found() {
    let scope = |kind| Scope {
        quota: Some(Quota { rev: 1, kind }),
        max_unavailable: Amount::Number(2),
        user: vec![User::Template(1)],
        pre_delete: false,
        ..hooked()
    };
    find(Fault::QuotaFitsAll, ONE_TRIAL, scope(QuotaKind::Pods));
    find(Fault::TrialForgotten, ONE_TRIAL, scope(QuotaKind::Second));
    find(Fault::AmountsIgnored, ONE_TRIAL, scope(QuotaKind::Twice));
    find(Fault::QuotaScopesIgnored, ONE_TRIAL, scope(QuotaKind::Scoped));
}

#[test]
fn bugs_with_a_first_template_that_never_works_are_found() {
    for scope in first_templates() {
        find(Fault::FirstCountsAsStable, SETTLES, scope);
    }
}

#[test]
fn bugs_in_batches_are_found() {
    let scope = || Scope { batch: 1, pre_delete: false, ..hooked() };
    find(Fault::HealthIgnored, BATCHES, scope());
    find(Fault::StatusLast, BATCHES, scope());
}

#[test]
fn bugs_in_cancellations_are_found() {
    find(Fault::MarkKept, SETTLES, Scope { user: scaled(), ..hooked() });
    let scope = Scope { user: vec![User::Template(1), User::Pause], grace: 1, ..in_place() };
    find(Fault::GateKeptClosed, SETTLES, scope);
}

#[test]
fn bugs_in_the_execution_of_plans_are_found() {
    let user = vec![User::Template(1), User::Pause];
    find(Fault::NoQuorumGet, PAUSED, Scope { user, ..hooked() });
    let scope = Scope { pre_delete: false, user: vec![User::Template(1)], ..hooked() };
    find(Fault::OwnWritesUnseen, TOO_MANY, scope);
    let user = vec![User::Scale(5)];
    let scope = Scope { user, ..hooked() };
    find(Fault::LeaderDoesNotWait, TOO_MANY, scope);
}

//! Pods that do not start, run or end as they should, as the causes in the status show them, and pods that are to be
//! moved.

use gamekeeper_core::advice::advice;
use gamekeeper_core::api::names::MOVE_ANNOTATION;
use gamekeeper_core::api::{Cause, ConditionType, Reason};
use gamekeeper_core::text::counted;
use kube::ResourceExt;

use super::{End, Finding};
use crate::game::Game;
use crate::scene::Scene;

fn of_pods(game: &Game) -> impl Iterator<Item = &Cause> {
    let causes = game.status.causes.iter();
    causes.filter(|it| Reason::parse(&it.reason).is_some_and(Reason::is_pod_trouble))
}

/// Pods that do not start, run or end as they should. They stop the rollout once the progress deadline has passed.
pub(super) fn troubles(game: &Game) -> Vec<Finding> {
    let progressing = game.status.condition(ConditionType::Progressing);
    let reason = progressing.and_then(|it| Reason::parse(&it.reason));
    let is_overdue = reason == Some(Reason::ProgressDeadlineExceeded);
    let finding = |(index, cause): (usize, &Cause)| {
        let progress = match index {
            0 => format!("{}; ", counts(game)),
            _ => String::new(),
        };
        let sentence = format!("{progress}{}", cause.sentence());
        let (end, word) = match is_overdue {
            true => (End::Stopped, "Blocked"),
            false => (End::InProgress, "Waiting"),
        };
        let sentence = match is_overdue && index == 0 {
            true => {
                let message = progressing.map_or("", |it| it.message.as_str());
                format!("{}; {message}", counts(game))
            }
            false => sentence,
        };
        let finding = Finding::new(end, word, sentence)
            .since(Some(cause.since.0))
            .about(cause.pods.clone())
            .with_commands(advice(cause, &game.subject()));
        Finding { actor: cause.actor, until: cause.until.as_ref().map(|it| it.0), ..finding }
    };
    of_pods(game).enumerate().map(finding).collect()
}

fn counts(game: &Game) -> String {
    format!("{} of {} pods are available", game.status.available_replicas, game.replicas)
}

/// A pause that waits for a user, who should know that the new build does not work: what is wrong comes with it, and the
/// rollback comes first.
pub(super) fn spoils_canary(game: &Game, findings: &mut Vec<Finding>) {
    let Some(first) = findings.first_mut().filter(|it| it.word == "Paused") else {
        return;
    };
    let is_bad = |it: &&Cause| {
        let bad = [Reason::ContainerCrashing, Reason::ImageNotPulled, Reason::ContainerNotCreated];
        Reason::parse(&it.reason).is_some_and(|it| bad.contains(&it))
    };
    let subject = game.subject();
    if let Some(cause) = of_pods(game).find(is_bad).filter(|_| subject.is_rolling) {
        first.sentence = format!("{}; {}", first.sentence, cause.sentence());
        let undo = subject.undo();
        first.commands.retain(|it| it.command != undo.command);
        first.commands.insert(0, undo);
        let told = cause.sentence();
        let mut is_first = true;
        findings.retain(|it| std::mem::take(&mut is_first) || !it.sentence.ends_with(&told));
    }
}

/// What is worth knowing although nothing in the workload waits: hooks that cannot run when they are needed, and drains
/// that wait for guarded pods.
pub(super) fn told_at_rest(game: &Game) -> Vec<Finding> {
    let is_told = |it: &&Cause| Reason::parse(&it.reason).is_some_and(Reason::is_told_at_rest);
    let finding = |it: &Cause| {
        let finding = Finding::new(End::Done, "Complete", it.sentence()).about(it.pods.clone());
        Finding { actor: it.actor, ..finding }.with_commands(advice(it, &game.subject()))
    };
    game.status.causes.iter().filter(is_told).map(finding).collect()
}

/// Pods whose replacement was requested. The operator may not have seen the request yet.
pub(super) fn moves(scene: &Scene) -> Option<Finding> {
    let is_moved =
        |pod: &&k8s_openapi::api::core::v1::Pod| pod.annotations().contains_key(MOVE_ANNOTATION);
    let mut moved = scene.pods.iter().filter(is_moved);
    let first = moved.next()?;
    let what = match first.metadata.deletion_timestamp.is_some() {
        true => "is being moved",
        false => "is to be moved",
    };
    let more = match moved.count() {
        0 => String::new(),
        more => format!(" ({} too)", counted(more, "more pod", "more pods")),
    };
    let sentence = format!("pod {} {what}{more}", first.name_any());
    let subject = scene.game.subject();
    let cancel = format!("move pod/{} --cancel", first.name_any());
    let finding = Finding::new(End::InProgress, "Waiting", sentence);
    Some(finding.with_commands([subject.game("cancel with", &cancel)]))
}

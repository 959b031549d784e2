//! The state of a rollout, and why it does not continue: a sentence for people, a word for tables, an exit
//! code for scripts.

pub mod hooks;
mod troubles;

use gamekeeper_core::advice::{Advice, advice};
use gamekeeper_core::api::{Actor, CanaryStep, Cause, ConditionType, PauseReason, Reason};
use gamekeeper_core::observed::time::duration;
use jiff::Timestamp;
use kube::ResourceExt;

use self::hooks::{abbreviate, failed_hooks, running_hooks};
use self::troubles::{moves, spoils_canary, told_at_rest, troubles};
use crate::age::span;
use crate::game::Game;
use crate::scene::Scene;
use crate::style::Tone;
use crate::view::guard::waiting;
use crate::view::run::summary;

/// What happens to a rollout without further action by a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Done,
    /// It continues on its own.
    InProgress,
    /// It waits for a user.
    Stopped,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub end: End,
    /// The state in one word.
    pub word: &'static str,
    pub sentence: String,
    /// What a user can do about it.
    pub commands: Vec<Advice>,
    /// Further reasons.
    pub also: Vec<String>,
    /// Whether the rollout is complete, but a user's pause holds back the next one.
    pub holds_next: bool,
    /// What it waits for, or why it has stopped; what needs a user comes first.
    pub causes: Vec<Finding>,
}

impl Verdict {
    pub fn tone(&self) -> Tone {
        match self.word {
            "Complete" => Tone::Good,
            "Paused" => Tone::Held,
            "Blocked" => Tone::Bad,
            _ => Tone::Busy,
        }
    }

    /// The state in a table.
    pub fn label(&self) -> String {
        match self.holds_next {
            true => format!("{},Paused", self.word),
            false => self.word.to_owned(),
        }
    }

    /// What a user can do, one command to a line.
    pub fn advice(&self) -> Vec<String> {
        self.commands.iter().map(Advice::sentence).collect()
    }

    /// What a user can do, in a line.
    pub fn fix(&self) -> Option<String> {
        in_a_line(&self.commands)
    }

    /// Exit code of `status`.
    pub fn exit_code(&self) -> u8 {
        match self.end {
            End::Done => 0,
            End::Stopped => 2,
            End::InProgress => 3,
        }
    }
}

/// One reason for the state of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub end: End,
    pub word: &'static str,
    pub sentence: String,
    /// What a user can do about it.
    pub commands: Vec<Advice>,
    /// Since when, as far as that is known.
    pub since: Option<Timestamp>,
    /// When it ends by itself, if that is known.
    pub until: Option<Timestamp>,
    /// Who can change it.
    pub actor: Actor,
    /// The pods that it is about, if it is about particular pods.
    pub pods: Vec<String>,
}

impl Finding {
    fn new(end: End, word: &'static str, sentence: impl Into<String>) -> Self {
        let actor = match end {
            End::Stopped => Actor::User,
            End::Done | End::InProgress => Actor::Nobody,
        };
        let (since, until, pods) = (None, None, Vec::new());
        let (sentence, commands) = (sentence.into(), Vec::new());
        Finding { end, word, sentence, commands, since, until, actor, pods }
    }

    fn with_commands(self, commands: impl IntoIterator<Item = Advice>) -> Self {
        Finding { commands: commands.into_iter().collect(), ..self }
    }

    /// What a user can do, in a line.
    pub fn fix(&self) -> Option<String> {
        in_a_line(&self.commands)
    }

    fn since(self, since: Option<Timestamp>) -> Self {
        Finding { since, ..self }
    }

    fn about(self, pods: Vec<String>) -> Self {
        Finding { pods, ..self }
    }
}

fn in_a_line(commands: &[Advice]) -> Option<String> {
    let commands: Vec<String> = commands.iter().map(Advice::sentence).collect();
    (!commands.is_empty()).then(|| commands.join("; "))
}

/// What happens to the pods of a workload that is being deleted.
fn deleting(game: &Game) -> Finding {
    let Some(protection) = &game.status.protection else {
        let sentence = "is being deleted; its pods are deleted with it, without running hooks";
        return Finding::new(End::InProgress, "Deleting", sentence);
    };
    let names: Vec<String> = protection.waiting.iter().map(|it| it.pod_name.clone()).collect();
    let pods = match &names[..] {
        [] => "0 guarded pods wait for their hooks".to_owned(),
        [name] => format!("1 guarded pod waits for its hook: {name}"),
        names => {
            let (count, names) = (waiting(protection), abbreviate(names));
            format!("{count} guarded pods wait for their hooks: {names}")
        }
    };
    let sentence = format!("will be deleted once its pods are; {pods}");
    let release = game
        .subject()
        .game("to end all its matches now", &format!("release {}", game.short_name()));
    let finding = Finding::new(End::InProgress, "Deleting", sentence).about(names);
    match protection.waiting.is_empty() {
        true => finding,
        false => finding.with_commands([game.subject().hooks(), release]),
    }
}

/// Judges a rollout. Without its HookRuns, which some users may not list, running hooks are missed, and the sentence
/// contains less detail.
pub fn judge(scene: &Scene, now: Timestamp) -> Verdict {
    let game = &scene.game;
    let mut findings = Vec::new();
    if game.deleting {
        findings.push(deleting(game));
    } else if !game.is_observed() {
        findings.push(unobserved(game));
    } else if game.status.true_condition(ConditionType::Ready).is_some() {
        findings.extend(moves(scene));
        findings.extend(troubles(game));
        let waits = !findings.is_empty();
        findings.push(Finding::new(End::Done, "Complete", done(game)));
        if waits {
            findings.sort_by_key(|finding| std::cmp::Reverse(finding.end));
        } else if game.is_paused_by_user() {
            findings.push(pause_of_next_rollout(game));
        }
        findings.extend(upkeep(game));
        let told = told_at_rest(game);
        findings[0].commands.extend(told.iter().flat_map(|it| it.commands.clone()));
        findings.extend(told);
    } else {
        findings.extend(pause(scene, now));
        findings.extend(waiting_step(game));
        findings.extend(failures(game));
        findings.extend(upkeep(game));
        findings.extend(failed_hooks(scene, now));
        findings.extend(running_hooks(scene, now));
        findings.extend(troubles(game));
        // Findings that wait for a user come first.
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.end));
        spoils_canary(game, &mut findings);
    }
    if findings.is_empty() {
        findings.push(underway(game));
    }
    let ready = game.status.condition(ConditionType::Ready);
    let first = &mut findings[0];
    first.since = first.since.or(ready.map(|it| it.last_transition_time.0));
    Verdict {
        end: first.end,
        word: first.word,
        sentence: first.sentence.clone(),
        commands: first.commands.clone(),
        holds_next: first.end == End::Done && game.is_paused_by_user(),
        also: findings.iter().skip(1).map(|finding| finding.sentence.clone()).collect(),
        causes: findings,
    }
}

/// A rollout that goes on by itself. Between two runs of a hook, its pod waits for the next one.
fn underway(game: &Game) -> Finding {
    let cause = game.status.causes.first();
    let hook = cause.filter(|it| Reason::parse(&it.reason) == Some(Reason::HookRunning));
    let finding = match hook {
        Some(hook) => {
            let waiting = Finding::new(End::InProgress, "Waiting", hook.sentence());
            Finding { actor: hook.actor, ..waiting.since(Some(hook.since.0)) }
        }
        None => Finding::new(End::InProgress, "Updating", progress(game)),
    };
    let commands = cause.map(|cause| advice(cause, &game.subject())).unwrap_or_default();
    finding.with_commands(commands)
}

/// A user's pause that has no effect before the next rollout.
fn pause_of_next_rollout(game: &Game) -> Finding {
    let sentence = format!(
        "paused by a user (spec.updateStrategy.paused is true): the next template change waits; resume \
         with: {}",
        game.command("resume")
    );
    Finding::new(End::Done, "Paused", sentence)
}

fn unobserved(game: &Game) -> Finding {
    let sentence = format!(
        "the operator has not observed generation {} yet (last observed: {})",
        game.generation, game.status.observed_generation
    );
    Finding::new(End::InProgress, "Unseen", sentence)
        .with_commands([game.subject().game("if this persists, check the operator with", "doctor")])
}

fn done(game: &Game) -> String {
    let status = &game.status;
    let old = status.replicas - status.updated_replicas;
    if old <= 0 {
        return format!(
            "rollout complete: {} of {} pods are available at {}",
            status.available_replicas, game.replicas, status.update_revision
        );
    }
    let why = match game.partition {
        0 => "they are updated when they are deleted (OnDelete)".to_owned(),
        kept => format!("partition holds back {kept}"),
    };
    format!(
        "partial rollout complete: {} of {} pods are at {}, {old} at an older revision; {why}",
        status.updated_replicas, game.replicas, status.update_revision
    )
}

fn progress(game: &Game) -> String {
    let ready = game.status.condition(ConditionType::Ready);
    let message = ready.map_or("the rollout is in progress", |it| it.message.as_str());
    let message = match awaited(game) {
        Some(why) => format!("{message}; {why}"),
        None => message.to_owned(),
    };
    match game.step() {
        Some((index, step)) if game.is_rolling() => {
            format!("{message}; canary step {index} ({})", name_of(step))
        }
        _ => message,
    }
}

/// What the creation of pods waits for.
fn awaited(game: &Game) -> Option<&str> {
    let progressing = game.status.true_condition(ConditionType::Progressing)?;
    let waits = [Reason::CreatingInBatches, Reason::NodeDraining, Reason::PodIndexExhausted];
    let reason = Reason::parse(&progressing.reason)?;
    waits.contains(&reason).then_some(&progressing.message)
}

/// The name of a step in messages.
pub fn name_of(step: &CanaryStep) -> String {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::{Int, String as Text};
    let format_value = |value: &_| match value {
        Int(number) => number.to_string(),
        Text(text) => text.clone(),
    };
    if let Some(kept) = &step.partition {
        return format!("partition {}", format_value(kept));
    }
    if let Some(hook) = &step.hook {
        return format!("hook {}", hook.template_name);
    }
    match step.pause.as_ref().and_then(|pause| pause.duration.as_ref()) {
        Some(Int(seconds)) => format!("pause {seconds}s"),
        Some(length @ Text(_)) => format!("pause {}", format_value(length)),
        None => "pause".to_owned(),
    }
}

fn pause(scene: &Scene, now: Timestamp) -> Option<Finding> {
    let game = &scene.game;
    let Some(held) = game.status.pause_conditions.first() else {
        let sentence = "paused by a user (spec.updateStrategy.paused is true)";
        return game.is_paused_by_user().then(|| {
            Finding::new(End::Stopped, "Paused", sentence)
                .with_commands([game.subject().resume("continue with")])
        });
    };
    let elapsed = span(now.duration_since(held.start_time.0).as_secs());
    let mut finding = match held.reason {
        PauseReason::PausedByCanaryPauseStep => at_pause_step(game, held.start_time.0, now),
        PauseReason::PausedByStepBasedHook => at_hook_step(scene, &elapsed),
    };
    finding.since = Some(held.start_time.0);
    let progressing = game.status.condition(ConditionType::Progressing);
    let reason = progressing.and_then(|it| Reason::parse(&it.reason));
    if reason == Some(Reason::ResumeByApplyIgnored) {
        finding.sentence.push_str("; `paused: false` was set by an apply, which does not resume: remove it from the manifest");
    }
    Some(finding)
}

fn at_pause_step(game: &Game, began: Timestamp, now: Timestamp) -> Finding {
    let index = game.step_index().unwrap_or(0);
    let length = game.step().and_then(|(_, step)| step.pause.as_ref()?.duration.as_ref());
    match length.and_then(duration) {
        Some(length) => {
            let end = began.checked_add(length).unwrap_or(began);
            let left = span(end.duration_since(now).as_secs());
            let until = Some(end);
            let end = end.round(jiff::Unit::Second).unwrap_or(end);
            let sentence = format!("canary step {index} is paused until {end}, {left} from now");
            let finding = Finding::new(End::InProgress, "Paused", sentence)
                .with_commands([game.subject().resume("continue immediately with")]);
            Finding { until, ..finding }
        }
        None => {
            let elapsed = span(now.duration_since(began).as_secs());
            let sentence =
                format!("canary step {index} is paused until resumed, for {elapsed} so far");
            Finding::new(End::Stopped, "Paused", sentence)
                .with_commands([game.subject().resume("continue with")])
        }
    }
}

fn at_hook_step(scene: &Scene, elapsed: &str) -> Finding {
    let game = &scene.game;
    let index = game.step_index().unwrap_or(0);
    let name = game.status.canary.current_step_hook_run.as_deref();
    let name = name.unwrap_or_default();
    let run = scene.runs.iter().find(|run| run.name_any() == name);
    let ended = run.map_or_else(
        || "was not successful".to_owned(),
        |run| format!("ended {}: {}", run.phase(), summary(run)),
    );
    let sentence = format!(
        "canary step {index} has been paused for {elapsed}, because its hook {name} {ended}"
    );
    let subject = game.subject();
    Finding::new(End::Stopped, "Paused", sentence).with_commands([
        subject.resume("continue anyway with"),
        subject.undo(),
        subject.retry("run it again with", "Step"),
    ])
}

/// A canary step that has no pod to update, or updates none by itself.
fn waiting_step(game: &Game) -> Option<Finding> {
    let is_waiting = |it: &&Cause| Reason::parse(&it.reason).is_some_and(Reason::is_waiting_step);
    let cause = game.status.causes.iter().find(is_waiting)?;
    let finding = Finding::new(End::Stopped, "Blocked", cause.sentence());
    Some(finding.since(Some(cause.since.0)).with_commands(advice(cause, &game.subject())))
}

fn failures(game: &Game) -> Vec<Finding> {
    let types =
        [(ConditionType::FailedUpdate, "the update"), (ConditionType::FailedScale, "scaling")];
    let findings = types.into_iter().filter_map(|(type_, subject)| {
        let condition = game.status.true_condition(type_)?;
        let (reason, message) = (&condition.reason, &condition.message);
        let sentence = format!("{subject} is blocked ({reason}): {message}");
        let since = Some(condition.last_transition_time.0);
        let cause = game.status.causes.iter().find(|it| it.reason == *reason);
        let commands = cause.map(|cause| advice(cause, &game.subject())).unwrap_or_default();
        let finding = Finding::new(End::Stopped, "Blocked", sentence).since(since);
        Some(finding.with_commands(commands))
    });
    findings.collect()
}

/// A refused write on which neither scaling nor updates depend.
fn upkeep(game: &Game) -> Option<Finding> {
    let condition = game.status.true_condition(ConditionType::FailedUpkeep)?;
    let sentence =
        format!("the API server refuses upkeep ({}): {}", condition.reason, condition.message);
    let since = Some(condition.last_transition_time.0);
    Some(Finding::new(End::InProgress, "Updating", sentence).since(since))
}

#[cfg(test)]
mod tests;

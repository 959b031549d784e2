//! How a rollout is, and why it does not go on: one sentence for a person, one word for a table, one
//! exit code for a script.

use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::api::{
    CanaryStep, ConditionType, HookRun, PauseReason, PodHookCondition, Reason,
};
use gamekeeper_core::plan::duration;
use jiff::Timestamp;
use kube::ResourceExt;

use crate::age::span;
use crate::game::Game;
use crate::scene::{Scene, has_failed, phase};
use crate::style::Tone;
use crate::view::run::told;

/// What becomes of a rollout if nobody does anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// It is over.
    Done,
    /// It goes on by itself.
    UnderWay,
    /// It waits for a person.
    Stopped,
}

/// How a rollout is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What becomes of it.
    pub end: End,
    /// In a word.
    pub word: &'static str,
    /// In a sentence.
    pub sentence: String,
    /// What a person may do about it.
    pub fix: Option<String>,
    /// What else keeps it, or will.
    pub also: Vec<String>,
    /// Whether a user's pause will keep the next rollout, although this one is complete.
    pub holds_next: bool,
}

impl Verdict {
    /// Its tone.
    pub fn tone(&self) -> Tone {
        match self.word {
            "Complete" => Tone::Good,
            "Paused" => Tone::Held,
            "Blocked" => Tone::Bad,
            _ => Tone::Busy,
        }
    }

    /// The word for a table, with what must not be overlooked.
    pub fn label(&self) -> String {
        match self.holds_next {
            true => format!("{},Paused", self.word),
            false => self.word.to_owned(),
        }
    }

    /// Exit code of `status`.
    pub fn exit_code(&self) -> u8 {
        match self.end {
            End::Done => 0,
            End::Stopped => 2,
            End::UnderWay => 3,
        }
    }
}

struct Finding {
    end: End,
    word: &'static str,
    sentence: String,
    fix: Option<String>,
}

fn finding(end: End, word: &'static str, sentence: String) -> Finding {
    Finding {
        end,
        word,
        sentence,
        fix: None,
    }
}

/// Judges a rollout. `runs` may be left empty where only the word counts.
pub fn judge(scene: &Scene, now: Timestamp) -> Verdict {
    let game = &scene.game;
    let mut findings = Vec::new();
    if game.deleting {
        let sentence = "is being deleted; its pods are deleted with it, without running hooks";
        findings.push(finding(End::UnderWay, "Deleting", sentence.to_owned()));
    } else if !game.is_observed() {
        findings.push(unseen(game));
    } else if game.status.holds(ConditionType::Ready).is_some() {
        findings.push(finding(End::Done, "Complete", done(game)));
        if game.is_paused_by_user() {
            findings.push(holds_next(game));
        }
    } else {
        findings.extend(pause(scene, now));
        findings.extend(failures(game));
        findings.extend(failed_hooks(scene));
        findings.extend(running_hooks(scene));
        if findings.is_empty() {
            findings.push(finding(End::UnderWay, "Updating", under_way(game)));
        }
        // What waits for a person is told first.
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.end));
    }
    let mut findings = findings.into_iter();
    let first = findings
        .next()
        .unwrap_or_else(|| finding(End::UnderWay, "Updating", under_way(game)));
    let holds_next = first.end == End::Done && game.is_paused_by_user();
    Verdict {
        end: first.end,
        word: first.word,
        sentence: first.sentence,
        fix: first.fix,
        also: findings.map(|finding| finding.sentence).collect(),
        holds_next,
    }
}

/// A pause that nobody sees until the next rollout.
fn holds_next(game: &Game) -> Finding {
    let sentence = format!(
        "paused by a user (spec.updateStrategy.paused is true): the next template change waits; resume \
         with: kubectl game resume {}",
        game.short_name()
    );
    finding(End::Done, "Paused", sentence)
}

fn unseen(game: &Game) -> Finding {
    let sentence = format!(
        "the operator has not observed generation {} yet (last observed: {})",
        game.generation, game.status.observed_generation
    );
    Finding {
        fix: Some("if this persists, check that gamekeeper is running".to_owned()),
        ..finding(End::UnderWay, "Unseen", sentence)
    }
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

fn under_way(game: &Game) -> String {
    let ready = game.status.condition(ConditionType::Ready);
    let said = ready.map(|condition| condition.message.clone());
    let said = said.unwrap_or_else(|| "the rollout is in progress".to_owned());
    match game.step() {
        Some((index, step)) if game.is_rolling() => {
            format!("{said}; canary step {index} ({})", name_of(step))
        }
        _ => said,
    }
}

/// A step in two words.
pub fn name_of(step: &CanaryStep) -> String {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::{Int, String as Text};
    let written = |value: &_| match value {
        Int(number) => number.to_string(),
        Text(text) => text.clone(),
    };
    if let Some(kept) = &step.partition {
        return format!("partition {}", written(kept));
    }
    if let Some(hook) = &step.hook {
        return format!("hook {}", hook.template_name);
    }
    match step
        .pause
        .as_ref()
        .and_then(|pause| pause.duration.as_ref())
    {
        Some(Int(seconds)) => format!("pause {seconds}s"),
        Some(length @ Text(_)) => format!("pause {}", written(length)),
        None => "pause".to_owned(),
    }
}

fn pause(scene: &Scene, now: Timestamp) -> Option<Finding> {
    let game = &scene.game;
    let held = game.status.pause_conditions.first();
    let Some(held) = held else {
        return game.paused.then(|| Finding {
            fix: Some(format!(
                "continue with: kubectl game resume {}",
                game.short_name()
            )),
            ..finding(
                End::Stopped,
                "Paused",
                "paused by a user (spec.updateStrategy.paused is true)".to_owned(),
            )
        });
    };
    let since = span(now.duration_since(held.start_time.0).as_secs());
    let found = match held.reason {
        PauseReason::PausedByCanaryPauseStep => at_pause_step(game, held.start_time.0, now),
        PauseReason::PausedByStepBasedHook => at_hook_step(scene, &since),
    };
    let progressing = game.status.condition(ConditionType::Progressing);
    let reason = progressing.and_then(|it| Reason::parse(&it.reason));
    let mut found = found;
    if reason == Some(Reason::ResumeByApplyIgnored) {
        found.sentence.push_str("; `paused: false` was set by an apply, which does not resume: remove it from the manifest");
    }
    Some(found)
}

fn at_pause_step(game: &Game, began: Timestamp, now: Timestamp) -> Finding {
    let index = game.step_index().unwrap_or(0);
    let length = game
        .step()
        .and_then(|(_, step)| step.pause.as_ref()?.duration.as_ref());
    let resume = format!("kubectl game resume {}", game.short_name());
    match length.and_then(duration) {
        Some(length) => {
            let end = began.checked_add(length).unwrap_or(began);
            let left = span(end.duration_since(now).as_secs());
            let end = end.round(jiff::Unit::Second).unwrap_or(end);
            Finding {
                fix: Some(format!("continue immediately with: {resume}")),
                ..finding(
                    End::UnderWay,
                    "Paused",
                    format!("canary step {index} is paused until {end}, {left} from now"),
                )
            }
        }
        None => {
            let since = span(now.duration_since(began).as_secs());
            Finding {
                fix: Some(format!("continue with: {resume}")),
                ..finding(
                    End::Stopped,
                    "Paused",
                    format!("canary step {index} is paused until resumed, for {since} so far"),
                )
            }
        }
    }
}

fn at_hook_step(scene: &Scene, since: &str) -> Finding {
    let game = &scene.game;
    let index = game.step_index().unwrap_or(0);
    let name = game
        .status
        .canary
        .current_step_hook_run
        .clone()
        .unwrap_or_default();
    let run = scene.runs.iter().find(|run| run.name_any() == name);
    let ended = run.map_or_else(
        || "was not successful".to_owned(),
        |run| format!("ended {}: {}", phase(run), told(run)),
    );
    let workload = game.short_name();
    Finding {
        fix: Some(format!(
            "continue anyway with: kubectl game resume {workload}; roll back with: kubectl game undo {workload}"
        )),
        ..finding(
            End::Stopped,
            "Paused",
            format!(
                "canary step {index} has been paused for {since}, because its hook {name} {ended}"
            ),
        )
    }
}

fn failures(game: &Game) -> Vec<Finding> {
    let types = [
        (ConditionType::FailedUpdate, "the update"),
        (ConditionType::FailedScale, "scaling"),
    ];
    let told = |(type_, what): (ConditionType, &str)| {
        let it = game.status.holds(type_)?;
        let sentence = format!("{what} is blocked ({}): {}", it.reason, it.message);
        Some(finding(End::Stopped, "Blocked", sentence))
    };
    types.into_iter().filter_map(told).collect()
}

/// Pods whose hook did not end Successful, by point.
pub fn blocked_pods(game: &Game) -> [(HookPoint, &[PodHookCondition]); 3] {
    let status = &game.status;
    [
        (HookPoint::PreDelete, &status.pre_delete_hook_condition),
        (HookPoint::PreInplace, &status.pre_inplace_hook_condition),
        (HookPoint::PostInplace, &status.post_inplace_hook_condition),
    ]
}

fn failed_hooks(scene: &Scene) -> Vec<Finding> {
    let blocked = blocked_pods(&scene.game).into_iter();
    let told = |(point, pods): (HookPoint, &[PodHookCondition])| {
        let first = pods.first()?;
        let is_run = |run: &&HookRun| {
            scene.point(run) == Some(point) && has_failed(run) && scene.about(run) == first.pod_name
        };
        let run = scene.runs.iter().find(is_run);
        let message = run.map_or_else(|| first.message.clone(), told);
        let run = run.map_or_else(String::new, |run| format!(" (HookRun {})", run.name_any()));
        let more = match pods.len() {
            1 => String::new(),
            more => format!("; {} more pods are blocked too", more - 1),
        };
        let point = point.as_str();
        let sentence = format!(
            "pod {} is blocked, because its {point} hook{run} ended {}: {message}{more}",
            first.pod_name, first.phase
        );
        Some(Finding {
            fix: Some(format!(
                "fix what it checks, then: kubectl game retry {} --point {point}",
                scene.game.short_name()
            )),
            ..finding(End::Stopped, "Blocked", sentence)
        })
    };
    blocked.filter_map(told).collect()
}

fn running_hooks(scene: &Scene) -> Vec<Finding> {
    let of_point = |point: HookPoint| {
        let is_of = |run: &&HookRun| scene.point(run) == Some(point) && !phase(run).is_completed();
        let runs: Vec<&HookRun> = scene.runs.iter().filter(is_of).collect();
        let first = runs.first()?;
        let sentence = match point {
            HookPoint::Step => format!(
                "waits for the hook of canary step {}, {}: {}",
                scene.game.step_index().unwrap_or(0),
                first.name_any(),
                told(first)
            ),
            _ => {
                let pods: Vec<String> = runs.iter().map(|run| scene.about(run)).collect();
                format!(
                    "waits for {} hooks of pods {}: {}",
                    point.as_str(),
                    listed(&pods),
                    told(first)
                )
            }
        };
        Some(finding(End::UnderWay, "Waiting", sentence))
    };
    let points = std::iter::once(HookPoint::Step).chain(HookPoint::OF_PODS);
    points.filter_map(of_point).collect()
}

/// The first few of these names, and how many more there are.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    match more {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests;

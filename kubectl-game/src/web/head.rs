//! The sentence about a workload, and what surrounds it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::game::Game;
use crate::scene::Scene;
use crate::style::Tone;
use crate::verdict::{Acts, End, Finding, Verdict, judge, name_of};
use crate::view::guard::Guard;
use crate::view::head::{hooks, strategy};

/// A time in seconds, as the page uses it.
pub fn seconds(time: Option<&Time>) -> Option<i64> {
    time.map(|time| time.0.as_second())
}

pub fn tone_name(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Good => "good",
        Tone::Busy => "busy",
        Tone::Held => "held",
        Tone::Bad => "bad",
        Tone::Faint => "faint",
    }
}

/// The commands in a text such as `continue with: kubectl game resume gd/x`, complete with the namespace, each after the
/// words that lead to it.
fn commands(text: &str, namespace: &str) -> Vec<(String, String)> {
    const START: &str = "kubectl game ";
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(START) {
        let lead = rest[..at].trim_start_matches([';', ',', ')', ' ']).trim_end();
        let command = &rest[at..];
        let end = command.find(['\n', ';', ',', ')']).unwrap_or(command.len());
        let words = command[..end].trim_end();
        let command_line = match namespace {
            "" => words.to_owned(),
            _ if words.contains(" -n ") => words.to_owned(),
            namespace => format!("{words} -n {namespace}"),
        };
        found.push((lead.to_owned(), command_line));
        rest = &command[end..];
    }
    found
}

/// The fields of a verdict.
pub fn verdict_fields(verdict: &Verdict, namespace: &str) -> Vec<(&'static str, Value)> {
    let fix = verdict.fix.as_deref().unwrap_or_default();
    let since = verdict.causes.first().and_then(|cause| cause.since);
    vec![
        ("word", json!(verdict.label())),
        ("tone", json!(tone_name(verdict.tone()))),
        ("sentence", json!(verdict.sentence)),
        ("also", json!(verdict.also)),
        ("fix", json!(verdict.fix)),
        ("commands", json!(commands(fix, namespace))),
        ("stopped", json!(verdict.end == End::Stopped)),
        ("since", json!(since.map(Timestamp::as_second))),
    ]
}

/// What the top of a workload's page says.
pub fn head(scene: &Scene, verdict: &Verdict) -> Value {
    let game = &scene.game;
    let status = &game.status;
    let guard = Guard::of(game);
    // Without ages, the sentence changes only when the state does. Only then is it read aloud.
    let timeless = judge(scene, Timestamp::UNIX_EPOCH).sentence;
    let fields = verdict_fields(verdict, &game.namespace).into_iter().chain([
        ("namespace", json!(game.namespace)),
        ("name", json!(game.name)),
        ("shortName", json!(game.short_name())),
        ("kind", json!(game.kind.as_str())),
        ("timeless", json!(timeless)),
        ("strategy", json!(strategy(game))),
        ("hooks", json!(hooks(game))),
        ("guard", json!(guard.as_ref().map(Guard::sentence))),
        ("guardTone", json!(guard.as_ref().map(|guard| tone_name(guard.tone())))),
        ("reserved", json!(game.reserved_ordinals())),
        ("created", json!(seconds(game.created.as_ref()))),
        (
            "counts",
            json!({
                "desired": game.replicas, "updated": status.updated_replicas,
                "updatedReady": status.updated_ready_replicas, "ready": status.ready_replicas,
                "total": status.replicas,
            }),
        ),
    ]);
    fields.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// What the workload waits for: one entry for each cause, however many pods it has.
pub fn causes(game: &Game, verdict: &Verdict) -> Value {
    let waits = verdict.causes.iter().filter(|cause| cause.end != End::Done);
    waits.map(|cause| one_cause(game, cause)).collect()
}

fn one_cause(game: &Game, cause: &Finding) -> Value {
    let fix = cause.fix.as_deref().unwrap_or_default();
    json!({
        "word": cause.word, "sentence": cause.sentence, "fix": cause.fix,
        "commands": commands(fix, &game.namespace),
        "since": cause.since.map(Timestamp::as_second),
        "until": cause.until.map(Timestamp::as_second),
        "acts": match cause.acts {
            Acts::You => "you",
            Acts::Game => "the game",
            Acts::Nobody => "nobody",
        },
        "stopped": cause.end == End::Stopped,
        "pods": cause.pods,
    })
}

/// The canary steps, with the current one and when it began to wait.
pub fn steps(game: &Game) -> Value {
    let current = game.step_index().unwrap_or(0);
    let held = game.status.pause_conditions.first().map(|it| it.start_time.0.as_second());
    let step = |(index, step)| {
        let state = match index {
            _ if index < current => "completed",
            _ if index == current => "current",
            _ => "to come",
        };
        json!({
            "name": name_of(step), "state": state,
            "since": held.filter(|_| index == current),
        })
    };
    game.steps.iter().enumerate().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_of_a_text_are_complete() {
        for (text, expected) in [
            ("if this persists, check that gamekeeper is running", &[][..]),
            (
                "continue with: kubectl game resume gd/x",
                &[("continue with:", "kubectl game resume gd/x -n prod")],
            ),
            (
                "continue anyway with: kubectl game resume gd/x; roll back with: kubectl game undo gd/x",
                &[
                    ("continue anyway with:", "kubectl game resume gd/x -n prod"),
                    ("roll back with:", "kubectl game undo gd/x -n prod"),
                ],
            ),
            (
                "fix what it checks, then: kubectl game retry gd/x -n test",
                &[("fix what it checks, then:", "kubectl game retry gd/x -n test")],
            ),
        ] {
            let found = commands(text, "prod");
            let found: Vec<(&str, &str)> =
                found.iter().map(|(lead, command)| (lead.as_str(), command.as_str())).collect();
            assert_eq!(found, expected);
        }
    }
}

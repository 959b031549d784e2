//! The sentence about a workload, and what surrounds it.

use gamekeeper_core::advice::Advice;
use gamekeeper_core::api::Actor;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::game::Game;
use crate::scene::Scene;
use crate::style::Tone;
use crate::verdict::{End, Finding, Verdict, judge, name_of};
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

/// Commands as the page shows them: what each is for, and the command.
fn commands(commands: &[Advice]) -> Vec<(String, &str)> {
    commands.iter().map(|it| (format!("{}:", it.purpose), it.command.as_str())).collect()
}

/// The fields of a verdict.
pub fn verdict_fields(verdict: &Verdict) -> Vec<(&'static str, Value)> {
    let since = verdict.causes.first().and_then(|cause| cause.since);
    vec![
        ("word", json!(verdict.label())),
        ("tone", json!(tone_name(verdict.tone()))),
        ("sentence", json!(verdict.sentence)),
        ("also", json!(verdict.also)),
        ("fix", json!(verdict.fix())),
        ("commands", json!(commands(&verdict.commands))),
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
    let fields = verdict_fields(verdict).into_iter().chain([
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

/// What the workload waits for: one entry for each cause, however many pods it has. A workload that is complete has those
/// with which a command helps, such as a drain that waits for its pods.
pub fn causes(verdict: &Verdict) -> Value {
    let is_told = |(index, cause): &(usize, &Finding)| {
        cause.end != End::Done || (*index > 0 && !cause.commands.is_empty())
    };
    let waits = verdict.causes.iter().enumerate().filter(is_told);
    waits.map(|(_, cause)| one_cause(cause)).collect()
}

fn one_cause(cause: &Finding) -> Value {
    json!({
        "word": cause.word, "sentence": cause.sentence, "fix": cause.fix(),
        "commands": commands(&cause.commands),
        "since": cause.since.map(Timestamp::as_second),
        "until": cause.until.map(Timestamp::as_second),
        "acts": match cause.actor {
            Actor::User => "you",
            Actor::Game => "the game",
            Actor::Node => "the node",
            Actor::Nobody => "nobody",
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

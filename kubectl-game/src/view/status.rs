//! `kubectl game status`: one sentence, and what to do about it.

use serde_json::{Value, json};

use crate::game::Game;
use crate::page::Page;
use crate::style::{Style, Tone};
use crate::verdict::{End, Verdict};
use crate::view::guard::Guard;

/// The status as text, for people.
pub fn status(game: &Game, verdict: &Verdict, style: Style) -> String {
    let mut notes = Vec::new();
    if let Some(ordinals) = game.reserved_ordinals() {
        notes.push((Tone::Plain, format!("reserved ordinals: {ordinals}")));
    }
    if let Some(guard) = Guard::of(game) {
        notes.push((guard.tone(), format!("guard: {}", guard.sentence())));
    }
    text(&game.short_name(), verdict, &notes, style)
}

/// The verdict on an object with this name, followed by notes about it.
pub fn text(name: &str, verdict: &Verdict, notes: &[(Tone, String)], style: Style) -> String {
    let tone = verdict.tone();
    let mut page = Page::new(style);
    let mut column = page.wrapped(Tone::Plain, &format!("{name}: "), 0, 2);
    column = page.wrapped(tone, &format!("{}{}", style.mark(tone), verdict.word), column, 2);
    page.wrapped(Tone::Plain, &format!(": {}", verdict.sentence), column, 2);
    page.end_line();
    for also in &verdict.also {
        page.sentence(Tone::Plain, &format!("also: {also}"));
    }
    for (tone, note) in notes {
        page.sentence(*tone, note);
    }
    for line in verdict.advice() {
        page.line(Tone::Plain, &line);
    }
    page.text()
}

/// One line for each state that `status --watch` passes through.
pub fn sentence(name: &str, verdict: &Verdict) -> String {
    let mut page = Page::new(Style::PLAIN);
    page.line(Tone::Plain, &format!("{name}: {}", verdict.sentence));
    page.text()
}

/// The status as JSON, for programs.
pub fn data(game: &Game, verdict: &Verdict) -> Value {
    let mut data = verdict_data(verdict);
    data["kind"] = json!(game.kind.as_str());
    data["namespace"] = json!(game.namespace);
    data["name"] = json!(game.name);
    data["reservedOrdinals"] = json!(game.reserved);
    data["causes"] = json!(game.status.causes);
    if let Some(guard) = Guard::of(game) {
        data["guard"] = guard.data();
    }
    data
}

/// The fields that depend on the verdict alone.
pub fn verdict_data(verdict: &Verdict) -> Value {
    let end = match verdict.end {
        End::Done => "Done",
        End::InProgress => "UnderWay",
        End::Stopped => "Stopped",
    };
    let commands = verdict.commands.iter();
    let commands = commands.map(|it| json!({"purpose": it.purpose, "command": it.command}));
    let commands: Vec<Value> = commands.collect();
    json!({
        "end": end,
        "status": verdict.word,
        "message": verdict.sentence,
        "also": verdict.also,
        "fix": verdict.fix(),
        "commands": commands,
        "exitCode": verdict.exit_code(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{guarded, now, stateful_set, unenforced};
    use crate::verdict::judge;

    #[test]
    fn sentences_fit_a_terminal_and_commands_stay_whole() {
        let scene = crate::fixture::failed_step();
        let verdict = judge(&scene, now());
        let style = Style { width: Some(80), ..Style::PLAIN };
        let text = status(&scene.game, &verdict, style);
        let is_too_long = |line: &&str| line.chars().count() > 80 && !line.contains("kubectl ");
        let wide: Vec<&str> = text.lines().filter(is_too_long).collect();
        assert!(wide.is_empty(), "{wide:#?}");
        insta::assert_snapshot!(text);
        insta::assert_snapshot!(status(&scene.game, &verdict, Style::PLAIN));
    }

    #[test]
    fn the_guard_is_shown_only_if_pods_are_guarded() {
        let shown = |scene: &crate::scene::Scene| {
            let verdict = judge(scene, now());
            let text = status(&scene.game, &verdict, Style::PLAIN);
            (text, data(&scene.game, &verdict)["guard"].clone())
        };
        let (text, data) = shown(&guarded());
        assert!(text.contains("\nguard: 4 pods guarded, 1 waiting for its hook\n"), "{text}");
        assert_eq!(
            data,
            json!({"inForce": true, "guarded": 4, "waiting": 1, "message": "4 pods are guarded"})
        );
        let (text, data) = shown(&unenforced());
        assert!(text.contains("\nguard: not in force: the policy was removed\n"), "{text}");
        assert_eq!(data["inForce"], false);
        let (text, data) = shown(&stateful_set());
        assert!(!text.contains("guard"), "{text}");
        assert!(data.is_null(), "{data}");
    }
}

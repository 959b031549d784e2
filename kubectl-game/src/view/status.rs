//! `kubectl game status`: one sentence, and what to do about it.

use serde_json::{Value, json};

use crate::game::Game;
use crate::page::Page;
use crate::style::{Style, Tone};
use crate::verdict::{End, Verdict};

/// For people.
pub fn status(game: &Game, verdict: &Verdict, style: Style) -> String {
    let reserved = game.reserved_ordinals();
    text(&game.short_name(), verdict, reserved.as_deref(), style)
}

/// The verdict on an object with this name, and its reserved ordinals.
pub fn text(name: &str, verdict: &Verdict, reserved: Option<&str>, style: Style) -> String {
    let tone = verdict.tone();
    let mut page = Page::new(style);
    page.write(Tone::Plain, &format!("{name}: "));
    page.write(tone, &format!("{}{}", style.mark(tone), verdict.word));
    page.line(Tone::Plain, &format!(": {}", verdict.sentence));
    for also in &verdict.also {
        page.line(Tone::Plain, &format!("also: {also}"));
    }
    if let Some(ordinals) = reserved {
        page.line(Tone::Plain, &format!("reserved ordinals: {ordinals}"));
    }
    if let Some(fix) = &verdict.fix {
        page.line(Tone::Plain, fix);
    }
    page.text()
}

/// One line for each state that `status --watch` passes.
pub fn sentence(name: &str, verdict: &Verdict) -> String {
    let mut page = Page::new(Style::PLAIN);
    page.line(Tone::Plain, &format!("{name}: {}", verdict.sentence));
    page.text()
}

/// For programs.
pub fn data(game: &Game, verdict: &Verdict) -> Value {
    let mut data = verdict_data(verdict);
    data["kind"] = json!(game.kind.as_str());
    data["namespace"] = json!(game.namespace);
    data["name"] = json!(game.name);
    data["reservedOrdinals"] = json!(game.reserved);
    data
}

/// The fields that depend on the verdict alone.
pub fn verdict_data(verdict: &Verdict) -> Value {
    let end = match verdict.end {
        End::Done => "Done",
        End::InProgress => "UnderWay",
        End::Stopped => "Stopped",
    };
    json!({
        "end": end,
        "status": verdict.word,
        "message": verdict.sentence,
        "also": verdict.also,
        "fix": verdict.fix,
        "exitCode": verdict.exit_code(),
    })
}

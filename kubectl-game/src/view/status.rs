//! `kubectl game status`: one sentence, and what to do about it.

use serde_json::{Value, json};

use crate::game::Game;
use crate::page::Page;
use crate::style::{Style, Tone};
use crate::verdict::{End, Verdict};

/// For people.
pub fn status(game: &Game, verdict: &Verdict, style: Style) -> String {
    let tone = verdict.tone();
    let mut page = Page::new(style);
    page.write(Tone::Plain, &format!("{}: ", game.short_name()));
    page.write(tone, &format!("{}{}", style.mark(tone), verdict.word));
    page.line(Tone::Plain, &format!(": {}", verdict.sentence));
    for also in &verdict.also {
        page.line(Tone::Plain, &format!("also: {also}"));
    }
    if let Some(ordinals) = game.reserved_ordinals() {
        page.line(Tone::Plain, &format!("reserved ordinals: {ordinals}"));
    }
    if let Some(fix) = &verdict.fix {
        page.line(Tone::Plain, fix);
    }
    page.text()
}

/// One line for each state that `status --watch` passes.
pub fn sentence(game: &Game, verdict: &Verdict) -> String {
    let mut page = Page::new(Style::PLAIN);
    let line = format!("{}: {}", game.short_name(), verdict.sentence);
    page.line(Tone::Plain, &line);
    page.text()
}

/// For programs.
pub fn data(game: &Game, verdict: &Verdict) -> Value {
    let end = match verdict.end {
        End::Done => "Done",
        End::InProgress => "UnderWay",
        End::Stopped => "Stopped",
    };
    json!({
        "kind": game.kind.as_str(),
        "namespace": game.namespace,
        "name": game.name,
        "end": end,
        "status": verdict.word,
        "message": verdict.sentence,
        "also": verdict.also,
        "reservedOrdinals": game.reserved,
        "fix": verdict.fix,
        "exitCode": verdict.exit_code(),
    })
}

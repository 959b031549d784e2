//! `kubectl game status`: one sentence, and what to do about it.

use serde_json::{Value, json};

use crate::game::Game;
use crate::style::Style;
use crate::verdict::{End, Verdict};

/// For people.
pub fn status(game: &Game, verdict: &Verdict, style: Style) -> String {
    let word = format!("{}{}", style.mark(verdict.tone()), verdict.word);
    let word = style.paint(verdict.tone(), &word);
    let mut lines = vec![format!(
        "{}: {word}: {}",
        game.short_name(),
        verdict.sentence
    )];
    lines.extend(verdict.also.iter().map(|also| format!("also: {also}")));
    lines.extend(verdict.mend.clone());
    lines.join("\n") + "\n"
}

/// For programs.
pub fn data(game: &Game, verdict: &Verdict) -> Value {
    let end = match verdict.end {
        End::Done => "Done",
        End::UnderWay => "UnderWay",
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
        "mend": verdict.mend,
        "exitCode": verdict.exit_code(),
    })
}

//! The head of the tree: the state of the rollout, its strategy and its steps.

use gamekeeper_core::api::{ContainerOrder, UpdateStrategyType as UpdateType, WhenImpossible};

use super::guard::Guard;
use crate::game::Game;
use crate::page::{INDENT, Page};
use crate::scene::Scene;
use crate::style::{Style, Tone};
use crate::verdict::{Verdict, name_of};

pub fn head(scene: &Scene, verdict: &Verdict, style: Style) -> String {
    let game = &scene.game;
    let mut page = Page::new(style);
    page.row("Name", &plain(game.full_name()));
    page.row("Namespace", &plain(&game.namespace));
    let word = format!("{}{}", style.mark(verdict.tone()), verdict.word);
    page.row("Status", &[(verdict.tone(), word)]);
    page.row("", &plain(&verdict.sentence));
    for also in &verdict.also {
        page.row("", &plain(format!("also: {also}")));
    }
    for line in verdict.advice() {
        // A command that is broken into lines could not be copied.
        page.write(Tone::Plain, &" ".repeat(INDENT));
        page.line(Tone::Plain, &line);
    }
    page.row("Strategy", &plain(strategy(game)));
    if let Some(hooks) = hooks(game) {
        page.row("Hooks", &plain(hooks));
    }
    if let Some(guard) = Guard::of(game) {
        page.row("Guard", &[(guard.tone(), guard.sentence())]);
    }
    if !game.steps.is_empty() {
        page.row("Steps", &steps(scene, style));
    }
    if let Some(ordinals) = game.reserved_ordinals() {
        page.row("Reserved", &plain(format!("ordinals {ordinals}")));
    }
    page.row("Pods", &plain(pods(game)));
    page.text()
}

/// Parts of a line with their tones.
pub type Text = Vec<(Tone, String)>;

/// Text without a tone.
pub fn plain(text: impl Into<String>) -> Text {
    vec![(Tone::Plain, text.into())]
}

fn pods(game: &Game) -> String {
    let status = &game.status;
    let counts = format!(
        "desired {}, updated {}, updated and ready {}, ready {}, total {}",
        game.replicas,
        status.updated_replicas,
        status.updated_ready_replicas,
        status.ready_replicas,
        status.replicas
    );
    // An operator that does not know the field leaves it out.
    match status.active_replicas {
        active if (1..status.replicas).contains(&active) => format!("{counts}, active {active}"),
        _ => counts,
    }
}

/// How pods are updated, with those settings of in-place updates that differ from the defaults.
pub fn strategy(game: &Game) -> String {
    let mut settings = vec![format!("{:?}", game.update)];
    if game.update == UpdateType::InplaceUpdate {
        if game.order != ContainerOrder::default() {
            settings.push(format!("{:?}", game.order));
        }
        if game.when_impossible == WhenImpossible::Recreate {
            settings.push("whenImpossible Recreate".to_owned());
        }
    }
    settings.join(", ")
}

pub fn hooks(game: &Game) -> Option<String> {
    let hooks = game.hooks.iter().filter_map(|(point, strategy)| {
        let hook = strategy.hook.as_ref()?;
        let retry = match strategy.retry {
            true => " (retry requested)",
            false => "",
        };
        Some(format!("{} {}{retry}", point.as_str(), hook.template_name))
    });
    let hooks: Vec<String> = hooks.collect();
    (!hooks.is_empty()).then(|| hooks.join(", "))
}

/// The steps: completed, `[current]` and remaining.
fn steps(scene: &Scene, style: Style) -> Text {
    let steps = &scene.game.steps;
    let current = scene.game.step_index().unwrap_or(0);
    let completed = current.min(steps.len());
    let mut text = plain(format!("{completed} of {} completed: ", steps.len()));
    for (index, step) in steps.iter().enumerate() {
        let name = name_of(step);
        if index > 0 {
            text.push((Tone::Plain, ", ".to_owned()));
        }
        text.push(match index {
            _ if index < current => (Tone::Good, format!("{}{name}", style.mark(Tone::Good))),
            _ if index == current => (Tone::Held, format!("[{name}]")),
            _ => (Tone::Faint, name),
        });
    }
    text
}

//! `kubectl game get`: workloads of both kinds in one table.

use jiff::Timestamp;

use crate::age::age;
use crate::game::Game;
use crate::scene::Scene;
use crate::style::Style;
use crate::table::{Cell, Table};
use crate::verdict::judge;

pub fn list(games: &[Game], all_namespaces: bool, style: Style, now: Timestamp) -> String {
    let namespace = all_namespaces.then_some("NAMESPACE");
    let headings = [
        "NAME",
        "STATUS",
        "STEP",
        "DESIRED",
        "UPDATED",
        "UPDATED_READY",
        "READY",
        "TOTAL",
        "AGE",
    ];
    let mut table = Table::new(namespace.into_iter().chain(headings));
    for game in games {
        let namespace = all_namespaces.then(|| Cell::from(game.namespace.as_str()));
        table.push(namespace.into_iter().chain(line(game, now)));
    }
    table.render(style)
}

fn line(game: &Game, now: Timestamp) -> [Cell; 9] {
    // The label of the verdict depends on the status alone.
    let verdict = judge(&Scene::of_game(game.clone()), now);
    let status = &game.status;
    [
        game.short_name().into(),
        Cell::state(verdict.tone(), verdict.label()),
        step(game).into(),
        game.replicas.to_string().into(),
        status.updated_replicas.to_string().into(),
        status.updated_ready_replicas.to_string().into(),
        status.ready_replicas.to_string().into(),
        status.replicas.to_string().into(),
        age(game.created.as_ref(), now).into(),
    ]
}

/// The number of completed steps, and of all steps.
pub fn step(game: &Game) -> String {
    match game.step_index() {
        Some(index) => format!("{index}/{}", game.steps.len()),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failed_pod_hook, now, paused_canary, set};

    #[test]
    fn both_kinds_in_one_table() {
        let games = [paused_canary().game, failed_pod_hook().game, set().game];
        insta::assert_snapshot!(list(&games, false, Style::PLAIN, now()));
        insta::assert_snapshot!(list(&games, true, Style::PLAIN, now()));
    }
}

//! `kubectl game get`: workloads of both kinds in one table. If any of them is guarded, the table also shows how many
//! pods are guarded, and how many of those wait for their hook.

use jiff::Timestamp;

use crate::age::age;
use crate::game::Game;
use crate::scene::Scene;
use crate::style::Style;
use crate::table::{Cell, Table};
use crate::verdict::judge;
use crate::view::guard::Guard;

/// Which columns the table has.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    pub namespace: bool,
    /// What a workload waits for, in a sentence.
    pub why: bool,
    pub age: bool,
    /// Whether there is a line of headings.
    pub headings: bool,
}

pub fn list(scenes: &[Scene], columns: Columns, style: Style, now: Timestamp) -> String {
    let mut games = scenes.iter().map(|scene| &scene.game);
    let is_any_guarded = games.any(|game| Guard::of(game).is_some());
    let mut headings = Vec::new();
    if columns.namespace {
        headings.push("NAMESPACE");
    }
    headings.extend(["NAME", "STATUS", "STEP", "DESIRED"]);
    headings.extend(["UPDATED", "UPDATED_READY", "READY", "TOTAL"]);
    if is_any_guarded {
        headings.extend(["GUARDED", "WAITING"]);
    }
    if columns.age {
        headings.push("AGE");
    }
    if columns.why {
        headings.push("WHY");
    }
    let mut table = Table::new(headings);
    for scene in scenes {
        let game = &scene.game;
        let mut line = Vec::new();
        if columns.namespace {
            line.push(Cell::from(game.namespace.as_str()));
        }
        line.extend(rollout(scene, now));
        if is_any_guarded {
            line.extend(guard(game));
        }
        if columns.age {
            line.push(age(game.created.as_ref(), now).into());
        }
        if columns.why {
            line.push(judge(scene, now).sentence.into());
        }
        table.push(line);
    }
    let optional: &[&str] = match columns.why {
        // The sentence says it, too.
        true => &["UPDATED_READY", "TOTAL", "STEP", "UPDATED", "GUARDED", "WAITING", "AGE"],
        false => &["UPDATED_READY", "TOTAL", "STEP", "UPDATED"],
    };
    let table = optional.iter().fold(table, |table, it| table.without_if_narrow(it, style));
    let text = table.render(style);
    match columns.headings {
        true => text,
        false => text.split_once('\n').map_or_else(String::new, |(_, lines)| lines.to_owned()),
    }
}

fn rollout(scene: &Scene, now: Timestamp) -> [Cell; 8] {
    let verdict = judge(scene, now);
    let game = &scene.game;
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
    ]
}

fn guard(game: &Game) -> [Cell; 2] {
    match Guard::of(game) {
        Some(guard) => [Cell::state(guard.tone(), guard.word()), guard.waiting().into()],
        None => ["-".into(), "-".into()],
    }
}

/// The numbers of completed steps and of all steps, such as `1/5`.
pub fn step(game: &Game) -> String {
    match game.step_index() {
        Some(index) => format!("{index}/{}", game.steps.len()),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const NARROW: Columns = Columns { namespace: false, why: false, age: true, headings: true };

    use crate::fixture::{failed_pod_hook, guarded, now, paused_canary, stateful_set, unenforced};

    #[test]
    fn both_kinds_in_one_table() {
        let scenes = [paused_canary(), failed_pod_hook(), stateful_set()];
        insta::assert_snapshot!(list(&scenes, NARROW, Style::PLAIN, now()));
        insta::assert_snapshot!(list(
            &scenes,
            Columns { namespace: true, ..NARROW },
            Style::PLAIN,
            now()
        ));
    }

    #[test]
    fn workloads_fit_a_terminal_of_80_columns() {
        let style = Style { width: Some(80), ..Style::PLAIN };
        let scenes = [paused_canary(), failed_pod_hook(), guarded(), stateful_set()];
        let narrow = list(&scenes, NARROW, style, now());
        let with_reasons = list(&scenes, Columns { why: true, ..NARROW }, style, now());
        let shown = format!("{narrow}\n{with_reasons}");
        let wide: Vec<&str> = shown.lines().filter(|it| it.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{wide:#?}");
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn guarded_workloads_show_how_many_pods_are_guarded_and_wait() {
        let scenes = [guarded(), unenforced(), stateful_set()];
        insta::assert_snapshot!(list(&scenes, NARROW, Style::PLAIN, now()));
    }
}

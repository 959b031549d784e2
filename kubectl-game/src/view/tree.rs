//! `kubectl game tree`: the workload, its revisions, their pods, and the HookRuns of each.

use std::collections::BTreeSet;

use gamekeeper_core::api::HookRun;
use gamekeeper_core::api::names::HookPoint;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::head::head;
use super::run::{phase_cell, told};
use super::{cut, history, pod};
use crate::age::age;
use crate::scene::{Scene, is_about, phase, revision_of};
use crate::style::Style;
use crate::table::{Cell, Table};
use crate::verdict::{Verdict, judge};

/// Longest text in the last column.
const INFO: usize = 120;

/// One thing in the tree, with what hangs from it.
struct Node {
    name: String,
    kind: &'static str,
    state: Cell,
    age: String,
    info: String,
    children: Vec<Node>,
}

/// How many pods are shown when nobody asks for all.
pub const MOST_PODS: usize = 50;

/// Head and tree, with so many pods at most.
pub fn tree(scene: &Scene, most: usize, style: Style, now: Timestamp) -> String {
    let verdict = judge(scene, now);
    let mut text = head(scene, &verdict, style);
    let mut table = Table::new(["NAME", "KIND", "STATUS", "AGE", "INFO"]);
    let root = root(scene, &verdict, &Shown::choose(scene, most), now);
    draw(&root, "", "", style, &mut table);
    text.push('\n');
    text.push_str(&table.render(style));
    text
}

fn draw(node: &Node, lead: &str, below: &str, style: Style, table: &mut Table) {
    table.push([
        format!("{lead}{}", node.name).into(),
        node.kind.into(),
        node.state.clone(),
        node.age.as_str().into(),
        cut(&node.info, INFO).into(),
    ]);
    for (index, child) in node.children.iter().enumerate() {
        let (branch, rest) = style.branch(index + 1 == node.children.len());
        draw(
            child,
            &format!("{below}{branch}"),
            &format!("{below}{rest}"),
            style,
            table,
        );
    }
}

/// The pods that are shown.
struct Shown<'a> {
    names: BTreeSet<&'a str>,
}

impl<'a> Shown<'a> {
    /// Those to which something happens first, then the others, up to a number.
    fn choose(scene: &'a Scene, most: usize) -> Self {
        let mut pods: Vec<&Pod> = scene.pods.iter().collect();
        pods.sort_by_cached_key(|pod| is_quiet(scene, pod));
        let names = pods
            .into_iter()
            .take(most)
            .filter_map(|pod| pod.metadata.name.as_deref());
        Shown {
            names: names.collect(),
        }
    }

    /// Nodes of those that are shown, and how many more there are.
    fn nodes(&self, scene: &Scene, pods: &[&Pod], now: Timestamp) -> Vec<Node> {
        let is_shown = |pod: &&&Pod| self.names.contains(pod.name_any().as_str());
        let (shown, others): (Vec<&&Pod>, Vec<&&Pod>) = pods.iter().partition(is_shown);
        let quiet = others.iter().filter(|pod| is_quiet(scene, pod)).count();
        let rest = [
            (others.len() - quiet, "not ready, or in progress"),
            (quiet, "ready, nothing in progress"),
        ];
        let rest = rest.into_iter().filter(|(count, _)| *count > 0);
        let nodes = shown.into_iter().map(|pod| pod_node(scene, pod, now));
        nodes
            .chain(rest.map(|(count, how)| more(count, how)))
            .collect()
    }
}

/// Whether nothing about a pod has to be looked at.
fn is_quiet(scene: &Scene, pod: &Pod) -> bool {
    pod::is_quiet(pod) && !scene.runs.iter().any(|run| is_about(run, pod))
}

fn more(count: usize, how: &str) -> Node {
    Node {
        name: format!("... and {count} more"),
        kind: "Pod",
        state: "".into(),
        age: String::new(),
        info: how.to_owned(),
        children: Vec::new(),
    }
}

fn root(scene: &Scene, verdict: &Verdict, pods: &Shown<'_>, now: Timestamp) -> Node {
    let game = &scene.game;
    let is_shown = |revision: &&ControllerRevision| {
        let name = revision.name_any();
        !scene.part(&name).is_empty() || scene.pods_at(&name).next().is_some()
    };
    let shown: Vec<&ControllerRevision> = scene.revisions.iter().filter(is_shown).collect();
    let is_known = |name: &str| shown.iter().any(|revision| revision.name_any() == name);
    let mut children: Vec<Node> = shown
        .iter()
        .map(|it| revision(scene, it, pods, now))
        .collect();
    let strays = scene.pods.iter().filter(|pod| !is_known(revision_of(pod)));
    children.extend(pods.nodes(scene, &strays.collect::<Vec<_>>(), now));
    let hangs = |run: &&HookRun| match scene.point(run) {
        Some(HookPoint::Step) => step_revision(scene, run).is_some_and(is_known),
        _ => scene.pod_of(run).is_some(),
    };
    let loose = scene.runs.iter().filter(|run| !hangs(run));
    children.extend(loose.map(|run| run_node(scene, run, now)));
    Node {
        name: game.name.clone(),
        kind: game.kind.as_str(),
        state: Cell::state(verdict.tone(), verdict.label()),
        age: age(game.created.as_ref(), now),
        info: String::new(),
        children,
    }
}

fn revision(
    scene: &Scene,
    revision: &ControllerRevision,
    pods: &Shown<'_>,
    now: Timestamp,
) -> Node {
    let name = revision.name_any();
    let is_here = |run: &&HookRun| {
        scene.point(run) == Some(HookPoint::Step) && step_revision(scene, run) == Some(&name)
    };
    let steps = scene
        .runs
        .iter()
        .filter(is_here)
        .map(|run| run_node(scene, run, now));
    let pods = pods.nodes(scene, &scene.pods_at(&name).collect::<Vec<_>>(), now);
    let part = scene.part(&name);
    Node {
        kind: "Revision",
        state: if part.is_empty() {
            "old".into()
        } else {
            part.into()
        },
        age: age(revision.creation_timestamp().as_ref(), now),
        info: format!("#{}, {}", revision.revision, history::images(revision)),
        children: steps.chain(pods).collect(),
        name,
    }
}

fn step_revision<'a>(scene: &Scene, run: &'a HookRun) -> Option<&'a str> {
    let revision = run.labels().get(scene.game.kind.revision_label())?;
    Some(revision)
}

fn pod_node(scene: &Scene, pod: &Pod, now: Timestamp) -> Node {
    let runs = scene.runs.iter().filter(|run| is_about(run, pod));
    Node {
        name: pod.name_any(),
        kind: "Pod",
        state: pod::state(pod),
        age: age(pod.creation_timestamp().as_ref(), now),
        info: pod::info(pod),
        children: runs.map(|run| run_node(scene, run, now)).collect(),
    }
}

fn run_node(scene: &Scene, run: &HookRun, now: Timestamp) -> Node {
    let point = scene.point(run).map_or("", HookPoint::as_str);
    Node {
        name: run.name_any(),
        kind: "HookRun",
        state: phase_cell(phase(run)),
        age: age(run.creation_timestamp().as_ref(), now),
        info: format!("{point}: {}", told(run)),
        children: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failed_pod_hook, failed_step, hostile, many, now, paused_canary, set};
    use crate::view::{hooks, list, status};

    const SYMBOLS: Style = Style {
        symbols: true,
        colour: false,
    };

    #[test]
    fn a_canary_at_its_pause() {
        insta::assert_snapshot!(tree(&paused_canary(), MOST_PODS, Style::PLAIN, now()));
    }

    #[test]
    fn a_canary_whose_hook_failed() {
        insta::assert_snapshot!(tree(&failed_step(), MOST_PODS, SYMBOLS, now()));
    }

    #[test]
    fn a_pod_that_its_hook_keeps() {
        insta::assert_snapshot!(tree(&failed_pod_hook(), MOST_PODS, Style::PLAIN, now()));
    }

    #[test]
    fn a_set_in_the_order_of_its_ordinals() {
        insta::assert_snapshot!(tree(&set(), MOST_PODS, SYMBOLS, now()));
    }

    #[test]
    fn of_many_pods_those_to_which_something_happens() {
        insta::assert_snapshot!(tree(&many(), 4, Style::PLAIN, now()));
    }

    #[test]
    fn all_pods_when_they_are_asked_for() {
        let shown = tree(&many(), usize::MAX, Style::PLAIN, now());
        let pods = shown.lines().filter(|line| line.contains(" Pod "));
        assert_eq!(pods.count(), many().pods.len());
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let style = Style {
            colour: true,
            ..SYMBOLS
        };
        let painted = tree(&failed_step(), MOST_PODS, style, now());
        let mut bare = String::new();
        for part in painted.split('\x1b') {
            bare.push_str(
                part.split_once('m')
                    .filter(|(code, _)| code.starts_with('['))
                    .map_or(part, |(_, text)| text),
            );
        }
        assert_ne!(painted, bare);
        assert_eq!(bare, tree(&failed_step(), MOST_PODS, SYMBOLS, now()));
    }

    #[test]
    fn nothing_that_an_object_says_acts_on_a_terminal() {
        let scene = hostile();
        let time = now();
        let verdict = judge(&scene, time);
        for text in [
            tree(&scene, MOST_PODS, Style::PLAIN, time),
            hooks::hooks(&scene, Style::PLAIN, time),
            history::history(&scene, Style::PLAIN, time),
            status::status(&scene.game, &verdict, Style::PLAIN),
            list::list(std::slice::from_ref(&scene.game), true, Style::PLAIN, time),
        ] {
            assert!(
                !text.contains(|it: char| it.is_control() && it != '\n'),
                "{text:?}"
            );
            assert!(
                !text.lines().any(|line| line.starts_with("forged")),
                "{text}"
            );
        }
    }
}

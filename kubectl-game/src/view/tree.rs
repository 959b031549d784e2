//! `kubectl game tree`: the workload, its revisions, their pods, and the HookRuns of each.

use std::collections::BTreeSet;

use gamekeeper_core::api::HookRun;
use gamekeeper_core::api::names::{HookPoint, RUN_TARGET};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::head::head;
use super::run::{phase_cell, summary};
use super::{history, pod, sidecars};
use crate::age::age;
use crate::scene::{Scene, is_for_pod, revision_of};
use crate::style::Style;
use crate::table::{Cell, Table};
use crate::verdict::{Verdict, judge};

/// An object in a tree.
pub struct Node {
    pub name: String,
    pub kind: String,
    pub state: Cell,
    pub age: String,
    pub info: String,
    pub children: Vec<Node>,
}

/// The maximum number of pods that are shown without --all-pods.
pub const MAX_PODS: usize = 50;

/// The head and the tree, with at most `max_pods` pods.
pub fn tree(scene: &Scene, max_pods: usize, style: Style, now: Timestamp) -> String {
    let verdict = judge(scene, now);
    let root = root(scene, &verdict, &Shown::choose(scene, max_pods), now);
    format!("{}\n{}", head(scene, &verdict, style), render(&root, style))
}

/// The tree as an object, for programs. Ages are left out: they differ each time.
pub fn data(scene: &Scene, max_pods: usize, now: Timestamp) -> Value {
    let verdict = judge(scene, now);
    node_data(&root(scene, &verdict, &Shown::choose(scene, max_pods), now))
}

fn node_data(node: &Node) -> Value {
    let children: Vec<Value> = node.children.iter().map(node_data).collect();
    json!({
        "name": node.name, "kind": node.kind, "status": node.state.text(), "info": node.info,
        "children": children,
    })
}

/// The table of a tree.
pub fn render(root: &Node, style: Style) -> String {
    let mut table = Table::new(["NAME", "KIND", "STATUS", "AGE", "INFO"]);
    draw(root, "", "", style, &mut table);
    table.without_if_narrow("KIND", style).render(style)
}

fn draw(node: &Node, lead: &str, child_lead: &str, style: Style, table: &mut Table) {
    table.push([
        format!("{lead}{}", node.name).into(),
        node.kind.as_str().into(),
        node.state.clone(),
        node.age.as_str().into(),
        node.info.as_str().into(),
    ]);
    for (index, child) in node.children.iter().enumerate() {
        let (branch, indent) = style.branch(index + 1 == node.children.len());
        let lead = format!("{child_lead}{branch}");
        draw(child, &lead, &format!("{child_lead}{indent}"), style, table);
    }
}

/// The pods that are shown.
struct Shown<'a> {
    names: BTreeSet<&'a str>,
}

impl<'a> Shown<'a> {
    /// Chooses at most `max` pods. Those that are not settled come first.
    fn choose(scene: &'a Scene, max: usize) -> Self {
        let mut pods: Vec<&Pod> = scene.pods.iter().collect();
        pods.sort_by_cached_key(|pod| is_settled(scene, pod));
        let pods = pods.into_iter().take(max);
        let names = pods.filter_map(|pod| pod.metadata.name.as_deref());
        Shown { names: names.collect() }
    }

    /// The nodes of these pods, with a count of those that are not shown.
    fn nodes(&self, scene: &Scene, pods: &[&Pod], now: Timestamp) -> Vec<Node> {
        let is_shown = |pod: &&&Pod| self.names.contains(pod.name_any().as_str());
        let (shown, others): (Vec<&&Pod>, Vec<&&Pod>) = pods.iter().partition(is_shown);
        let settled = others.iter().filter(|pod| is_settled(scene, pod)).count();
        let hidden = [
            (others.len() - settled, "not ready, or in progress"),
            (settled, "ready, nothing in progress"),
        ];
        let hidden = hidden.into_iter().filter(|(count, _)| *count > 0);
        let nodes = shown.into_iter().map(|pod| pod_node(scene, pod, now));
        nodes.chain(hidden.map(|(count, info)| hidden_pods(count, info))).collect()
    }
}

/// Whether [`pod::is_settled`] holds, and the pod has no token, no HookRun and no reserved ordinal.
fn is_settled(scene: &Scene, pod: &Pod) -> bool {
    let is_reserved = || scene.game.is_reserved(&pod.name_any());
    let is_settled = pod::is_settled(pod) && !sidecars::has_token(pod);
    is_settled && !scene.runs.iter().any(|run| is_for_pod(run, pod)) && !is_reserved()
}

/// The node in place of pods that are not shown. `info` says what they have in common.
pub fn hidden_pods(count: usize, info: &str) -> Node {
    Node {
        name: format!("... and {count} more"),
        kind: "Pod".into(),
        state: "".into(),
        age: String::new(),
        info: info.to_owned(),
        children: Vec::new(),
    }
}

fn root(scene: &Scene, verdict: &Verdict, pods: &Shown<'_>, now: Timestamp) -> Node {
    let game = &scene.game;
    let is_shown = |revision: &&ControllerRevision| {
        let name = revision.name_any();
        !scene.role(&name).is_empty() || scene.pods_at(&name).next().is_some()
    };
    let shown: Vec<&ControllerRevision> = scene.revisions.iter().filter(is_shown).collect();
    let is_known = |name: &str| shown.iter().any(|revision| revision.name_any() == name);
    let mut children: Vec<Node> =
        shown.iter().map(|it| revision_node(scene, it, pods, now)).collect();
    let stray_pods = scene.pods.iter().filter(|pod| !is_known(revision_of(pod)));
    children.extend(pods.nodes(scene, &stray_pods.collect::<Vec<_>>(), now));
    let has_parent = |run: &&HookRun| match scene.point(run) {
        Some(HookPoint::Step) => step_revision(scene, run).is_some_and(is_known),
        _ => scene.pod_of(run).is_some(),
    };
    let stray_runs = scene.runs.iter().filter(|run| !has_parent(run));
    children.extend(stray_runs.map(|run| run_node(scene, run, now)));
    Node {
        name: game.name.clone(),
        kind: game.kind.as_str().into(),
        state: Cell::state(verdict.tone(), verdict.label()),
        age: age(game.created.as_ref(), now),
        info: String::new(),
        children,
    }
}

fn revision_node(
    scene: &Scene,
    revision: &ControllerRevision,
    pods: &Shown<'_>,
    now: Timestamp,
) -> Node {
    let name = revision.name_any();
    let is_step_of_revision = |run: &&HookRun| {
        scene.point(run) == Some(HookPoint::Step) && step_revision(scene, run) == Some(&name)
    };
    let steps = scene.runs.iter().filter(is_step_of_revision).map(|run| run_node(scene, run, now));
    let pods = pods.nodes(scene, &scene.pods_at(&name).collect::<Vec<_>>(), now);
    let role = scene.role(&name);
    Node {
        kind: "Revision".into(),
        state: if role.is_empty() { "old" } else { role }.into(),
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
    let runs = || scene.runs.iter().filter(|run| is_for_pod(run, pod));
    let is_reserved = scene.game.is_reserved(&pod.name_any());
    let is_for_update = is_for_update(scene, runs());
    Node {
        name: pod.name_any(),
        kind: "Pod".into(),
        state: pod::state(pod),
        age: age(pod.creation_timestamp().as_ref(), now),
        info: sidecars::info_with_sidecars(pod::info(pod, is_for_update, is_reserved), pod, now),
        children: runs().map(|run| run_node(scene, run, now)).collect(),
    }
}

/// Whether the hook that a pod waits for, which is one of these, guards its update. A PreDelete hook guards updates,
/// too, if there is no PreInplace hook. When a pod is to be deleted, the HookRun of its last update may still exist.
pub fn is_for_update<'a>(scene: &Scene, runs: impl Iterator<Item = &'a HookRun>) -> bool {
    let guards = runs.filter(|run| scene.point(run).is_some_and(HookPoint::marks_pods));
    let targets = guards.filter_map(|run| run.annotations().get(RUN_TARGET));
    let targets: Vec<&String> = targets.collect();
    !targets.is_empty() && targets.iter().all(|target| !target.is_empty())
}

fn run_node(scene: &Scene, run: &HookRun, now: Timestamp) -> Node {
    let point = scene.point(run).map_or("", HookPoint::as_str);
    Node {
        name: run.name_any(),
        kind: "HookRun".into(),
        state: phase_cell(run.phase()),
        age: age(run.creation_timestamp().as_ref(), now),
        info: format!("{point}: {}", summary(run)),
        children: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use gamekeeper_core::api::names::{DELETING_ANNOTATION, MOVE_ANNOTATION};

    use super::*;
    use crate::fixture::{
        failed_pod_hook, failed_step, guarded, hostile, many_pods, now, paused_canary, reserved,
        stateful_set,
    };
    use crate::view::{hooks, list, status};

    const ALL_COLUMNS: list::Columns =
        list::Columns { namespace: true, why: true, age: true, headings: true };
    const SYMBOLS: Style = Style { symbols: true, color: false, width: None };

    #[test]
    fn a_canary_at_its_pause() {
        insta::assert_snapshot!(tree(&paused_canary(), MAX_PODS, Style::PLAIN, now()));
    }

    #[test]
    fn a_tree_fits_a_terminal_of_80_columns() {
        let style = Style { width: Some(80), ..SYMBOLS };
        for scene in [paused_canary(), failed_step(), guarded(), many_pods()] {
            let shown = tree(&scene, MAX_PODS, style, now());
            let wide = shown.lines().filter(|line| line.chars().count() > 80);
            let wide: Vec<&str> = wide.filter(|line| !line.contains("kubectl game ")).collect();
            assert!(wide.is_empty(), "{wide:#?}");
        }
        insta::assert_snapshot!(tree(&failed_step(), MAX_PODS, style, now()));
    }

    #[test]
    fn a_canary_whose_hook_failed() {
        insta::assert_snapshot!(tree(&failed_step(), MAX_PODS, SYMBOLS, now()));
    }

    #[test]
    fn a_pod_that_its_hook_keeps() {
        insta::assert_snapshot!(tree(&failed_pod_hook(), MAX_PODS, Style::PLAIN, now()));
    }

    #[test]
    fn a_guarded_pod_that_waits() {
        insta::assert_snapshot!(tree(&guarded(), MAX_PODS, Style::PLAIN, now()));
    }

    #[test]
    fn a_set_in_the_order_of_its_ordinals() {
        insta::assert_snapshot!(tree(&stateful_set(), MAX_PODS, SYMBOLS, now()));
    }

    #[test]
    fn a_set_with_a_reserved_ordinal() {
        insta::assert_snapshot!(tree(&reserved(), MAX_PODS, Style::PLAIN, now()));
    }

    #[test]
    fn unsettled_pods_are_shown_first() {
        insta::assert_snapshot!(tree(&many_pods(), 4, Style::PLAIN, now()));
    }

    #[test]
    fn a_pod_that_is_to_be_moved_is_not_settled() {
        let mut scene = many_pods();
        let moved = &mut scene.pods[5];
        let name = moved.name_any();
        moved
            .annotations_mut()
            .insert(MOVE_ANNOTATION.to_owned(), "2026-11-21T10:04:00Z".to_owned());
        let shown = tree(&scene, 3, Style::PLAIN, now());
        let line = shown.lines().find(|line| line.contains(&name));
        assert!(line.is_some_and(|line| line.ends_with("to be moved")), "{shown}");
    }

    #[test]
    fn the_target_of_its_hook_tells_whether_a_pod_is_to_be_updated() {
        let shown = |point: &str, target: &str| {
            let mut scene = failed_pod_hook();
            for pod in &mut scene.pods {
                pod.annotations_mut().insert(DELETING_ANNOTATION.to_owned(), "true".to_owned());
            }
            let run = &mut scene.runs[0];
            run.labels_mut().insert("gamedeployment-type".to_owned(), point.to_owned());
            run.annotations_mut().insert(RUN_TARGET.to_owned(), target.to_owned());
            scene
        };
        let line = |scene: &Scene| {
            let text = tree(scene, MAX_PODS, Style::PLAIN, now());
            let mut lines = text.lines().filter(|line| line.contains(" Pod "));
            let line = lines.find(|line| line.contains("game-bbbbb"));
            line.unwrap_or_default().to_owned()
        };
        for (point, target, expected) in [
            ("PreDelete", "", "to be deleted"),
            ("PreDelete", "game-new", "to be updated"),
            ("PreInplace", "game-new", "to be updated"),
            ("PreInplace", "game-old+log-2", "to be updated"),
            ("PostInplace", "game-old", "to be deleted"),
        ] {
            let line = line(&shown(point, target));
            assert!(line.ends_with(expected), "{point} {target:?}: {line}");
        }
        // The run of an earlier update has not been deleted yet.
        let mut scene = shown("PreDelete", "");
        scene.runs.extend(shown("PreInplace", "game-old").runs);
        assert!(line(&scene).ends_with("to be deleted"), "{}", line(&scene));
    }

    #[test]
    fn all_pods_are_shown_on_request() {
        let shown = tree(&many_pods(), usize::MAX, Style::PLAIN, now());
        let pods = shown.lines().filter(|line| line.contains(" Pod "));
        assert_eq!(pods.count(), many_pods().pods.len());
    }

    #[test]
    fn colors_do_not_change_the_text() {
        let style = Style { color: true, ..SYMBOLS };
        let painted = tree(&failed_step(), MAX_PODS, style, now());
        let mut bare = String::new();
        for part in painted.split('\x1b') {
            bare.push_str(
                part.split_once('m')
                    .filter(|(code, _)| code.starts_with('['))
                    .map_or(part, |(_, text)| text),
            );
        }
        assert_ne!(painted, bare);
        assert_eq!(bare, tree(&failed_step(), MAX_PODS, SYMBOLS, now()));
    }

    #[test]
    fn control_characters_of_objects_are_escaped() {
        let scene = hostile();
        let time = now();
        let verdict = judge(&scene, time);
        for text in [
            tree(&scene, MAX_PODS, Style::PLAIN, time),
            hooks::hooks(&scene, Style::PLAIN, time),
            history::history(&scene, Style::PLAIN, time),
            status::status(&scene.game, &verdict, Style::PLAIN),
            list::list(std::slice::from_ref(&scene), ALL_COLUMNS, Style::PLAIN, time),
        ] {
            assert!(!text.contains(|it: char| it.is_control() && it != '\n'), "{text:?}");
            assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
        }
    }
}

//! `kubectl game tree`: the workload, its revisions, their pods, and the HookRuns of each.

use gamekeeper::api::names::HookPoint;
use gamekeeper::api::{GameStatefulSetUpdateType as UpdateType, HookRun};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::run::{phase_cell, told};
use super::{cut, history, pod};
use crate::age::age;
use crate::game::Game;
use crate::scene::{Scene, phase, revision_of};
use crate::style::{Style, Tone};
use crate::table::{Cell, Table};
use crate::verdict::{Verdict, judge, name_of};

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

/// Head and tree.
pub fn tree(scene: &Scene, style: Style, now: Timestamp) -> String {
    let verdict = judge(scene, now);
    let mut text = head(scene, &verdict, style);
    let mut table = Table::new(["NAME", "KIND", "STATUS", "AGE", "INFO"]);
    let root = root(scene, &verdict, now);
    draw(&root, "", "", style, &mut table);
    text.push('\n');
    text.push_str(&table.render(style));
    text
}

fn head(scene: &Scene, verdict: &Verdict, style: Style) -> String {
    let game = &scene.game;
    let status = &game.status;
    let word = format!("{}{}", style.mark(verdict.tone()), verdict.word);
    let mut lines = vec![
        ("Name", game.full_name()),
        ("Namespace", game.namespace.clone()),
        ("Status", style.paint(verdict.tone(), &word)),
        ("", verdict.sentence.clone()),
    ];
    lines.extend(
        verdict
            .also
            .iter()
            .map(|also| ("", format!("also: {also}"))),
    );
    lines.extend(verdict.mend.iter().map(|mend| ("", mend.clone())));
    lines.push(("Strategy", strategy(game)));
    lines.extend(hooks(game).map(|hooks| ("Hooks", hooks)));
    if !game.steps.is_empty() {
        lines.push(("Steps", steps(scene, style)));
    }
    lines.push((
        "Pods",
        format!(
            "desired {}, updated {}, updated and ready {}, ready {}, total {}",
            game.replicas,
            status.updated_replicas,
            status.updated_ready_replicas,
            status.ready_replicas,
            status.replicas
        ),
    ));
    let label = |name: &str| {
        if name.is_empty() {
            String::new()
        } else {
            format!("{name}:")
        }
    };
    lines
        .iter()
        .map(|(name, text)| format!("{:<12}{text}\n", label(name)))
        .collect()
}

fn strategy(game: &Game) -> String {
    match game.update {
        UpdateType::InplaceUpdate => format!("{:?}, {:?}", game.update, game.policy),
        other => format!("{other:?}"),
    }
}

/// The hooks of its pods.
fn hooks(game: &Game) -> Option<String> {
    let told: Vec<String> = game
        .hooks
        .iter()
        .filter_map(|(point, strategy)| {
            let hook = strategy.hook.as_ref()?;
            let retry = if strategy.retry {
                " (retry asked for)"
            } else {
                ""
            };
            Some(format!("{} {}{retry}", point.as_str(), hook.template_name))
        })
        .collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// The step list: those behind it, [where it stands], and those to come.
fn steps(scene: &Scene, style: Style) -> String {
    let game = &scene.game;
    let at = game.step_index().unwrap_or(0);
    let shown = |(index, step)| {
        let name = name_of(step);
        match index {
            _ if index < at => {
                style.paint(Tone::Good, &format!("{}{name}", style.mark(Tone::Good)))
            }
            _ if index == at => style.paint(Tone::Held, &format!("[{name}]")),
            _ => style.paint(Tone::Faint, &name),
        }
    };
    let all: Vec<String> = game.steps.iter().enumerate().map(shown).collect();
    format!(
        "{} of {} behind it: {}",
        at.min(all.len()),
        all.len(),
        all.join(", ")
    )
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

fn root(scene: &Scene, verdict: &Verdict, now: Timestamp) -> Node {
    let game = &scene.game;
    let is_shown = |revision: &&ControllerRevision| {
        let name = revision.name_any();
        !scene.part(&name).is_empty() || scene.pods_at(&name).next().is_some()
    };
    let shown: Vec<&ControllerRevision> = scene.revisions.iter().filter(is_shown).collect();
    let is_known = |name: &str| shown.iter().any(|revision| revision.name_any() == name);
    let mut children: Vec<Node> = shown.iter().map(|it| revision(scene, it, now)).collect();
    let strays = scene.pods.iter().filter(|pod| !is_known(revision_of(pod)));
    children.extend(strays.map(|pod| pod_node(scene, pod, now)));
    let hangs = |run: &&HookRun| match scene.point(run) {
        Some(HookPoint::Step) => step_revision(scene, run).is_some_and(is_known),
        _ => scene.pod_of(run).is_some(),
    };
    let loose = scene.runs.iter().filter(|run| !hangs(run));
    children.extend(loose.map(|run| run_node(scene, run, now)));
    Node {
        name: game.name.clone(),
        kind: game.kind.as_str(),
        state: Cell::state(verdict.tone(), verdict.word),
        age: age(game.created.as_ref(), now),
        info: String::new(),
        children,
    }
}

fn revision(scene: &Scene, revision: &ControllerRevision, now: Timestamp) -> Node {
    let name = revision.name_any();
    let is_here = |run: &&HookRun| {
        scene.point(run) == Some(HookPoint::Step) && step_revision(scene, run) == Some(&name)
    };
    let steps = scene
        .runs
        .iter()
        .filter(is_here)
        .map(|run| run_node(scene, run, now));
    let pods = scene.pods_at(&name).map(|pod| pod_node(scene, pod, now));
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
    let is_about_it = |run: &&HookRun| {
        let about = scene.pod_of(run);
        about.is_some_and(|about| about.metadata.uid == pod.metadata.uid)
    };
    let runs = scene.runs.iter().filter(is_about_it);
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
    use crate::fixture::{failed_pod_hook, failed_step, now, paused_canary, set};

    const SYMBOLS: Style = Style {
        symbols: true,
        colour: false,
    };

    #[test]
    fn a_canary_at_its_pause() {
        insta::assert_snapshot!(tree(&paused_canary(), Style::PLAIN, now()));
    }

    #[test]
    fn a_canary_whose_hook_failed() {
        insta::assert_snapshot!(tree(&failed_step(), SYMBOLS, now()));
    }

    #[test]
    fn a_pod_that_its_hook_keeps() {
        insta::assert_snapshot!(tree(&failed_pod_hook(), Style::PLAIN, now()));
    }

    #[test]
    fn a_set_in_the_order_of_its_ordinals() {
        insta::assert_snapshot!(tree(&set(), SYMBOLS, now()));
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let style = Style {
            colour: true,
            ..SYMBOLS
        };
        let painted = tree(&failed_step(), style, now());
        let mut bare = String::new();
        for part in painted.split('\x1b') {
            bare.push_str(
                part.split_once('m')
                    .filter(|(code, _)| code.starts_with('['))
                    .map_or(part, |(_, text)| text),
            );
        }
        assert_ne!(painted, bare);
        assert_eq!(bare, tree(&failed_step(), SYMBOLS, now()));
    }
}

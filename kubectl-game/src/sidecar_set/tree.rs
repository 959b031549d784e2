//! `kubectl game tree scs/NAME`: a SidecarSet, the workloads whose pods it selects, and those pods.

use std::collections::BTreeSet;

use gamekeeper_core::api::{SidecarUpdateType, UpdateStrategyType};
use gamekeeper_core::sidecar_set::has_same_containers;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde_json::Value;

use super::scene::SidecarScene;
use super::set::{Set, selector_text};
use super::verdict::judge;
use crate::age::age;
use crate::page::Page;
use crate::style::{Style, Tone};
use crate::table::Cell;
use crate::verdict::{Verdict, judge as judge_game};
use crate::view::head::plain;
use crate::view::tree::{Node, hidden_pods, render};
use crate::view::{pod as pods, sidecars};

/// The head and the tree, with at most `max_pods` pods.
pub fn tree(scene: &SidecarScene, max_pods: usize, style: Style, now: Timestamp) -> String {
    let verdict = judge(&scene.set);
    let shown = shown(scene, max_pods);
    let root = Node {
        name: scene.set.name().to_owned(),
        kind: "SidecarSet".into(),
        state: Cell::state(verdict.tone(), verdict.label()),
        age: age(scene.set.created(), now),
        info: scene.set.status().latest_revision,
        children: children(scene, &shown, now),
    };
    let head = head(&scene.set, &verdict, style, now);
    format!("{head}\n{}", render(&root, style))
}

fn head(set: &Set, verdict: &Verdict, style: Style, now: Timestamp) -> String {
    let mut page = Page::new(style);
    page.row("Name", &plain(set.full_name()));
    let word = format!("{}{}", style.mark(verdict.tone()), verdict.word);
    page.row("Status", &[(verdict.tone(), word)]);
    page.row("", &plain(&verdict.sentence));
    for command in verdict.advice() {
        page.row("", &plain(command));
    }
    for condition in set.unexpected_conditions() {
        let tone = match condition.status.as_str() {
            "True" => Tone::Held,
            _ => Tone::Bad,
        };
        let since = format!(" for {}: ", age(Some(&condition.last_transition_time), now));
        let parts = [(tone, condition.reason.clone()), (Tone::Plain, since + &condition.message)];
        page.row(&condition.type_, &parts);
    }
    page.row("Selector", &plain(selector(set)));
    page.row("Strategy", &plain(strategy(set)));
    page.row("Images", &plain(images(set)));
    let status = set.status();
    let pods = format!(
        "matched {}, updated {}, updated and ready {}, ready {}, uninjected {}",
        status.matched_pods,
        status.updated_pods,
        status.updated_ready_pods,
        status.ready_pods,
        status.uninjected_pods
    );
    page.row("Pods", &plain(pods));
    page.text()
}

fn selector(set: &Set) -> String {
    let labels = set.selector().unwrap_or_default();
    match &set.spec().namespace {
        Some(namespace) => format!("{labels} in namespace {namespace}"),
        None => labels,
    }
}

/// How pods are updated: the type, and maxUnavailable, partition, selector and paused if they are set.
fn strategy(set: &Set) -> String {
    let strategy = &set.spec().update_strategy;
    let number = |name: &str, number: Option<&IntOrString>| match number? {
        IntOrString::Int(number) => Some(format!("{name} {number}")),
        IntOrString::String(percentage) => Some(format!("{name} {percentage}")),
    };
    let selector = strategy.selector.as_ref().and_then(selector_text);
    let type_ = match strategy.type_ {
        SidecarUpdateType::RollingUpdate => "RollingUpdate",
        SidecarUpdateType::NotUpdate => "NotUpdate",
    };
    let parts = [
        Some(type_.to_owned()),
        number("maxUnavailable", strategy.max_unavailable.as_ref()),
        number("partition", strategy.partition.as_ref()),
        selector.map(|labels| format!("selector {labels}")),
        strategy.paused.then(|| "paused".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn images(set: &Set) -> String {
    let spec = set.spec();
    let containers = spec.init_containers.iter().chain(&spec.containers);
    let text = |container: &Value, field: &str| {
        let text = container.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let images = containers.map(|it| format!("{}={}", text(it, "name"), text(it, "image")));
    images.collect::<Vec<_>>().join(", ")
}

/// The keys of at most `max` pods. Pods that are not settled come first.
fn shown(scene: &SidecarScene, max: usize) -> BTreeSet<(Option<String>, String)> {
    let mut pods: Vec<&Pod> = scene.pods.iter().collect();
    pods.sort_by_cached_key(|pod| is_settled(scene, pod));
    pods.into_iter().take(max).map(key).collect()
}

fn key(pod: &Pod) -> (Option<String>, String) {
    (pod.namespace(), pod.name_any())
}

/// Whether a pod is settled, has the newest containers, and holds no token.
fn is_settled(scene: &SidecarScene, pod: &Pod) -> bool {
    pods::is_settled(pod) && is_updated(scene, pod) && !sidecars::has_token(pod)
}

fn is_updated(scene: &SidecarScene, pod: &Pod) -> bool {
    let mark = scene.mark(pod).filter(|mark| mark.is_injected());
    let latest = scene.set.status().latest_revision;
    mark.is_some_and(|mark| has_same_containers(scene.set.name(), &mark.revision, &latest))
}

fn children(
    scene: &SidecarScene,
    shown: &BTreeSet<(Option<String>, String)>,
    now: Timestamp,
) -> Vec<Node> {
    let mut children = Vec::new();
    for (controller, pods) in scene.by_controller() {
        let is_shown = |pod: &&&Pod| shown.contains(&key(pod));
        let (visible, others): (Vec<&&Pod>, Vec<&&Pod>) = pods.iter().partition(is_shown);
        let settled = others.iter().filter(|pod| is_settled(scene, pod)).count();
        let hidden = [
            (others.len() - settled, "not ready, without the newest containers, or in progress"),
            (settled, "ready, with the newest containers"),
        ];
        let hidden = hidden.into_iter().filter(|(count, _)| *count > 0);
        let visible =
            visible.into_iter().map(|pod| pod_node(scene, pod, controller.is_none(), now));
        let nodes = visible.chain(hidden.map(|(count, info)| hidden_pods(count, info)));
        match controller {
            Some(controller) => children.push(Node {
                children: nodes.collect(),
                ..controller_node(scene, controller, &pods, now)
            }),
            None => children.extend(nodes),
        }
    }
    children
}

/// The node of the pods' controller. If that is a workload, the node shows its state, because the workload decides when
/// its pods are updated.
fn controller_node(
    scene: &SidecarScene,
    controller: &OwnerReference,
    pods: &[&Pod],
    now: Timestamp,
) -> Node {
    let namespace = pods.first().and_then(|pod| pod.namespace());
    let name = format!("{}/{}", namespace.unwrap_or_default(), controller.name);
    let updated = pods.iter().filter(|pod| is_updated(scene, pod)).count();
    let mut info = format!("{updated} of {} pods have the newest containers", pods.len());
    let Some(workload) = scene.workload(&controller.uid) else {
        return Node {
            name,
            kind: controller.kind.clone(),
            state: "".into(),
            age: String::new(),
            info,
            children: Vec::new(),
        };
    };
    let (game, verdict) = (&workload.game, judge_game(workload, now));
    if game.paused && updated < pods.len() {
        info += "; the update waits, because the workload is paused";
    } else if keeps_sidecars(game.update) {
        info += &format!("; running pods keep their sidecars ({:?})", game.update);
    }
    Node {
        name,
        kind: game.kind.as_str().into(),
        state: Cell::state(verdict.tone(), verdict.label()),
        age: age(game.created.as_ref(), now),
        info,
        children: Vec::new(),
    }
}

/// Whether a workload with this strategy never updates sidecars of running pods.
fn keeps_sidecars(update: UpdateStrategyType) -> bool {
    matches!(update, UpdateStrategyType::OnDelete | UpdateStrategyType::HotPatchUpdate)
}

fn pod_node(scene: &SidecarScene, pod: &Pod, is_alone: bool, now: Timestamp) -> Node {
    let name = match (is_alone, pod.namespace()) {
        (true, Some(namespace)) => format!("{namespace}/{}", pod.name_any()),
        _ => pod.name_any(),
    };
    let created = pod.creation_timestamp();
    let is_older = created.as_ref().map(|it| it.0) < scene.set.created().map(|it| it.0);
    let latest = scene.set.status().latest_revision;
    let mark = scene.mark(pod);
    // While its hook runs, a pod with a token has the annotation of a deletion, even though it will only be updated.
    let is_for_update = mark.as_ref().is_some_and(|mark| mark.token.is_some());
    let mark = sidecars::describe_mark(mark.as_ref(), &latest, is_older, now);
    Node {
        name,
        kind: "Pod".into(),
        state: pods::state(pod),
        age: age(created.as_ref(), now),
        info: format!("{}, {mark}", pods::info(pod, is_for_update, false)),
        children: Vec::new(),
    }
}

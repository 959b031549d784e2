//! What `kubectl game` prints about SidecarSets, and what it changes.

use gamekeeper_core::api::names::{SIDECARS_LABEL, WorkloadKind};
use gamekeeper_core::observed::mark_key;
use gamekeeper_core::sidecar_set::Namespace;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::change::{Change, patch};
use super::list::list;
use super::scene::SidecarScene;
use super::set::Set;
use super::tree::tree;
use super::verdict::judge;
use super::{are_requested, completions, data, name_in, short_name, status_verdict};
use crate::fixture::now;
use crate::game::Game;
use crate::scene::Scene;
use crate::style::Style;
use crate::view::status as sentences;
use crate::view::tree::MAX_PODS;

const OLD: &str = r#"{"at":"log-old","in":["log"]}"#;
const NEW: &str = r#"{"at":"log-new","in":["log"]}"#;
const TOKEN: &str =
    r#"{"at":"log-old","in":["log"],"to":"log-new","since":"2026-11-21T10:04:20Z"}"#;
const CLASH: &str =
    r#"{"at":"log-new","out":"the pod has another container \"log\"; rename one of the two"}"#;

/// A set with two of its four pods updated, changed by a merge patch.
fn set(change: Value) -> Set {
    let condition = |type_: &str, reason: &str, message: &str| {
        json!({"type": type_, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": "2026-11-21T10:00:00Z"})
    };
    let mut object = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "SidecarSet",
        "metadata": {"name": "log", "generation": 2, "creationTimestamp": "2026-11-21T09:30:00Z"},
        "spec": {
            "selector": {"matchLabels": {"app": "arena"}},
            "initContainers": [{"name": "mesh", "image": "mesh:1.0", "restartPolicy": "Always"}],
            "containers": [{"name": "log", "image": "log:1.1"}],
            "updateStrategy": {"maxUnavailable": "20%"},
        },
        "status": {
            "observedGeneration": 2, "matchedPods": 4, "updatedPods": 2, "readyPods": 4,
            "updatedReadyPods": 2, "uninjectedPods": 0, "latestRevision": "log-new",
            "conditions": [
                condition("Ready", "AllPodsReady", "all pods have the containers and are ready"),
                condition("Progressing", "Updating", "2 of 4 pods have the newest containers"),
                condition("Injecting", "Injecting", "new pods get the containers"),
            ],
        },
    });
    json_patch::merge(&mut object, &change);
    Set::read(serde_json::from_value(object).expect("an object")).expect("a SidecarSet")
}

/// The set with these counts, and with these conditions: type, status, reason and message.
fn with_conditions(counts: Value, conditions: &[[&str; 4]]) -> Set {
    let conditions = conditions.iter().map(|[type_, status, reason, message]| {
        json!({"type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-11-21T10:00:00Z"})
    });
    let conditions: Vec<Value> = conditions.collect();
    let mut change = json!({"status": {"conditions": conditions}});
    json_patch::merge(&mut change["status"], &counts);
    set(change)
}

fn progressing(status: &str, reason: &str, message: &str) -> Set {
    with_conditions(json!({}), &[["Progressing", status, reason, message]])
}

fn namespace(name: &str, sidecars: &str) -> Namespace {
    let labels = [(SIDECARS_LABEL.to_owned(), sidecars.to_owned())];
    Namespace { name: name.to_owned(), labels: labels.into() }
}

/// A running pod; `owner` is its controller's API version, kind and name.
fn pod(name: &str, owner: Option<[&str; 3]>, mark: Option<&str>) -> Pod {
    let (namespace, name) = name.split_once('/').expect("a namespace");
    let owners = owner.map(|[version, kind, name]| {
        json!([{"apiVersion": version, "kind": kind, "name": name, "uid": format!("uid-{name}"),
            "controller": true}])
    });
    let marks = mark.map(|mark| json!({mark_key("log"): mark}));
    let pod = json!({
        "metadata": {
            "namespace": namespace, "name": name, "labels": {"app": "arena"}, "ownerReferences": owners,
            "annotations": marks, "creationTimestamp": "2026-11-21T09:40:00Z",
        },
        "spec": {"containers": [{"name": "game"}, {"name": "log"}]},
        "status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "game", "image": "", "imageID": "", "ready": true, "restartCount": 0},
                {"name": "log", "image": "", "imageID": "", "ready": true, "restartCount": 1},
            ],
        },
    });
    serde_json::from_value(pod).expect("a pod")
}

const ARENA: Option<[&str; 3]> = Some(["tkex.tencent.com/v1alpha1", "GameDeployment", "arena"]);
const LOBBY: Option<[&str; 3]> = Some(["tkex.tencent.com/v1alpha1", "GameDeployment", "lobby"]);
const WEB: Option<[&str; 3]> = Some(["apps/v1", "ReplicaSet", "web-7d9"]);

fn game(name: &str, change: Value) -> Game {
    let mut object = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "GameDeployment",
        "metadata": {"name": name, "namespace": "games", "uid": format!("uid-{name}"), "generation": 1,
            "creationTimestamp": "2026-11-21T09:00:00Z"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "arena"}},
            "template": {"metadata": {"labels": {"app": "arena"}},
                "spec": {"containers": [{"name": "game", "image": "game:1"}]}},
        },
        "status": {"observedGeneration": 1, "replicas": 2, "conditions": [{"type": "Ready", "status": "True",
            "reason": "AllPodsAvailable", "message": "", "lastTransitionTime": "2026-11-21T09:01:00Z"}]},
    });
    json_patch::merge(&mut object, &change);
    Game::read(WorkloadKind::GameDeployment, object).expect("a workload")
}

/// Pods of two workloads and of a ReplicaSet, and one without a controller.
fn pods() -> Vec<Pod> {
    vec![
        pod("games/arena-b", ARENA, Some(TOKEN)),
        pod("games/arena-a", ARENA, Some(NEW)),
        pod("games/lobby-a", LOBBY, Some(OLD)),
        pod("web/web-7d9-a", WEB, Some(CLASH)),
        pod("web/web-7d9-b", WEB, Some(NEW)),
        pod("web/alone", None, None),
    ]
}

fn scene(set: Set, mut pods: Vec<Pod>) -> SidecarScene {
    // The pod that lacks the containers is older than the set.
    if let Some(alone) = pods.last_mut() {
        let created = "2026-11-21T09:00:00Z".parse().expect("a time");
        alone.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
    }
    let games = [
        game("arena", json!({})),
        game("lobby", json!({"spec": {"updateStrategy": {"paused": true}}})),
    ];
    let namespaces =
        vec![namespace("games", ""), namespace("web", "enabled"), namespace("closed", "disabled")];
    let workloads = games.map(Scene::of_game);
    SidecarScene::new(set, namespaces, pods, workloads.into())
}

fn clashing() -> Set {
    with_conditions(
        json!({"uninjectedPods": 2}),
        &[
            [
                "Ready",
                "False",
                "NotInjected",
                "the containers are missing from web/alone; web/web-7d9-a",
            ],
            [
                "Progressing",
                "False",
                "WaitsForWorkload",
                "2 of 4 pods have the newest containers; these wait \
                for their hook, or for their workload's maxUnavailable: games/arena-b",
            ],
            [
                "Injecting",
                "False",
                "Clash",
                "left out of web/web-7d9-a: the pod has another container \"log\"; \
                rename one of the two",
            ],
        ],
    )
}

#[test]
fn a_set_with_its_workloads_and_pods() {
    insta::assert_snapshot!(tree(&scene(clashing(), pods()), MAX_PODS, Style::PLAIN, now()));
}

#[test]
fn pods_that_are_not_updated_are_shown_first() {
    let style = Style { symbols: true, ..Style::PLAIN };
    insta::assert_snapshot!(tree(&scene(set(json!({})), pods()), 2, style, now()));
}

#[test]
fn the_head_shows_each_limit_of_the_update() {
    let strategy = json!({
        "paused": true, "partition": 1,
        "selector": {"matchLabels": {"tier": "canary"}, "matchExpressions": [{"key": "beta", "operator": "Exists"}]},
    });
    let limited = set(json!({"spec": {"updateStrategy": strategy}}));
    let shown = tree(&scene(limited, pods()), MAX_PODS, Style::PLAIN, now());
    let line = "\nStrategy:   RollingUpdate, maxUnavailable 20%, partition 1, selector tier=canary,beta, paused\n";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn only_pods_that_the_set_selects_in_namespaces_that_it_reaches_are_shown() {
    let mut ended = pod("games/ended", ARENA, Some(NEW));
    ended.status.get_or_insert_default().phase = Some("Failed".to_owned());
    let mut other = pod("games/other", ARENA, Some(NEW));
    other.metadata.labels = None;
    let mut terminating = pod("games/terminating", ARENA, Some(NEW));
    terminating.metadata.deletion_timestamp = terminating.metadata.creation_timestamp.clone();
    let all = vec![
        ended,
        other,
        terminating,
        // Of another controller, in a namespace that is not labeled.
        pod("games/web", WEB, None),
        pod("games/web-with-sidecars", WEB, Some(NEW)),
        pod("closed/a", ARENA, Some(NEW)),
        pod("unknown/a", ARENA, Some(NEW)),
        pod("web/a", ARENA, Some(NEW)),
        pod("games/a", ARENA, Some(NEW)),
    ];
    let names = |set: Set| -> Vec<String> {
        let scene = scene(set, all.clone());
        let name = |pod: &Pod| {
            let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
            format!(
                "{}/{}",
                namespace.clone().unwrap_or_default(),
                name.clone().unwrap_or_default()
            )
        };
        scene.pods.iter().map(name).collect()
    };
    assert_eq!(names(set(json!({}))), ["games/a", "games/web-with-sidecars", "web/a"]);
    let operator_in_games = json!({"status": {"revisionNamespace": "games"}});
    assert_eq!(names(set(operator_in_games)), ["web/a"]);
    assert_eq!(names(set(json!({"spec": {"namespace": "web"}}))), ["web/a"]);
    let deleted = set(json!({"metadata": {"deletionTimestamp": "2026-11-21T09:40:00Z"}}));
    assert!(names(deleted).is_empty());
}

#[test]
fn sets_in_a_table() {
    insta::assert_snapshot!(list(&[set(json!({})), clashing()], Style::PLAIN, now()));
}

#[test]
fn each_state_of_an_update_in_a_sentence() {
    let ready = json!({"updatedPods": 4, "updatedReadyPods": 4});
    let broken = json!({"updatedPods": 4, "updatedReadyPods": 2});
    let all = "4 of 4 pods have the newest containers";
    let complete = ["Progressing", "True", "Complete", all];
    let webhook = "those of other controllers are created without them";
    let sets = [
        set(json!({})),
        with_conditions(ready.clone(), &[complete]),
        with_conditions(broken, &[complete]),
        with_conditions(json!({"updatedPods": 2, "updatedReadyPods": 1}), &[complete]),
        progressing("True", "HeldBack", "2 of 4 pods; the partition holds the others back"),
        progressing("False", "NotUpdate", "2 of 4 pods; the type is NotUpdate"),
        progressing("False", "Paused", "2 of 4 pods; set spec.updateStrategy.paused to false"),
        progressing("False", "NotInPlace", "2 of 4 pods; fields other than images differ"),
        progressing("False", "Refused", "2 of 4 pods; the API server refuses one"),
        clashing(),
        with_conditions(ready, &[complete, ["Injecting", "True", "WebhookNotInstalled", webhook]]),
        with_conditions(json!({}), &[["Ready", "False", "Unreadable", "cannot be decoded"]]),
        set(json!({"metadata": {"generation": 3}})),
        set(json!({"status": null})),
        set(json!({"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z"}})),
    ];
    let texts = sets.iter().map(|set| {
        let verdict = status_verdict(set);
        let text = sentences::text(&short_name(set.name()), &verdict, &[], Style::PLAIN);
        format!("exit {}: {text}", verdict.exit_code())
    });
    insta::assert_snapshot!(texts.collect::<String>());
}

#[test]
fn programs_get_the_state_as_fields() {
    let set = set(json!({}));
    assert_eq!(
        data(&set, &judge(&set)),
        json!({
            "kind": "SidecarSet", "name": "log", "end": "UnderWay", "status": "Updating",
            "message": "2 of 4 pods have the newest containers", "also": [], "fix": null, "commands": [],
            "exitCode": 3,
        })
    );
}

#[test]
fn a_set_is_named_like_other_objects() {
    let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
    for (text, expected) in [
        ("scs/log", Some("log")),
        ("sidecarset/log", Some("log")),
        ("sidecarsets log", Some("log")),
        ("SidecarSet.tkex.tencent.com/log", Some("log")),
        ("gd/scs", None),
        ("scs", None),
        ("scs/", None),
    ] {
        assert_eq!(name_in(&words(text)), expected, "{text}");
    }
    for (text, expected) in [
        ("scs", true),
        ("sidecarsets.tkex.tencent.com", true),
        ("scs/log", true),
        ("gd", false),
        ("game", false),
    ] {
        assert_eq!(are_requested(&words(text)), expected, "{text}");
    }
}

#[test]
fn completions_keep_the_name_of_the_kind_that_was_typed() {
    let completed = |word: &str| completions(word, ["log", "mesh"].into_iter());
    assert_eq!(completed(""), ["scs/log", "scs/mesh"]);
    assert_eq!(completed("scs/l"), ["scs/log"]);
    assert_eq!(completed("sidecarset"), ["sidecarset/log", "sidecarset/mesh"]);
    assert_eq!(completed("sidecarsets/m"), ["sidecarsets/mesh"]);
    assert!(completed("gd/").is_empty());
    assert!(completed("log").is_empty());
}

#[test]
fn a_second_pause_or_resume_is_refused() {
    let paused = set(json!({"spec": {"updateStrategy": {"paused": true}}}));
    let running = set(json!({}));
    let change = |set: &Set, change| patch(set, change).map_err(|error| error.to_string());
    let patch_to = |paused: bool| json!({"spec": {"updateStrategy": {"paused": paused}}});
    assert_eq!(change(&running, Change::Pause), Ok((patch_to(true), "paused")));
    assert_eq!(change(&paused, Change::Resume), Ok((patch_to(false), "resumed")));
    let refused = |text: &str| Err(text.to_owned());
    assert_eq!(change(&paused, Change::Pause), refused("scs/log is already paused"));
    assert_eq!(change(&running, Change::Resume), refused("scs/log is not paused"));
}

#[test]
fn control_characters_of_sets_and_pods_are_escaped() {
    const EVIL: &str = "\x1b[2J\x07\u{9b}31m\r\nforged";
    let mark = json!({"at": EVIL, "in": ["log"], "to": EVIL, "since": "2026-11-21T10:04:20Z"});
    let left_out = json!({"at": "log-new", "out": EVIL});
    let evil = with_conditions(
        json!({"latestRevision": EVIL}),
        &[["Progressing", "True", EVIL, EVIL], ["Injecting", "False", EVIL, EVIL]],
    );
    let pods = vec![
        pod("games/a", ARENA, Some(&mark.to_string())),
        pod("games/b", Some(["apps/v1", EVIL, EVIL]), Some(&left_out.to_string())),
        pod("web/c", Some(["apps/v1", EVIL, EVIL]), Some(&left_out.to_string())),
    ];
    let scene = scene(evil, pods);
    let verdict = judge(&scene.set);
    for text in [
        tree(&scene, MAX_PODS, Style::PLAIN, now()),
        list(std::slice::from_ref(&scene.set), Style::PLAIN, now()),
        sentences::text("scs/log", &verdict, &[], Style::PLAIN),
        sentences::sentence("scs/log", &verdict),
    ] {
        assert!(!text.contains(|it: char| it.is_control() && it != '\n'), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
    }
}

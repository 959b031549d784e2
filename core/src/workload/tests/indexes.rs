//! Indexes of a GameDeployment's pods.

use serde_json::{Value, json};

use super::story::{Story, story};
use crate::api::names::{INDEX_ENV, INDEX_ID, INDEX_ON, INDEX_RANGE};
use crate::write::{Change, NewPod, Write};

fn set_range(story: &mut Story, start: u32, end: u32) {
    story.annotate(INDEX_ON, "true");
    let range = json!({"podStartIndex": start, "podEndIndex": end});
    story.annotate(INDEX_RANGE, &range.to_string());
}

/// A workload whose pods get indexes from 100 (inclusive) to `end` (exclusive).
fn indexed(replicas: i32, end: u32, spec: Value) -> Story {
    let mut story = story(replicas, spec);
    set_range(&mut story, 100, end);
    story.settle();
    story
}

/// The sorted indexes of all pods, including Terminating ones. A pod without an index is shown as `-`.
fn indexes(story: &Story) -> String {
    let index = |index: Option<u32>| index.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let mut all: Vec<String> = story.pods().iter().map(|pod| index(pod.index)).collect();
    all.sort();
    all.join(" ")
}

fn last_created(story: &Story) -> &NewPod {
    let mut created = story.done.iter().rev().filter_map(|action| match action.change() {
        Change::CreatePod(new) => Some(new),
        _ => None,
    });
    created.next().expect("a creation")
}

fn reason(story: &Story, type_: &str) -> Option<String> {
    story.condition(type_).map(|(reason, _)| reason)
}

#[test]
fn new_pods_get_the_lowest_free_index() {
    let mut story = indexed(3, 110, json!({}));
    assert_eq!(indexes(&story), "100 101 102");
    let middle = story.pods().iter().position(|pod| pod.index == Some(101));
    story.world.pods.remove(middle.expect("a pod"));
    story.user(json!({"replicas": 4})).settle();
    assert_eq!(indexes(&story), "100 101 102 103");
}

#[test]
fn a_terminating_pod_holds_its_index() {
    let mut story = indexed(3, 103, json!({}));
    story.slow_to_end = true;
    story.image("v2").settle();
    assert_eq!(indexes(&story), "100 101 102");
    assert_eq!(reason(&story, "FailedScale"), None);
    assert_eq!(reason(&story, "Progressing").as_deref(), Some("PodIndexExhausted"));
    for _ in 0..3 {
        assert!(story.pods().iter().any(|pod| pod.terminating));
        story.end_terminating().settle();
    }
    assert_eq!(indexes(&story), "100 101 102");
    assert_eq!(story.images(), "v2 v2 v2");
    assert_eq!(reason(&story, "Ready").as_deref(), Some("AllPodsAvailable"));
}

#[test]
fn an_in_place_update_keeps_the_index_and_a_new_pod_gets_another() {
    let in_place = json!({"updateStrategy": {"type": "InplaceUpdate"}});
    let mut story = indexed(2, 110, in_place);
    let before = indexes(&story);
    let annotations = json!({INDEX_ID: "7", "season": "8"});
    story.user(json!({"template": {"metadata": {"annotations": annotations}}}));
    story.image("v2").settle();
    assert_eq!(story.images(), "v2 v2");
    assert_eq!(indexes(&story), before);
    let writes_index = |action: &Write| match action.change() {
        Change::PatchInPlace(patch) => patch.annotations.iter().any(|(key, _)| key == INDEX_ID),
        _ => false,
    };
    assert_eq!(story.count(writes_index), 0);

    let mut story =
        indexed(1, 110, json!({"updateStrategy": {"maxSurge": 1, "maxUnavailable": 0}}));
    story.image("v2").settle();
    assert_eq!(indexes(&story), "101", "its predecessor still had 100");
}

#[test]
fn turning_indexes_on_or_off_touches_no_pod() {
    let mut story = story(2, json!({}));
    story.settle();
    let revisions = story.world.revisions.len();
    story.done.clear();
    set_range(&mut story, 0, 9);
    story.settle();
    assert_eq!(story.done, []);
    story.user(json!({"replicas": 3})).settle();
    assert_eq!(indexes(&story), "- - 0");
    story.annotate(INDEX_ON, "True");
    story.user(json!({"replicas": 4})).settle();
    assert_eq!(indexes(&story), "- - - 0");
    assert_eq!(story.world.revisions.len(), revisions);
}

#[test]
fn the_index_is_in_the_annotation_and_in_the_environment_of_all_containers() {
    let env = |value: Value| json!({"name": INDEX_ENV, "value": value});
    let other = json!({"name": "ROOM", "value": "room-$(POD_INDEX)"});
    let template = json!({"template": {
        "metadata": {"annotations": {"season": "8", INDEX_ID: "7"}},
        "spec": {
            "initContainers": [{"name": "setup", "image": "setup:v1"}],
            "containers": [
                {"name": "game", "image": "game:v1", "env": [env(json!("x")), other]},
                {"name": "log", "image": "log:v1", "env": [other]},
            ],
        },
    }});
    let story = indexed(1, 110, template.clone());
    let pod = &last_created(&story).pod.parse();
    assert_eq!(pod["metadata"]["annotations"], json!({"season": "8", INDEX_ID: "100"}));
    let index = env(json!("100"));
    let spec = &pod["spec"];
    assert_eq!(spec["initContainers"][0]["env"], json!([index]));
    assert_eq!(spec["containers"][0]["env"], json!([index, other]));
    assert_eq!(spec["containers"][1]["env"], json!([other, index]));

    let mut plain = super::story::story(1, template);
    plain.settle();
    let pod = &last_created(&plain).pod.parse();
    assert_eq!(pod["metadata"]["annotations"], json!({"season": "8"}));
    assert!(pod["spec"]["initContainers"][0].get("env").is_none());
}

#[test]
fn when_no_index_is_left_no_pod_is_created() {
    let mut story = indexed(3, 102, json!({}));
    assert_eq!(indexes(&story), "100 101");
    let (reason, message) = story.condition("FailedScale").expect("a condition");
    assert_eq!(reason, "PodIndexExhausted");
    assert!(message.contains("from 100 to 101"), "{message}");
    set_range(&mut story, 100, 103);
    story.settle();
    assert_eq!(indexes(&story), "100 101 102");
    assert_eq!(story.condition("FailedScale"), None);
}

#[test]
fn with_an_invalid_range_no_pod_is_created_or_recreated_and_everything_else_continues() {
    let rolling = json!({"updateStrategy": {"maxUnavailable": 2}});
    let mut story = indexed(3, 110, rolling);
    story.annotate(INDEX_RANGE, "100-110");
    story.settle();
    assert_eq!(reason(&story, "FailedScale").as_deref(), Some("PodIndexInvalid"));
    assert_eq!(reason(&story, "Ready").as_deref(), Some("PodIndexInvalid"));
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v1 v1");
    assert_eq!(reason(&story, "FailedUpdate").as_deref(), Some("PodIndexInvalid"));
    let name = story.names()[0].clone();
    story.user(json!({"scaleStrategy": {"podsToDelete": [name]}}));
    story.settle();
    assert_eq!(story.pods().len(), 3);
    story.user(json!({"replicas": 2})).settle();
    assert_eq!(story.images(), "v1 v1", "a scale-in continues");
    story.user(json!({"replicas": 4})).settle();
    assert_eq!(story.images(), "v1 v1");
    set_range(&mut story, 100, 110);
    story.settle();
    assert_eq!(story.images(), "v2 v2 v2 v2");
    assert_eq!(story.condition("FailedScale"), None);

    let in_place = json!({"updateStrategy": {"type": "InplaceUpdate"}});
    let mut story = indexed(2, 110, in_place);
    story.annotate(INDEX_RANGE, "{}");
    story.image("v2").settle();
    assert_eq!(story.images(), "v2 v2", "nothing is recreated");
}

#[test]
fn no_new_pod_gets_the_index_of_an_orphan() {
    let mut story = indexed(2, 110, json!({}));
    for name in story.names() {
        story.edit_pod(&name, |pod| pod.controller = None);
    }
    story.user(json!({"replicas": 3})).reconcile();
    let mut distinct: Vec<u32> = story.pods().iter().filter_map(|pod| pod.index).collect();
    assert_eq!(distinct.len(), 3, "{}", indexes(&story));
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 3, "{}", indexes(&story));
}

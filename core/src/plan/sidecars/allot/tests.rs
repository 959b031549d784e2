//! Which pods get tokens, as a table: a set, its pods, and what is written.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::api::SidecarSet;

/// A set with this update strategy, and with one container that has this image.
fn set(image: &str, strategy: Value) -> Sidecars {
    let set = json!({
        "metadata": {"name": "log"},
        "spec": {
            "selector": {"matchLabels": {"app": "arena"}},
            "containers": [{"name": "log", "image": image}],
            "updateStrategy": strategy,
        },
    });
    let set: SidecarSet = serde_json::from_value(set).expect("a set");
    Sidecars::of(&set).expect("a selector")
}

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().expect("a time")
}

/// Pods `a`, `b`, …, each described by words: `old` or `new`; `changing` (its gate is closed), `updating` (the set's
/// containers are being changed) or `others` (only other containers are); `down` (not ready), `foreign` (of another
/// controller), `canary` (the label), `kubelet` (which would ignore the change), `reshaped` (cannot be changed in
/// place), `refused` (the API server has refused the last write) or `refused-old` (and it is time to try again); and a
/// token: `token`, `token-old` (unused for a minute) or `token-stale` (for an earlier revision).
fn pods(words: &[&str]) -> Vec<MatchedPod> {
    let [before, after] = ["log:1", "log:2"].map(|image| set(image, json!({})));
    let pods = words.iter().zip('a'..).map(|(words, name)| {
        let has = |word: &str| words.split(' ').any(|it| it == word);
        let set = if has("new") { &after } else { &before };
        let token = ["token", "token-old"].iter().any(|it| has(it));
        let token = token.then(|| after.revision.clone());
        let stale = has("token-stale").then(|| "log-0".to_owned());
        let since = if has("token-old") { 60 } else { 1 };
        let mark = SidecarMark {
            revision: set.revision.clone(),
            shape: if has("reshaped") {
                String::new()
            } else {
                set.shape.clone()
            },
            containers: vec!["log".to_owned()],
            token_since: token
                .is_some()
                .then(|| now() - SignedDuration::from_secs(since)),
            token: token.or(stale),
            ..SidecarMark::default()
        };
        let canary = has("canary").then(|| ("canary".to_owned(), "yes".to_owned()));
        MatchedPod {
            namespace: "games".to_owned(),
            name: name.to_string(),
            labels: canary.into_iter().collect(),
            marks: BTreeMap::from([("log".to_owned(), mark)]),
            ready: !has("down"),
            own: !has("foreign"),
            changing: if has("changing") {
                Changing::Begins
            } else if has("updating") {
                Changing::Sidecars
            } else if has("others") {
                Changing::Others
            } else {
                Changing::No
            },
            kubelet_ignores: has("kubelet"),
            refused: refused_until(has("refused"), 100).or(refused_until(has("refused-old"), -1)),
            ..MatchedPod::default()
        }
    });
    pods.collect()
}

fn refused_until(is_refused: bool, seconds: i64) -> Option<RefusedWrite> {
    is_refused.then(|| RefusedWrite {
        message: "denied the request: log:2 is not signed".to_owned(),
        retry_at: now() + SignedDuration::from_secs(seconds),
    })
}

/// The writes as text: `+a` gives pod a its token, `-a` withdraws it, `!a` updates it.
fn written(allotment: &Allotment) -> String {
    let mut writes: Vec<String> = allotment
        .writes
        .iter()
        .map(|write| {
            let sign = match (&write.to.token, write.updates) {
                (_, true) => '!',
                (Some(_), false) => '+',
                (None, false) => '-',
            };
            format!("{sign}{}", write.pod.name)
        })
        .collect();
    writes.sort();
    writes.join(" ")
}

#[test]
fn tokens_are_allotted_within_all_limits() {
    for (strategy, words, expected) in [
        // One at a time, unless the strategy allows more.
        (json!({}), &["old", "old", "old"][..], "+a"),
        (
            json!({"maxUnavailable": 2}),
            &["old", "old", "old"],
            "+a +b",
        ),
        (
            json!({"maxUnavailable": "70%"}),
            &["old", "old", "old"],
            "+a +b",
        ),
        (
            json!({"maxUnavailable": "10%"}),
            &["old", "old", "old"],
            "+a",
        ),
        // A token, an update in progress and a new pod that is not ready each take a slot.
        (json!({}), &["token", "old"], ""),
        (json!({}), &["new changing", "old"], ""),
        (json!({}), &["new down", "old"], ""),
        (json!({}), &["new", "old"], "+b"),
        (json!({}), &["token changing down", "old"], ""),
        (json!({}), &["changing down", "old"], "+a"),
        (json!({}), &["updating down", "old"], "+a"),
        (json!({}), &["others down", "old"], "+a +b"),
        (
            json!({"maxUnavailable": 2}),
            &["token changing down", "updating down", "old"],
            "+b",
        ),
        // So does a token until it is withdrawn, because its workload may have begun to use it.
        (json!({}), &["token-stale", "old"], "-a"),
        (json!({}), &["new token-stale", "old"], "-a"),
        (json!({}), &["token-stale down", "old"], "+b -a"),
        // Pods that are not ready need no slot, and come first.
        (json!({}), &["old", "old down", "old down"], "+a +b +c"),
        (json!({}), &["new down", "old down", "old"], "+b"),
        (json!({}), &["new down", "new down", "old down"], "+c"),
        // The partition keeps pods, and so does a selector.
        (
            json!({"partition": 2, "maxUnavailable": 9}),
            &["old", "old", "old"],
            "+a",
        ),
        (
            json!({"partition": "50%", "maxUnavailable": 9}),
            &["new", "old", "old", "old"],
            "+b",
        ),
        (json!({"partition": 1}), &["new", "new", "old"], ""),
        (json!({"partition": 5}), &["old"], ""),
        (
            json!({"selector": {"matchLabels": {"canary": "yes"}}}),
            &["old", "old canary"],
            "+b",
        ),
        // The user changes the strategy or the set meanwhile.
        (
            json!({"paused": true}),
            &["token", "old", "token changing"],
            "-a -c",
        ),
        (json!({"type": "NotUpdate"}), &["token", "old"], "-a"),
        (json!({"partition": 2}), &["token", "old"], "-a"),
        (json!({"partition": 2}), &["token changing", "old"], ""),
        (json!({"maxUnavailable": 1}), &["token", "token"], "-b"),
        (json!({}), &["new token-stale"], "-a"),
        (
            json!({"maxUnavailable": 2}),
            &["token-stale", "old"],
            "+b -a",
        ),
        (
            json!({"selector": {"matchLabels": {"canary": "yes"}}}),
            &["token", "old"],
            "-a",
        ),
        // What a running pod, or its kubelet, cannot change.
        (
            json!({"maxUnavailable": 3}),
            &["old reshaped", "old kubelet", "token kubelet"],
            "-c",
        ),
        // An unused token is passed on, but only if another pod waits.
        (json!({}), &["token-old", "old"], "-a"),
        (json!({}), &["token-old changing", "old"], ""),
        (json!({}), &["token-old", "new"], ""),
        (
            json!({"maxUnavailable": 2}),
            &["token-old", "token-old", "old"],
            "-a",
        ),
        // Pods of other controllers are updated without a token.
        (json!({}), &["old foreign", "old"], "!a"),
        (json!({}), &["new foreign changing", "old foreign"], ""),
        (json!({}), &["new foreign updating", "old foreign"], ""),
        (json!({}), &["old foreign updating", "old foreign"], "!a"),
        // A pod whose write was refused takes no slot for some time, and then it comes last.
        (json!({}), &["old refused", "old"], "+b"),
        (json!({}), &["old foreign refused", "old foreign"], "!b"),
        (
            json!({}),
            &["old foreign down refused-old", "old foreign"],
            "!a !b",
        ),
        (json!({}), &["old foreign refused-old", "old foreign"], "!b"),
        (json!({}), &["old foreign refused-old", "new foreign"], "!a"),
        (json!({}), &["token-stale refused", "old"], ""),
    ] {
        let pods = pods(words);
        let set = set("log:2", strategy.clone());
        let allotment = allot(&set, &pods, now());
        assert_eq!(written(&allotment), expected, "{strategy} {words:?}");
    }
}

#[test]
fn the_pod_that_gave_its_token_back_is_the_last_one_to_get_another() {
    let set = set("log:2", json!({}));
    let mut pods = pods(&["old", "old"]);
    let mark = pods[0].marks.get_mut("log").expect("a mark");
    mark.token_since = Some(now());
    assert_eq!(written(&allot(&set, &pods, now())), "+b");
}

#[test]
fn a_set_that_was_created_again_updates_the_pods_of_the_previous_one_of_the_same_shape() {
    let again = json!({
        "metadata": {"name": "log", "uid": "another"},
        "spec": {
            "selector": {"matchLabels": {"app": "arena"}},
            "containers": [{"name": "log", "image": "log:2"}],
        },
    });
    let again: SidecarSet = serde_json::from_value(again).expect("a set");
    // There is no ControllerRevision of what the pods have.
    let set = Sidecars::of(&again).expect("a selector");
    let set = set.with_revisions(&again, &[]);
    let mut pods = pods(&["old", "old reshaped"]);
    for pod in &mut pods {
        let mark = pod.marks.get_mut("log").expect("a mark");
        "log-lost".clone_into(&mut mark.revision);
    }
    let allotment = allot(&set, &pods, now());
    assert_eq!(written(&allotment), "+a");
    assert_eq!(allotment.progress.not_in_place, ["games/b"]);
}

#[test]
fn an_unused_token_is_checked_again_in_time() {
    let set = set("log:2", json!({}));
    let pods = pods(&["token", "old"]);
    let allotment = allot(&set, &pods, now());
    assert_eq!(allotment.wake, Some(now() + SignedDuration::from_secs(29)));
}

#[test]
fn the_progress_names_what_holds_the_update_back() {
    let progress = |strategy: Value, words: &[&str]| {
        let pods = pods(words);
        allot(&set("log:2", strategy), &pods, now()).progress
    };
    let counts = progress(json!({"partition": 1}), &["new", "old", "old"]);
    assert_eq!((counts.matched, counts.updated, counts.wanted), (3, 1, 1));
    let held_back = progress(json!({}), &["old reshaped", "old kubelet", "token-old"]);
    assert_eq!(held_back.not_in_place, ["games/a"]);
    assert_eq!(held_back.ignored, ["games/b"]);
    assert_eq!(held_back.waiting, ["games/c"]);
}

#[test]
fn refused_pods_are_named_until_they_are_updated_and_tried_again_in_time() {
    let set = set("log:2", json!({}));
    let pods = pods(&["old foreign refused", "old foreign refused-old"]);
    let allotment = allot(&set, &pods, now());
    assert_eq!(allotment.wake, Some(now() + SignedDuration::from_secs(100)));
    let progress = allotment.progress;
    let message = "denied the request: log:2 is not signed";
    let named = ["a", "b"].map(|pod| format!("games/{pod}: {message}"));
    assert_eq!((progress.refused, progress.wanted), (named.to_vec(), 0));
}

#[test]
fn a_pod_is_looked_at_again_in_time() {
    let mut pods = pods(&["new foreign updating"]);
    let at = now() + SignedDuration::from_secs(10);
    pods[0].look_again = Some(at);
    assert_eq!(allot(&set("log:2", json!({})), &pods, now()).wake, Some(at));
}

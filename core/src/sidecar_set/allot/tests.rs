//! Which pods get tokens, as a table: a set, its pods, and what is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::api::{SidecarSet, UpdateStrategyType};
use crate::sidecar_set::{Held, HeldBy, TokenHook};

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
/// controller), `canary` (the label), `kubelet` (its kubelet would ignore the change), `hot-patched`, `reshaped` (cannot be changed in
/// place), `deselected`, `write-refused` (the API server has refused the last write) or
/// `write-refused-old` (and it is time to try again); a token: `token`, `token-old` (unused for a minute) or
/// `token-stale` (for an earlier revision); the hook of a token: `running`, `refused`, `passed` (just now) or
/// `passed-long-ago`; and why its workload updates no sidecars: `paused`, `on-delete` or `canary-step`.
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
            shape: if has("reshaped") { String::new() } else { set.shape.clone() },
            containers: vec!["log".to_owned()],
            token_since: token.is_some().then(|| now() - SignedDuration::from_secs(since)),
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
            hot_patched: has("hot-patched"),
            refused: refused_until(has("write-refused"), 100)
                .or(refused_until(has("write-refused-old"), -1)),
            deselected: has("deselected"),
            held: held(words).map(Arc::new),
            hook: hook(words),
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

fn hook(words: &str) -> TokenHook {
    let hook = words.split(' ').find_map(|word| match word {
        "running" => Some(TokenHook::Running),
        "refused" => Some(TokenHook::Refused),
        "passed" => Some(TokenHook::Passed(now() - SignedDuration::from_secs(1))),
        "passed-long-ago" => Some(TokenHook::Passed(now() - SignedDuration::from_secs(45))),
        _ => None,
    });
    hook.unwrap_or_default()
}

fn held(words: &str) -> Option<Held> {
    let by = words.split(' ').find_map(|word| match word {
        "paused" => Some(HeldBy::Pause),
        "on-delete" => Some(HeldBy::Type(UpdateStrategyType::OnDelete)),
        "canary-step" => Some(HeldBy::Step),
        _ => None,
    });
    let workload = "GameDeployment games/arena".to_owned();
    by.map(|by| Held { workload, by })
}

/// The writes as text: `+a` gives pod `a` a token, `-a` withdraws its token, and `!a` updates the pod.
fn writes_as_text(allotment: &Allotment) -> String {
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
    let mut wrong = Vec::new();
    for (strategy, words, expected) in [
        // One at a time, unless the strategy allows more.
        (json!({}), &["old", "old", "old"][..], "+a"),
        (json!({"maxUnavailable": 2}), &["old", "old", "old"], "+a +b"),
        (json!({"maxUnavailable": "70%"}), &["old", "old", "old"], "+a +b"),
        (json!({"maxUnavailable": "10%"}), &["old", "old", "old"], "+a"),
        // A token, an update in progress and a new pod that is not ready each take a slot.
        (json!({}), &["token", "old"], ""),
        (json!({}), &["new changing", "old"], ""),
        (json!({}), &["new down", "old"], ""),
        (json!({}), &["new", "old"], "+b"),
        (json!({}), &["token changing down", "old"], ""),
        (json!({}), &["changing down", "old"], "+a"),
        (json!({}), &["updating down", "old"], "+a"),
        (json!({}), &["others down", "old"], "+a +b"),
        (json!({"maxUnavailable": 2}), &["token changing down", "updating down", "old"], "+b"),
        // A stale token also takes a slot until it is withdrawn, because the pod's workload may have begun to use it.
        (json!({}), &["token-stale", "old"], "-a"),
        (json!({}), &["new token-stale", "old"], "-a"),
        (json!({}), &["token-stale down", "old"], "+b -a"),
        // Pods that are not ready need no slot, and come first.
        (json!({}), &["old", "old down", "old down"], "+a +b +c"),
        (json!({}), &["new down", "old down", "old"], "+b"),
        (json!({}), &["new down", "new down", "old down"], "+c"),
        // The partition keeps pods at the old revision, and so does a selector.
        (json!({"partition": 2, "maxUnavailable": 9}), &["old", "old", "old"], "+a"),
        (json!({"partition": "50%", "maxUnavailable": 9}), &["new", "old", "old", "old"], "+b"),
        (json!({"partition": 1}), &["new", "new", "old"], ""),
        (json!({"partition": 5}), &["old"], ""),
        (json!({"selector": {"matchLabels": {"canary": "yes"}}}), &["old", "old canary"], "+b"),
        // Meanwhile, the user changes the strategy or the set.
        (json!({"paused": true}), &["token", "old", "token changing"], "-a -c"),
        (json!({"type": "NotUpdate"}), &["token", "old"], "-a"),
        (json!({"partition": 2}), &["token", "old"], "-a"),
        (json!({"partition": 2}), &["token changing", "old"], ""),
        (json!({"maxUnavailable": 1}), &["token", "token"], "-b"),
        (json!({}), &["new token-stale"], "-a"),
        (json!({"maxUnavailable": 2}), &["token-stale", "old"], "+b -a"),
        (json!({"selector": {"matchLabels": {"canary": "yes"}}}), &["token", "old"], "-a"),
        // No token for a pod that cannot be changed while it runs, or whose kubelet would ignore the change.
        (json!({"maxUnavailable": 3}), &["old reshaped", "old kubelet", "token kubelet"], "-c"),
        // An unused token is passed on, but only if another pod waits.
        (json!({}), &["token-old", "old"], "-a"),
        (json!({}), &["token-old changing", "old"], ""),
        (json!({}), &["token-old", "new"], ""),
        (json!({"maxUnavailable": 2}), &["token-old", "token-old", "old"], "-a"),
        // A pod whose hook runs keeps its token; one whose hook refused passes it on.
        (json!({}), &["token-old running", "old"], ""),
        (json!({}), &["token-old refused", "old"], "-a"),
        (json!({}), &["token refused", "old"], ""),
        // After the hook's success, the pod's workload has some time to begin.
        (json!({}), &["token-old passed", "old"], ""),
        (json!({}), &["token-old passed-long-ago", "old"], "-a"),
        // Pods whose workload updates no sidecars get no token, and lose an unused one.
        (json!({}), &["old paused", "old"], "+b"),
        (json!({}), &["old on-delete", "old on-delete"], ""),
        (json!({}), &["token-old paused", "old paused"], "-a"),
        (json!({}), &["token paused", "old"], "-a"),
        (json!({}), &["token changing paused", "old"], "-a"),
        (json!({}), &["updating down paused", "old"], ""),
        // At a canary step, pods that are not ready may need a fix; an update of the game is not extended to sidecars.
        (json!({}), &["old canary-step", "old down canary-step"], "+b"),
        (json!({}), &["token canary-step"], "-a"),
        (json!({}), &["token changing down canary-step"], ""),
        (json!({}), &["changing down canary-step"], ""),
        (json!({}), &["others down canary-step"], ""),
        (json!({}), &["updating down canary-step"], "+a"),
        // A pod that the set no longer selects keeps no token, and does not count.
        (json!({}), &["token deselected", "old"], "+b -a"),
        (json!({}), &["new token-stale deselected", "old"], "+b -a"),
        (json!({"paused": true}), &["token deselected"], "-a"),
        // Pods of other controllers are updated without a token.
        (json!({}), &["old foreign", "old"], "!a"),
        (json!({}), &["new foreign changing", "old foreign"], ""),
        (json!({}), &["new foreign updating", "old foreign"], ""),
        (json!({}), &["old foreign updating", "old foreign"], "!a"),
        // A pod whose write was refused takes no slot for some time, then comes last.
        (json!({}), &["old write-refused", "old"], "+b"),
        (json!({}), &["old foreign write-refused", "old foreign"], "!b"),
        (json!({}), &["old foreign down write-refused-old", "old foreign"], "!a !b"),
        (json!({}), &["old foreign write-refused-old", "old foreign"], "!b"),
        (json!({}), &["old foreign write-refused-old", "new foreign"], "!a"),
        (json!({}), &["token-stale write-refused", "old"], ""),
        // The token may have been stored even though its write was refused, so the pod counts for the partition.
        (json!({"partition": 1, "maxUnavailable": 2}), &["token write-refused", "old"], ""),
        // A pod that no workload controls anymore does not use its token.
        (json!({}), &["token foreign"], "-a"),
    ] {
        let pods = pods(words);
        let set = set("log:2", strategy.clone());
        let found = writes_as_text(&allot(&set, &pods, now()));
        if found != expected {
            wrong.push(format!("{strategy} {words:?}: {found:?} instead of {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_pod_whose_token_was_withdrawn_is_the_last_to_get_a_new_one() {
    let set = set("log:2", json!({}));
    let mut pods = pods(&["old", "old"]);
    let mark = pods[0].marks.get_mut("log").expect("a mark");
    mark.token_since = Some(now());
    assert_eq!(writes_as_text(&allot(&set, &pods, now())), "+b");
}

#[test]
fn a_recreated_set_updates_pods_of_its_predecessor_if_they_have_the_same_shape() {
    let recreated = json!({
        "metadata": {"name": "log", "uid": "another"},
        "spec": {
            "selector": {"matchLabels": {"app": "arena"}},
            "containers": [{"name": "log", "image": "log:2"}],
        },
    });
    let recreated: SidecarSet = serde_json::from_value(recreated).expect("a set");
    // No ControllerRevision describes what the pods have.
    let set = Sidecars::of(&recreated).expect("a selector");
    let set = set.with_revisions(&recreated, &[]);
    let mut pods = pods(&["old", "old reshaped"]);
    for pod in &mut pods {
        let mark = pod.marks.get_mut("log").expect("a mark");
        "log-lost".clone_into(&mut mark.revision);
    }
    let allotment = allot(&set, &pods, now());
    assert_eq!(writes_as_text(&allotment), "+a");
    assert_eq!(allotment.progress.not_in_place, ["games/b"]);
}

#[test]
fn an_unused_token_is_checked_again_once_it_is_late() {
    let set = set("log:2", json!({}));
    let pods = pods(&["token", "old"]);
    let allotment = allot(&set, &pods, now());
    assert_eq!(allotment.wake, Some(now() + SignedDuration::from_secs(29)));
}

#[test]
fn a_running_hook_is_waited_for_and_its_pod_is_reported_once_the_token_is_late() {
    let set = set("log:2", json!({}));
    let wake_and_waiting = |words: &[&str]| {
        let pods = pods(words);
        let allotment = allot(&set, &pods, now());
        (allotment.wake, allotment.progress.waiting)
    };
    let late = now() + SignedDuration::from_secs(29);
    assert_eq!(wake_and_waiting(&["token running", "old"]), (Some(late), vec![]));
    let waiting = vec!["games/a".to_owned()];
    assert_eq!(wake_and_waiting(&["token-old running", "old"]), (None, waiting.clone()));
    assert_eq!(wake_and_waiting(&["token-old passed", "old"]), (Some(late), waiting));
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
    let hot_patched = progress(json!({}), &["old hot-patched"]);
    assert_eq!((hot_patched.hot_patched, hot_patched.wanted), (vec!["games/a".to_owned()], 0));
    assert_eq!(held_back.waiting, ["games/c"]);
    let by_workloads = progress(json!({}), &["new", "old paused", "old paused"]);
    let held = BTreeSet::from(["GameDeployment games/arena is paused".to_owned()]);
    assert_eq!((by_workloads.wanted, by_workloads.held), (0, held));
    // Pods whose tokens are for an earlier revision get new ones, unless their writes are refused.
    let words = ["token-stale", "token-stale", "token-stale write-refused"];
    assert_eq!(progress(json!({"maxUnavailable": 3}), &words).wanted, 2);
    let paused = progress(json!({}), &["token-stale paused"]);
    assert_eq!((paused.wanted, paused.held.len()), (0, 1));
    // Pods that the set itself holds back do not wait for a workload.
    for strategy in [json!({"partition": 3}), json!({"paused": true})] {
        let by_set = progress(strategy, &["new", "old paused", "old paused"]);
        assert_eq!(by_set.held, BTreeSet::new());
    }
}

#[test]
fn refused_pods_are_tried_again_and_are_named_until_they_are_updated() {
    let set = set("log:2", json!({}));
    let pods = pods(&["old foreign write-refused", "old foreign write-refused-old"]);
    let allotment = allot(&set, &pods, now());
    assert_eq!(allotment.wake, Some(now() + SignedDuration::from_secs(100)));
    let progress = allotment.progress;
    let message = "denied the request: log:2 is not signed";
    let named = ["a", "b"].map(|pod| format!("games/{pod}: {message}"));
    assert_eq!((progress.refused, progress.wanted), (named.to_vec(), 0));
}

#[test]
fn the_plan_wakes_when_a_pod_must_be_looked_at_again() {
    let mut pods = pods(&["new foreign updating"]);
    let at = now() + SignedDuration::from_secs(10);
    pods[0].look_again = Some(at);
    assert_eq!(allot(&set("log:2", json!({})), &pods, now()).wake, Some(at));
}

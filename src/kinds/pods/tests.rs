//! The cached forms of pods, and the pods of a workload.

use serde_json::{Value, json};

use super::*;
use crate::kinds::test_feed;
use gamekeeper_core::api::names;
use gamekeeper_core::sidecar_set::Sidecars;

fn pod(name: &str, labels: Value, owner: Option<(&str, &str)>) -> Value {
    let owners = owner.map(|(api_version, kind)| {
        json!([{
            "apiVersion": api_version, "kind": kind, "name": "a", "uid": "owner-uid",
            "controller": true,
        }])
    });
    json!({
        "metadata": {
            "namespace": "games", "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": "7", "labels": labels, "ownerReferences": owners,
        },
        "spec": {"containers": [{"name": "game", "image": "game:v1"}], "nodeName": "n"},
        "status": {"phase": "Running"},
    })
}

fn read(pod: &Value) -> Option<CachedPod> {
    test_feed::pod(None, Origin::Watch, pod, &mut Interner::default())
}

fn own_pod(name: &str) -> Value {
    let owner = ("tkex.tencent.com/v1alpha1", "GameStatefulSet");
    pod(name, json!({"app": "game"}), Some(owner))
}

#[test]
fn a_pod_of_another_controller_is_not_parsed() {
    let mut foreign = pod("web-1", json!({}), Some(("apps/v1", "ReplicaSet")));
    foreign["spec"]["containers"] = json!("unreadable");
    assert!(read(&foreign).is_none());
}

#[test]
fn a_pod_that_would_take_too_much_memory_is_not_parsed() {
    let mut large = own_pod("game-0");
    let read = |pod: &Value| {
        let (text, identity) = (pod.to_string(), Identity::default());
        let object = Object::Item(&text);
        CachedPod::read(None, Origin::Watch, &identity, object, false, &mut Interner::default())
    };
    let maps = |count: usize| json!({"a": vec![json!({"": 0}); count]});
    large["spec"]["unknown"] = maps(40_000);
    assert!(read(&large).is_ok());
    large["spec"]["unknown"] = maps(50_000);
    let why = read(&large).expect_err("too much memory").to_string();
    assert!(why.contains("more than 32 MiB"), "{why}");
}

#[test]
fn a_pod_of_a_workload_is_kept_in_its_slim_form() {
    let pod = read(&own_pod("game-0")).unwrap();
    let pod = pod.own().unwrap();
    assert_eq!(pod.controller.as_deref(), Some("owner-uid"));
    assert_eq!(pod.node.as_deref(), Some("n"));
}

#[test]
fn a_workload_sees_its_pods_and_the_orphans_that_it_selects() {
    let mut store = Store::default();
    for pod in [
        own_pod("game-0"),
        pod("game-1", json!({"app": "game", "tier": "a=b"}), None),
        pod("game-2", json!({"app": "game", "tier": "a=b"}), None),
        pod("other-1", json!({"app": "other"}), None),
        pod("bare", Value::Null, None),
    ] {
        store.put(read(&pod).unwrap());
    }
    let selected =
        |labels: &BTreeMap<String, String>| labels.get("app").map(String::as_str) == Some("game");
    let pods = store.of_workload("games", "owner-uid", selected);
    let names: Vec<_> = pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["game-0", "game-1", "game-2"]);
    assert_eq!(pods[1].labels["tier"], "a=b");
    let none = store.of_workload("games", "another-uid", |_| false);
    assert!(none.is_empty());
}

#[test]
fn the_fields_that_decide_the_adoption_of_an_orphan_are_kept() {
    let labels = json!({"app": "game", names::REVISION_LABEL: "game-1"});
    let mut orphan = pod("game-1", labels, None);
    let mut store = Store::default();
    let mut show = |pod: &Value| {
        store.put(read(pod).unwrap());
        let pods = store.of_workload("games", "u", |_| true);
        Pod::clone(&pods[0])
    };
    let running = show(&orphan);
    assert_eq!((running.name.as_str(), running.uid.as_str()), ("game-1", "uid-game-1"));
    assert_eq!((running.revision().as_str(), running.resource_version), ("game-1", 7));
    assert_eq!(running.controller, None);
    assert!(!running.ended() && !running.terminating);
    orphan["status"]["phase"] = json!("Failed");
    assert!(show(&orphan).ended());
    orphan["metadata"]["annotations"] = json!({names::INDEX_ID: "7", "other": "x"});
    assert_eq!((running.index, show(&orphan).index), (None, Some(7)));
    orphan["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(show(&orphan).terminating);
}

#[test]
fn two_states_of_an_orphan_are_alike_unless_fields_that_decide_its_adoption_differ() {
    let first = pod("game-1", json!({"app": "game"}), None);
    let is_like_first = |change: fn(&mut Value)| {
        let mut other = first.clone();
        change(&mut other);
        let [one, other] = [&first, &other].map(|pod| read(pod).unwrap());
        one.orphan().unwrap().is_like(other.orphan().unwrap())
    };
    assert!(is_like_first(|pod| pod["metadata"]["resourceVersion"] = json!("8")));
    assert!(is_like_first(|pod| pod["status"]["podIP"] = json!("10.0.0.1")));
    assert!(!is_like_first(|pod| pod["status"]["phase"] = json!("Failed")));
    assert!(!is_like_first(|pod| pod["metadata"]["uid"] = json!("another")));
    assert!(!is_like_first(|pod| pod["metadata"]["labels"]["a"] = json!("b")));
    assert!(!is_like_first(|pod| pod["metadata"]["annotations"] = json!({names::INDEX_ID: "1"})));
    assert!(!is_like_first(
        |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")
    ));
}

#[test]
fn a_pod_that_a_set_no_longer_selects_counts_only_while_it_has_a_token() {
    let set = json!({
        "metadata": {"name": "log"},
        "spec": {"selector": {"matchLabels": {"app": "game"}}, "containers": [{"name": "log"}]},
    });
    let set = Sidecars::of(&serde_json::from_value(set).unwrap()).unwrap();
    for (app, mark, deselected) in [
        ("game", json!({"at": "log-1", "in": ["log"]}), Some(false)),
        ("other", json!({"at": "log-1", "in": ["log"]}), None),
        ("other", json!({"at": "log-1", "in": ["log"], "to": "log-2"}), Some(true)),
    ] {
        let mut pod = own_pod("game-0");
        pod["metadata"]["labels"]["app"] = json!(app);
        pod["metadata"]["annotations"][gamekeeper_core::observed::mark_key("log")] =
            json!(mark.to_string());
        let matched = read(&pod).unwrap().matched(&set, false, Timestamp::UNIX_EPOCH);
        assert_eq!(matched.map(|it| it.deselected), deselected, "{app} {mark}");
    }
}

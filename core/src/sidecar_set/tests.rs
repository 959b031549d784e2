//! Tests of injection: which pods get which containers, and what happens if a set and a pod conflict.

mod annotations;
mod hostile;
mod properties;
mod refused;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::api::{PodInjectPolicy, SidecarSet, SidecarSetStatus};
use crate::observed::{SidecarMark, SidecarMarks, sidecar_marks};
use crate::sidecar_set::status::new_problem;

fn set(name: &str, spec: Value) -> Arc<Sidecars> {
    let mut full = json!({"selector": {"matchLabels": {"app": "arena"}}});
    for (field, value) in spec.as_object().expect("a spec") {
        full[field] = value.clone();
    }
    let set = json!({"metadata": {"name": name}, "spec": full});
    let set: SidecarSet = serde_json::from_value(set).expect("a set");
    Arc::new(Sidecars::of(&set).expect("a selector"))
}

/// A set with one container of this name.
fn set_with_container(name: &str, container: &str) -> Arc<Sidecars> {
    set(name, json!({"containers": [{"name": container, "image": "sidecar:1"}]}))
}

fn pod() -> Value {
    json!({
        "metadata": {"name": "a", "labels": {"app": "arena"}},
        "spec": {
            "containers": [{
                "name": "game", "image": "game:1",
                "env": [{"name": "ROOM", "value": "7"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    })
}

fn injected(mut pod: Value, sets: &[Arc<Sidecars>]) -> Value {
    inject(&mut pod, sets);
    pod
}

fn names<'p>(pod: &'p Value, field: &str) -> Vec<&'p str> {
    let items = pod["spec"][field].as_array().into_iter().flatten();
    items.map(|it| it["name"].as_str().expect("a name")).collect()
}

fn marks(pod: &Value) -> SidecarMarks {
    let annotations = pod["metadata"]["annotations"].clone();
    let annotations: Option<BTreeMap<String, String>> =
        serde_json::from_value(annotations).expect("annotations");
    sidecar_marks(&annotations.unwrap_or_default())
}

#[test]
fn containers_are_placed_before_or_after_the_game_in_the_order_of_their_sets() {
    let a = json!({
        "containers": [
            {"name": "a-first", "image": "i"},
            {"name": "a-last", "image": "i", "podInjectPolicy": "AfterAppContainer"},
            {"name": "a-second", "image": "i"},
        ],
        "initContainers": [
            {"name": "mesh", "image": "i", "restartPolicy": "Always"},
            {"name": "early", "image": "i", "podInjectPolicy": "BeforeAppContainer"},
        ],
        "imagePullSecrets": [{"name": "registry"}],
    });
    let mut original = pod();
    original["spec"]["initContainers"] = json!([{"name": "setup", "image": "i"}]);
    let pod = injected(original, &[set("a", a), set_with_container("b", "b-first")]);
    let expected = ["a-first", "a-second", "b-first", "game", "a-last"];
    assert_eq!(names(&pod, "containers"), expected);
    assert_eq!(names(&pod, "initContainers"), ["early", "setup", "mesh"]);
    assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "registry"}]));
    let default = &pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"];
    assert_eq!(default, "game");
    assert_eq!(marks(&pod)["a"].containers, ["mesh", "early", "a-first", "a-last", "a-second"]);
    let first = &pod["spec"]["containers"][0];
    assert_eq!(first["env"], json!([{"name": "IS_INJECTED", "value": "true"}]));
    assert!(pod["spec"]["containers"][4].get("podInjectPolicy").is_none());
}

#[test]
fn a_pod_keeps_its_own_default_container() {
    let mut original = pod();
    original["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/default-container": "log"});
    let pod = injected(original, &[set_with_container("log", "log")]);
    let default = &pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"];
    assert_eq!(default, "log");
    // The annotation is set only if a sidecar is placed before the game.
    let after = json!({"name": "log", "image": "i", "podInjectPolicy": "AfterAppContainer"});
    let pod = injected(self::pod(), &[set("log", json!({"containers": [after]}))]);
    let annotations = pod["metadata"]["annotations"].as_object();
    let annotations = annotations.expect("annotations");
    assert!(!annotations.contains_key("kubectl.kubernetes.io/default-container"));
}

#[test]
fn a_problem_with_injection_is_reported_once_per_reason() {
    let status = |reason: &str, message: &str| {
        let condition = json!({
            "type": "Injecting", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({"conditions": [condition]});
        serde_json::from_value::<SidecarSetStatus>(status).expect("a status")
    };
    let [fine, clash] = [status("Injecting", ""), status("Clash", "a")];
    for (old, new, reported) in [
        (None, &fine, None),
        (None, &clash, Some("a")),
        (Some(&fine), &clash, Some("a")),
        (Some(&clash), &status("Clash", "a, b"), None),
        (Some(&clash), &status("Paused", "c"), Some("c")),
        (Some(&clash), &fine, None),
    ] {
        let found = new_problem(old, new).map(|it| it.message.as_str());
        assert_eq!(found, reported, "{old:?} {new:?}");
    }
}

#[test]
fn a_set_injects_only_into_pods_that_it_reaches_and_selects() {
    let namespace = |name: &str, labels: Value| Namespace {
        name: name.to_owned(),
        labels: serde_json::from_value(labels).expect("labels"),
    };
    let games = || json!({"team": "games"});
    let container = json!([{"name": "log", "image": "log:1"}]);
    let everywhere = set("log", json!({"containers": container}));
    let by_label = json!({"containers": container, "namespaceSelector": {"matchLabels": games()}});
    let by_label = set("log", by_label);
    let by_name = set("log", json!({"containers": container, "namespace": "arena"}));
    let in_operator_namespace = json!({"containers": container, "namespace": "gamekeeper-system"});
    let in_operator_namespace = set("log", in_operator_namespace);
    let policy = NamespacePolicy { own: Some("gamekeeper-system".to_owned()), all: true };
    let disabled = json!({"team": "games", "gamekeeper.tkex.tencent.com/sidecars": "disabled"});
    for (set, name, labels, reached) in [
        (&everywhere, "arena", json!({}), true),
        (&everywhere, "kube-system", json!({}), false),
        (&everywhere, "arena", disabled.clone(), false),
        (&by_label, "arena", games(), true),
        (&by_label, "arena", json!({}), false),
        (&by_label, "arena", disabled, false),
        (&by_name, "arena", json!({}), true),
        (&by_name, "lobby", json!({}), false),
        (&everywhere, "gamekeeper-system", json!({}), false),
        (&by_label, "gamekeeper-system", games(), false),
        (&in_operator_namespace, "gamekeeper-system", json!({}), true),
    ] {
        assert_eq!(
            set.reach.reaches(&namespace(name, labels.clone()), &policy),
            reached,
            "{name} {labels}"
        );
    }
    let mut other = pod();
    other["metadata"]["labels"] = json!({"app": "lobby"});
    assert_eq!(injected(other.clone(), &[set_with_container("log", "log")]), other);
    let paused =
        set("log", json!({"containers": container, "injectionStrategy": {"paused": true}}));
    assert_eq!(injected(pod(), &[paused]), pod());
    let mut mirror = pod();
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    assert_eq!(injected(mirror.clone(), &[set_with_container("log", "log")]), mirror);
}

#[test]
fn a_conflicting_set_is_left_out_completely_and_the_mark_shows_why() {
    let log = |volumes: Value| {
        set(
            "log",
            json!({
                "containers": [{"name": "log", "image": "i"}, {"name": "ship", "image": "i"}],
                "volumes": volumes,
            }),
        )
    };
    let sharing = set(
        "log",
        json!({"containers": [{
            "name": "log", "image": "i", "shareVolumePolicy": {"type": "enabled"},
            "volumeMounts": [{"name": "logs", "mountPath": "/data"}],
        }]}),
    );
    for (set, why) in [
        (
            set_with_container("log", "game"),
            "the pod has another container \"game\"; rename one of the two",
        ),
        (
            log(json!([{"name": "data", "hostPath": {"path": "/"}}])),
            "the pod has another volume \"data\"; rename one of the two",
        ),
        (sharing, "container \"log\" would mount two volumes at /data"),
    ] {
        let clashing = injected(pod(), &[set, set_with_container("other", "other")]);
        assert_eq!(names(&clashing, "containers"), ["other", "game"], "{why}");
        assert_eq!(names(&clashing, "volumes"), ["data"]);
        let mark = &marks(&clashing)["log"];
        assert_eq!((mark.is_injected(), mark.left_out.as_deref()), (false, Some(why)));
        assert!(marks(&clashing)["other"].is_injected());
    }
    // A volume that equals the pod's own is no conflict.
    let same = log(json!([{"name": "data", "emptyDir": {}}, {"name": "logs", "emptyDir": {}}]));
    let pod = injected(pod(), &[same]);
    assert_eq!(names(&pod, "volumes"), ["data", "logs"]);
    // The API server fills in defaults before it calls the webhook.
    let mut stored = self::pod();
    stored["spec"]["volumes"] =
        json!([{"name": "data", "configMap": {"name": "rooms", "defaultMode": 420}}]);
    let raw = json!({"name": "data", "configMap": {"name": "rooms"}});
    let pod = injected(stored.clone(), &[log(json!([raw]))]);
    assert!(marks(&pod)["log"].is_injected());
    assert_eq!(pod["spec"]["volumes"], stored["spec"]["volumes"]);
}

#[test]
fn a_container_gets_mounts_and_variables_of_the_game() {
    let mut original = pod();
    let token = json!({"name": "t", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
    original["spec"]["containers"][0]["volumeMounts"].as_array_mut().expect("mounts").push(token);
    let transfer =
        |source: &str, name: &str| json!({"sourceContainerName": source, "envName": name});
    let log = set(
        "log",
        json!({"containers": [{
            "name": "log", "image": "i",
            "env": [{"name": "MODE", "value": "own"}],
            "shareVolumePolicy": {"type": "enabled"},
            "transferEnv": [
                transfer("game", "ROOM"), transfer("game", "MODE"), transfer("game", "NONE"),
                transfer("missing", "ROOM"),
            ],
        }]}),
    );
    let pod = injected(original, &[log]);
    let log = &pod["spec"]["containers"][0];
    assert_eq!(log["volumeMounts"], json!([{"name": "data", "mountPath": "/data"}]));
    let expected = json!([
        {"name": "MODE", "value": "own"},
        {"name": "IS_INJECTED", "value": "true"},
        {"name": "ROOM", "value": "7"},
    ]);
    assert_eq!(log["env"], expected);
}

#[test]
fn marks_set_by_the_author_of_a_pod_are_ignored() {
    let mut original = pod();
    original["metadata"]["annotations"] = json!({
        "team": "games",
        "sidecars.gamekeeper.tkex.tencent.com/log": "{\"at\":\"log-1\",\"in\":[\"log\"]}",
        "sidecars.gamekeeper.tkex.tencent.com/deleted": "{}",
    });
    let log = set_with_container("log", "log");
    let pod = injected(original, &[Arc::clone(&log)]);
    assert_eq!(names(&pod, "containers"), ["log", "game"]);
    assert_eq!(marks(&pod).keys().collect::<Vec<_>>(), ["log"]);
    assert_eq!(marks(&pod)["log"].revision, log.revision);
    assert_eq!(pod["metadata"]["annotations"]["team"], "games");
}

#[test]
fn a_restored_pod_keeps_the_mark_of_the_containers_that_it_has() {
    let log = |image: &str| set("log", json!({"containers": [{"name": "log", "image": image}]}));
    let (old, new) = (log("log:1"), log("log:2"));
    let backup = injected(pod(), &[Arc::clone(&old)]);
    let restored = injected(backup.clone(), &[Arc::clone(&new)]);
    let mark = &marks(&restored)["log"];
    assert_eq!(restored["spec"], backup["spec"]);
    assert!(!new.is_applied_to(mark), "{mark:?}");
    assert_eq!((&mark.revision, &mark.shape), (&old.revision, &new.shape));

    // A mark that names no revision.
    let mut unknown = backup;
    unknown["metadata"]["annotations"]["sidecars.gamekeeper.tkex.tencent.com/log"] =
        json!("{\"in\":[\"log\"],\"to\":\"log-1\"}");
    let mark = &marks(&injected(unknown, &[Arc::clone(&new)]))["log"];
    assert!(!new.is_applied_to(mark), "{mark:?}");
    assert_eq!((&mark.shape, &mark.token), (&new.shape, &None));
}

#[test]
fn revisions_depend_on_what_is_injected_and_not_on_whether_defaults_are_written_out() {
    let revision_of = |container: Value, other_fields: Value| {
        let mut spec = json!({"containers": [container]});
        for (field, value) in other_fields.as_object().expect("fields") {
            spec[field] = value.clone();
        }
        set("log", spec).revision.clone()
    };
    let plain = || json!({"name": "log", "image": "log:1"});
    let base = revision_of(plain(), json!({}));
    let defaults = json!({
        "name": "log", "image": "log:1", "podInjectPolicy": "BeforeAppContainer",
        "shareVolumePolicy": {"type": "disabled"}, "upgradeStrategy": {"upgradeType": "ColdUpgrade"},
    });
    assert_eq!(revision_of(defaults, json!({})), base);
    assert_eq!(revision_of(plain(), json!({"injectionStrategy": {"paused": true}})), base);
    assert_ne!(revision_of(json!({"name": "log", "image": "log:2"}), json!({})), base);
    assert_ne!(revision_of(plain(), json!({"volumes": [{"name": "a", "emptyDir": {}}]})), base);
    let set = json!({"spec": {
        "containers": [plain(), {"name": "b", "podInjectPolicy": "AfterAppContainer"}],
        "initContainers": [plain()],
    }});
    let places = |set: &Value, list: &str| -> Vec<Value> {
        let containers = set["spec"][list].as_array().expect("a list").iter();
        containers.map(|it| it["podInjectPolicy"].clone()).collect()
    };
    let set = with_defaults(&set);
    assert_eq!(places(&set, "containers"), ["BeforeAppContainer", "AfterAppContainer"]);
    assert_eq!(places(&set, "initContainers"), ["AfterAppContainer"]);
    assert_eq!(set["spec"]["containers"][0]["shareVolumePolicy"]["type"], "disabled");
    assert_eq!(with_defaults(&set), set);
}

//! Annotations of new pods: which value a pod gets, and what a changed annotation means for running pods.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::sample::select;

use super::*;
use crate::sidecar_set::status::sidecar_set_status;

/// A set with its own container and these annotations.
fn annotating(name: &str, patches: Value) -> Arc<Sidecars> {
    let container = json!([{"name": name, "image": "sidecar:1"}]);
    set(name, json!({"containers": container, "patchPodMetadata": patches}))
}

fn retain(annotations: Value) -> Value {
    json!([{"annotations": annotations}])
}

fn overwrite(annotations: Value) -> Value {
    json!([{"annotations": annotations, "patchPolicy": "Overwrite"}])
}

fn pod_with_annotations(annotations: &Value) -> Value {
    let mut pod = pod();
    pod["metadata"]["annotations"] = annotations.clone();
    pod
}

/// A pod's annotations, except those about sidecars and those for kubectl.
fn annotations(pod: &Value) -> Value {
    let all = pod["metadata"]["annotations"].as_object();
    let all = all.into_iter().flatten();
    let others = all.filter(|(key, _)| !key.contains("sidecars.") && !key.contains("kubectl."));
    Value::Object(others.map(|(key, it)| (key.clone(), it.clone())).collect())
}

#[test]
fn a_pod_gets_the_annotations_of_its_sets() {
    let port = |port: &str| json!({"port": port});
    for (own, a, b, expected) in [
        (Value::Null, retain(port("1")), json!([]), port("1")),
        (port("0"), retain(port("1")), json!([]), port("0")),
        (port("0"), overwrite(port("1")), json!([]), port("1")),
        (json!({}), retain(port("1")), retain(port("2")), port("1")),
        (json!({}), retain(port("1")), overwrite(port("2")), port("2")),
        (json!({}), overwrite(port("1")), retain(port("2")), port("1")),
        (port("0"), overwrite(port("1")), overwrite(port("2")), port("2")),
        (
            json!({"team": "games"}),
            json!([{"annotations": {"a": "1"}, "patchPolicy": "Retain"}, {"annotations": {"b": "2"}}]),
            retain(json!({"c": "3"})),
            json!({"team": "games", "a": "1", "b": "2", "c": "3"}),
        ),
    ] {
        let sets = [annotating("a", a), annotating("b", b)];
        let once = injected(pod_with_annotations(&own), &sets);
        assert_eq!(annotations(&once), expected, "{own}");
        assert_eq!(injected(once.clone(), &sets), once);
    }
}

#[test]
fn a_set_that_is_left_out_or_does_not_select_the_pod_adds_no_annotation() {
    let clashing = json!({
        "containers": [{"name": "game", "image": "i"}],
        "patchPodMetadata": overwrite(json!({"port": "1"})),
    });
    let other = json!({
        "selector": {"matchLabels": {"app": "lobby"}},
        "containers": [{"name": "log", "image": "i"}],
        "patchPodMetadata": overwrite(json!({"port": "1"})),
    });
    let pod = injected(pod(), &[set("clash", clashing), set("other", other)]);
    assert!(marks(&pod)["clash"].left_out.is_some());
    assert_eq!(annotations(&pod), json!({}));
}

#[test]
fn reserved_annotations_of_a_stored_set_are_ignored() {
    let keys = [
        "sidecars.gamekeeper.tkex.tencent.com/b",
        "kubernetes.io/config.mirror",
        "container.apparmor.security.beta.kubernetes.io/game",
        "inplace-update-state",
        "tkex.bkbcs.tencent.com/gamedeployment-index-id",
        "karpenter.sh/do-not-disrupt",
    ];
    let reserved: BTreeMap<_, _> = keys.into_iter().map(|key| (key, "1")).collect();
    let reserved = annotating("a", overwrite(json!(reserved)));
    let pod = injected(pod(), &[reserved]);
    assert_eq!(annotations(&pod), json!({}));
    assert_eq!(marks(&pod).keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn annotations_change_the_revision_and_leave_running_pods_up_to_date() {
    let none = annotating("a", json!([]));
    let one = annotating("a", retain(json!({"port": "1"})));
    let two = annotating("a", retain(json!({"port": "2"})));
    let overwriting = annotating("a", overwrite(json!({"port": "1"})));
    let explicit_retain = json!([{"annotations": {"port": "1"}, "patchPolicy": "Retain"}]);
    assert_eq!(annotating("a", explicit_retain).revision, one.revision);
    let newer = json!({
        "containers": [{"name": "a", "image": "sidecar:2"}],
        "patchPodMetadata": retain(json!({"port": "1"})),
    });
    let newer = set("a", newer);
    let all = [&none, &one, &two, &overwriting, &newer];
    for (from_index, from) in all.into_iter().enumerate() {
        let pods = [MatchedPod {
            labels: BTreeMap::from([("app".to_owned(), "arena".to_owned())]),
            marks: marks(&injected(pod(), &[Arc::clone(from)])),
            ready: true,
            own: true,
            ..MatchedPod::default()
        }];
        for (to_index, to) in all.into_iter().enumerate() {
            assert_eq!(from.revision == to.revision, from_index == to_index);
            assert_eq!(from.shape, to.shape);
            let has_newest = (from_index == 4) == (to_index == 4);
            let allotted = allot(to, &pods, Timestamp::UNIX_EPOCH);
            assert_eq!(allotted.writes.is_empty(), has_newest);
            let progress = &allotted.progress;
            assert_eq!(progress.updated, usize::from(has_newest));
            let now = Timestamp::UNIX_EPOCH;
            let others = OtherPods { namespaces: &[], all: false, webhook: &WebhookState::InForce };
            let status = sidecar_set_status(Some(to), &pods, progress, &others, 1, None, now).0;
            assert_eq!(status.updated_pods, i32::from(has_newest));
            assert_eq!(status.latest_revision, to.revision);
        }
    }
}

const KEYS: [&str; 3] = ["a", "example.com/b", "c"];

fn any_annotations() -> impl Strategy<Value = BTreeMap<&'static str, String>> {
    btree_map(select(&KEYS[..]), "[0-9]", 0..3)
}

/// The annotations of a set, whether they overwrite, and the name of the set's container.
fn any_patch() -> impl Strategy<Value = (BTreeMap<&'static str, String>, bool, &'static str)> {
    let container = select(&["game", "log", "mesh", "ship"][..]);
    (any_annotations(), any::<bool>(), container)
}

proptest! {
    #[test]
    fn an_annotation_comes_from_the_last_overwriting_set_or_else_from_the_author_or_else_from_the_first_set(
        own in any_annotations(), patches in vec(any_patch(), 0..5),
    ) {
        let sets = patches.iter().enumerate().map(|(index, (annotations, overwrites, container))| {
            let annotations = json!(annotations);
            set(&format!("set-{index}"), json!({
                "containers": [{"name": container, "image": "i"}],
                "patchPodMetadata": if *overwrites { overwrite(annotations) } else { retain(annotations) },
            }))
        });
        let sets: Vec<_> = sets.collect();
        let once = injected(pod_with_annotations(&json!(own)), &sets);
        prop_assert_eq!(&injected(once.clone(), &sets), &once);
        let marks = marks(&once);
        let is_injected = |index: usize| marks[&format!("set-{index}")].is_injected();
        for key in KEYS {
            let values = patches.iter().enumerate().filter(|(index, _)| is_injected(*index));
            let values = values.filter_map(|(_, (all, overwrites, _))| Some((all.get(key)?, *overwrites)));
            let last = values.clone().rfind(|(_, overwrites)| *overwrites);
            let first = values.map(|(value, _)| value).next();
            let expected = last.map(|(value, _)| value).or(own.get(key)).or(first);
            prop_assert_eq!(&annotations(&once)[key], &json!(expected));
        }
    }
}

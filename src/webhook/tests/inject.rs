//! Properties of `/inject`, from the API server's JSON to the response, for any objects and any sets.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::kinds::Reaching;
use crate::webhook::mutate::injected;
use crate::webhook::review::AdmissionReview;
use gamekeeper_core::api::SidecarSet;
use gamekeeper_core::api::names::SIDECARS_PREFIX;
use gamekeeper_core::sidecar_set::{Sidecars, inject};

/// The fields that injection reads, and names that it compares.
const WORDS: [&str; 16] = [
    "kind",
    "metadata",
    "labels",
    "annotations",
    "spec",
    "containers",
    "initContainers",
    "volumes",
    "name",
    "env",
    "value",
    "volumeMounts",
    "mountPath",
    "IS_INJECTED",
    "log",
    "true",
];
/// The names of containers and volumes.
const NAMES: [&str; 4] = ["game", "log", "mesh", "data"];
/// The parts of a pod that injection reads.
const PLACES: [&str; 6] = [
    "/metadata",
    "/metadata/labels",
    "/metadata/annotations",
    "/spec",
    "/spec/containers",
    "/spec/volumes",
];
/// The names of the sets. A pod's author may write annotations that contain them.
const SETS: [&str; 2] = ["a", "b"];

/// Any JSON whose keys and texts are among `WORDS`.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        select(&WORDS[..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(select(&WORDS[..]), inner, 0..5).prop_map(|fields| json!(fields)),
        ]
    })
}

fn any_container() -> impl Strategy<Value = Value> {
    let parts = (select(&NAMES[..]), select(&NAMES[..]), any::<bool>(), any::<bool>());
    parts.prop_map(|(name, volume, injected, after)| {
        let env = json!([{"name": "IS_INJECTED", "value": injected.to_string()}]);
        json!({
            "name": name, "image": "i", "env": if injected { env } else { json!([]) },
            "volumeMounts": [{"name": volume, "mountPath": format!("/{volume}")}],
            "podInjectPolicy": if after { "AfterAppContainer" } else { "BeforeAppContainer" },
            "shareVolumePolicy": {"type": if injected { "enabled" } else { "disabled" }},
        })
    })
}

fn any_volume() -> impl Strategy<Value = Value> {
    let parts = (select(&NAMES[..]), select(&["", "Memory"][..]));
    parts.prop_map(|(name, medium)| json!({"name": name, "emptyDir": {"medium": medium}}))
}

/// Annotations that the author of a pod may write, including marks of sets.
fn any_annotations() -> impl Strategy<Value = Value> {
    let mark = (select(&SETS[..]), vec(select(&NAMES[..]), 0..3));
    let annotations = vec(mark, 0..3).prop_map(|marks| {
        let marks = marks.into_iter().map(|(set, containers)| {
            let mark = json!({"at": "x", "shape": "y", "in": containers}).to_string();
            let key = format!("sidecars.gamekeeper.tkex.tencent.com/{set}");
            (key, Value::from(mark))
        });
        let team = [("team".to_owned(), Value::from("own"))];
        Value::Object(marks.chain(team).collect())
    });
    prop_oneof![Just(Value::Null), annotations]
}

/// Any pod that the sets select.
fn any_pod() -> impl Strategy<Value = Value> {
    let lists = (vec(any_container(), 0..3), vec(any_container(), 0..3), vec(any_volume(), 0..3));
    (any_annotations(), lists).prop_map(|(annotations, (init, containers, volumes))| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "generateName": "a-", "labels": {"app": "arena"}, "annotations": annotations,
            },
            "spec": {"initContainers": init, "containers": containers, "volumes": volumes},
        })
    })
}

/// Any object that is sent as a pod: a pod, a pod with one of its parts replaced by any JSON, or any JSON.
fn any_object() -> impl Strategy<Value = Value> {
    let damaged = (any_pod(), select(&PLACES[..]), any_json());
    let damaged = damaged.prop_map(|(mut pod, place, part)| {
        *pod.pointer_mut(place).expect("each pod has this part") = part;
        pod
    });
    prop_oneof![4 => any_pod(), 2 => damaged, 1 => any_json()]
}

/// Up to two sets that select the pods of [`any_pod`].
fn any_sets() -> impl Strategy<Value = Vec<Arc<Sidecars>>> {
    let parts = (
        vec(any_container(), 0..2),
        vec(any_container(), 1..3),
        vec(any_volume(), 0..3),
        select(&["Retain", "Overwrite"][..]),
    );
    vec(parts, 0..=SETS.len()).prop_map(|sets| {
        let sets = SETS.into_iter().zip(sets);
        let sets = sets.map(|(name, (init, containers, volumes, policy))| {
            let annotations = json!({"team": name, "port": name, name: policy});
            let set = json!({
                "metadata": {"name": name},
                "spec": {
                    "selector": {"matchLabels": {"app": "arena"}},
                    "initContainers": init, "containers": containers, "volumes": volumes,
                    "patchPodMetadata": [{"annotations": annotations, "patchPolicy": policy}],
                },
            });
            let set: SidecarSet = serde_json::from_value(set).expect("a set");
            Arc::new(Sidecars::of(&set).expect("the set selects something"))
        });
        sets.collect()
    })
}

/// The response to a review of an object's creation.
fn answer(object: &Value, sets: &[Arc<Sidecars>]) -> Value {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "7", "namespace": "games", "operation": "CREATE", "object": object},
    });
    let review: AdmissionReview = serde_json::from_str(&review.to_string()).expect("a review");
    let reaching = Reaching { sets: sets.to_vec(), ..Reaching::default() };
    injected(&review.request, &reaching).into_review()
}

/// The object after the API server has applied the patch in a response.
fn changed(object: &Value, answer: &Value) -> Value {
    let mut changed = object.clone();
    if let Some(patch) = answer["response"]["patch"].as_str() {
        let patch = STANDARD.decode(patch).expect("base64");
        let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a JSON patch");
        json_patch::patch(&mut changed, &patch).expect("the patch fits the object");
    }
    changed
}

/// The pod without the reasons why sets were left out.
fn without_reasons(mut pod: Value) -> Value {
    let annotations = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    for (key, mark) in annotations.into_iter().flatten() {
        if !key.starts_with(SIDECARS_PREFIX) {
            continue;
        }
        let text = mark.as_str().expect("a mark is text");
        let mut content: Value = serde_json::from_str(text).expect("JSON");
        if let Some(reason) = content.get_mut("out") {
            *reason = json!(true);
        }
        *mark = json!(content.to_string());
    }
    pod
}

proptest! {
    #[test]
    fn every_object_is_allowed_and_patched_to_what_the_planner_would_create(
        object in any_object(), sets in any_sets(),
    ) {
        let answer = answer(&object, &sets);
        let response = &answer["response"];
        prop_assert_eq!((&response["uid"], &response["allowed"]), (&json!("7"), &json!(true)));
        let has_type = response["patchType"] == "JSONPatch";
        prop_assert_eq!(response["patch"].is_string(), has_type);
        prop_assert_eq!(&response["status"], &Value::Null);
        let mut planned = object.clone();
        if object["kind"] == "Pod" {
            inject(&mut planned, &sets);
        }
        prop_assert_eq!(changed(&object, &answer), planned);
    }

    /// A set that was left out is left out again, perhaps for another reason: the containers of the sets after it are in the
    /// pod by then.
    #[test]
    fn a_second_call_changes_nothing(object in any_object(), sets in any_sets()) {
        let patched = changed(&object, &answer(&object, &sets));
        let second_answer = answer(&patched, &sets);
        prop_assert_eq!(&second_answer["response"]["allowed"], &json!(true));
        let again = changed(&patched, &second_answer);
        prop_assert_eq!(without_reasons(again), without_reasons(patched));
    }
}

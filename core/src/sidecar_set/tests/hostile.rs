//! Properties of injection that hold for any JSON that a client sends as a pod, and for anything stored as a set.

use proptest::collection::{btree_map, vec};
use proptest::sample::select;

use super::properties::{any_pod, any_sets};
use super::*;

/// Words that injection looks for in a pod: the fields that it reads, and names and values in them.
const WORDS: [&str; 16] = [
    "metadata",
    "labels",
    "annotations",
    "spec",
    "containers",
    "initContainers",
    "volumes",
    "imagePullSecrets",
    "name",
    "env",
    "value",
    "volumeMounts",
    "mountPath",
    "IS_INJECTED",
    "log",
    "true",
];

/// Any JSON that consists of these words.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        select(&WORDS[..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(select(&WORDS[..]), inner, 0..5).prop_map(|fields| json!(fields)),
        ]
    })
}

/// Any JSON, or a pod that the sets select, with any JSON as its annotations, its spec or its containers.
fn any_object() -> impl Strategy<Value = Value> {
    let parts = (any_json(), any_json(), vec(any_json(), 0..4));
    let parts = parts.prop_map(|(annotations, spec, containers)| {
        let mut pod = json!({
            "metadata": {"labels": {"app": "arena"}, "annotations": annotations},
            "spec": spec,
        });
        if pod["spec"].is_object() {
            pod["spec"]["containers"] = Value::Array(containers);
        }
        pod
    });
    prop_oneof![any_json(), parts]
}

/// A set with any JSON in place of its containers and volumes.
fn any_stored_set() -> impl Strategy<Value = Arc<Sidecars>> {
    let lists = (vec(any_json(), 0..3), vec(any_json(), 0..3), vec(any_json(), 0..3));
    lists.prop_map(|(init, containers, volumes)| {
        set("any", json!({"initContainers": init, "containers": containers, "volumes": volumes}))
    })
}

proptest! {
    #[test]
    fn injection_accepts_any_object_and_keeps_its_containers(pod in any_object(), stored in any_stored_set()) {
        let sets = [stored, set_with_container("log", "log")];
        let once = injected(pod.clone(), &sets);
        let twice = injected(once.clone(), &sets);
        prop_assert_eq!(&twice["spec"]["containers"], &once["spec"]["containers"]);
        let own = pod["spec"]["containers"].as_array().cloned().unwrap_or_default();
        let mut all = once["spec"]["containers"].as_array().into_iter().flatten();
        prop_assert!(own.iter().all(|it| all.any(|other| other == it)), "{once:#}");
    }

    #[test]
    fn injected_containers_are_in_the_order_of_their_sets(pod in any_pod(), sets in any_sets()) {
        let after = injected(pod, &sets);
        let names = names(&after, "containers");
        let position = |name: &str| names.iter().position(|it| *it == name);
        let marks = marks(&after);
        for is_before in [true, false] {
            let place = match is_before {
                true => PodInjectPolicy::BeforeAppContainer,
                false => PodInjectPolicy::AfterAppContainer,
            };
            let places_of = |set: &Arc<Sidecars>| -> Vec<Option<usize>> {
                let is_injected = marks.get(&set.name).is_some_and(SidecarMark::is_injected);
                let sidecars = set.containers.iter().filter(|it| is_injected && it.place == place);
                sidecars.map(|it| position(&it.name)).collect()
            };
            let places: Vec<_> = sets.iter().flat_map(places_of).collect();
            prop_assert!(places.iter().all(Option::is_some), "{after:#}");
            prop_assert!(places.is_sorted(), "{after:#}");
        }
    }
}

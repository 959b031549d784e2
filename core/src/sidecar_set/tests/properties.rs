//! Properties of injection.

use super::*;

/// A pod with one or two random containers or init containers, some of which look like injected ones.
pub(super) fn any_pod() -> impl Strategy<Value = Value> {
    let names = ["game", "log", "mesh", "other"];
    let container = (0..names.len(), 0..3_usize, any::<bool>());
    let containers = proptest::collection::vec(container, 1..3);
    (containers, any::<bool>()).prop_map(move |(containers, init)| {
        let containers: Vec<Value> = containers
            .into_iter()
            .enumerate()
            .map(|(index, (name, mounts, injected))| {
                let mounts: Vec<Value> = (0..mounts)
                    .map(|it| json!({"name": format!("v{it}"), "mountPath": format!("/{it}")}))
                    .collect();
                let value = if injected { "true" } else { "false" };
                json!({
                    "name": format!("{}{}", names[name], if index == 0 { "" } else { "-2" }),
                    "volumeMounts": mounts, "env": [{"name": "IS_INJECTED", "value": value}],
                })
            })
            .collect();
        let mut pod = pod();
        pod["spec"][if init { "initContainers" } else { "containers" }] = json!(containers);
        pod
    })
}

/// One or two sets.
pub(super) fn any_sets() -> impl Strategy<Value = Vec<Arc<Sidecars>>> {
    let names = ["game", "log", "mesh", "extra"];
    let container = (0..names.len(), any::<bool>(), any::<bool>());
    let any_set = (proptest::option::of(container.clone()), container, any::<bool>());
    proptest::collection::vec(any_set, 1..3).prop_map(move |sets| {
        let container = |(name, after, shares): (usize, bool, bool)| {
            json!({
                "name": names[name], "image": "i",
                "podInjectPolicy": if after { "AfterAppContainer" } else { "BeforeAppContainer" },
                "shareVolumePolicy": {"type": if shares { "enabled" } else { "disabled" }},
                "volumeMounts": [{"name": "v0", "mountPath": "/1"}],
            })
        };
        let sets = sets.into_iter().enumerate();
        sets.map(|(index, (init, regular, host))| {
            let volume = match host {
                true => json!({"name": "data", "hostPath": {"path": "/"}}),
                false => json!({"name": "data", "emptyDir": {}}),
            };
            let init: Vec<Value> = init.into_iter().map(container).collect();
            set(
                &format!("set-{index}"),
                json!({
                    "initContainers": init, "containers": [container(regular)], "volumes": [volume],
                }),
            )
        })
        .collect()
    })
}

proptest! {
    #[test]
    fn injecting_twice_has_the_same_result_as_injecting_once(pod in any_pod(), sets in any_sets()) {
        let once = injected(pod, &sets);
        let twice = injected(once.clone(), &sets);
        prop_assert_eq!(&twice["spec"], &once["spec"]);
        let containers_of = |pod: &Value| -> Vec<Vec<String>> {
            marks(pod).into_values().map(|mark| mark.containers).collect()
        };
        prop_assert_eq!(containers_of(&twice), containers_of(&once));
    }

    #[test]
    fn a_pod_keeps_its_own_containers_and_gets_a_set_completely_or_not_at_all(pod in any_pod(), sets in any_sets()) {
        let after = injected(pod.clone(), &sets);
        for field in ["initContainers", "containers", "volumes"] {
            let own = pod["spec"][field].as_array().cloned().unwrap_or_default();
            let all = after["spec"][field].as_array().cloned().unwrap_or_default();
            let kept: Vec<_> = all.iter().filter(|it| own.contains(it)).cloned().collect();
            prop_assert_eq!(own, kept, "{} keep their order", field);
        }
        let mut all = names(&after, "containers");
        all.extend(names(&after, "initContainers"));
        let count = all.len();
        let before = names(&pod, "containers").len() + names(&pod, "initContainers").len();
        let marks = marks(&after);
        prop_assert_eq!(marks.len(), sets.len());
        for mark in marks.values().filter(|mark| mark.is_injected()) {
            prop_assert!(mark.containers.iter().all(|it| all.contains(&it.as_str())));
        }
        let injected: usize = marks.values().map(|mark| mark.containers.len()).sum();
        prop_assert!(count <= before + injected);
    }
}

//! The HookRuns of a Cluster's steps, and the problems that are found in its spec.

use serde_json::{Value, json};

use super::sim::Sim;
use crate::lifecycle::paths::{Origin, Volume, origin};
use crate::lifecycle::problems;

/// The run of PreClusterInstall.
fn pre_cluster_install_run(sim: &mut Sim) -> Value {
    let skip = crate::api::LifecycleStep::EnsureCopyFiles;
    sim.cluster.spec.features.skip_conditions.push(skip);
    sim.settle();
    serde_json::to_value(sim.run_of("master-0")).expect("JSON")
}

#[test]
fn a_cluster_hook_gets_labels_and_annotations_as_arguments() {
    let mut sim = Sim::new(&json!({}));
    let annotations = sim.cluster.metadata.annotations.get_or_insert_default();
    annotations.insert("a/cost".to_owned(), "$(id) {{ args.x }} b".to_owned());
    let run = pre_cluster_install_run(&mut sim);
    let name = run["metadata"]["name"].as_str().expect("a name");
    assert!(name.starts_with("pre-cluster-install-hook-xa-master-0-"), "{name}");
    assert!(name.ends_with("-1"), "{name}");
    assert_eq!(run["metadata"]["ownerReferences"][0]["kind"], "Cluster");
    let spec = &run["spec"]["metrics"][0]["provider"]["job"]["spec"];
    let pod = &spec["template"]["spec"];
    assert_eq!(
        pod["containers"][0]["args"],
        json!([
            "node-hook",
            "--copy",
            "/sources/configmap-hooks-pre",
            "/tmp/hooks/pre",
            "--copy",
            "/sources/configmap-hooks-post",
            "/tmp/hooks/post",
            "--",
            "/tmp/hooks/pre/cluster-pre-install",
            "{{ args.pair0 }}",
            "{{ args.pair1 }}",
            "{{ args.pair2 }}",
        ])
    );
    assert_eq!(
        run["spec"]["args"],
        json!([
            {"name": "pair0", "value": "location=xa"},
            {"name": "pair1", "value": "a/cost=$$(id) {{ args.x }} b"},
            {"name": "pair2", "value": "node.alpha.kubernetes.io/test=hello"},
        ])
    );
    for (field, value) in [
        ("/hostPID", json!(true)),
        ("/hostNetwork", json!(true)),
        ("/automountServiceAccountToken", json!(false)),
        ("/tolerations", json!([{"operator": "Exists"}])),
        ("/containers/0/image", json!("gamekeeper:1")),
        ("/containers/0/securityContext/privileged", json!(true)),
        ("/volumes/1/configMap/name", json!("hooks-post")),
        ("/volumes/1/configMap/optional", json!(true)),
    ] {
        assert_eq!(pod.pointer(field), Some(&value), "{field}");
    }
    assert_eq!(spec["backoffLimit"], 0);
    assert_eq!(spec["podReplacementPolicy"], "Failed");
    assert_eq!(spec["activeDeadlineSeconds"], 3600);
    let term =
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0";
    let expected = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["master-0"]}]});
    assert_eq!(pod.pointer(term), Some(&expected));
}

#[test]
fn too_many_or_too_long_annotations_are_reported() {
    let mut sim = Sim::new(&json!({"skipConditions": ["EnsureCopyFiles"]}));
    let annotations = sim.cluster.metadata.annotations.get_or_insert_default();
    annotations.insert("notes".to_owned(), "x".repeat(70_000));
    sim.settle();
    let condition = sim.condition("EnsurePreClusterInstallHook");
    assert!(condition.contains("metadata.annotations: notes is too long"), "{condition}");
    let annotations = sim.cluster.metadata.annotations.get_or_insert_default();
    annotations.remove("notes");
    annotations.extend((0..201).map(|n| (format!("n{n}"), String::new())));
    sim.settle();
    let condition = sim.condition("EnsurePreClusterInstallHook");
    assert!(condition.contains("203 labels and annotations"), "{condition}");
}

#[test]
fn a_src_is_read_from_its_source_or_from_the_config_map_that_its_first_part_names() {
    let mut sim = Sim::new(&json!({"sources": [
        {"path": "hooks", "persistentVolumeClaim": {"claimName": "scripts"}},
        {"path": "hooks/pre", "configMap": {"name": "hooks-pre"}},
    ]}));
    let features = &mut sim.cluster.spec.features;
    for (src, volume, path) in [
        ("hooks/pre", Volume::ConfigMap("hooks-pre"), ""),
        ("hooks/pre/a", Volume::ConfigMap("hooks-pre"), "a"),
        ("hooks/pre2", Volume::Claim("scripts"), "pre2"),
        ("hooks/a/b", Volume::Claim("scripts"), "a/b"),
        ("other/a", Volume::ConfigMap("other"), "a"),
        ("other", Volume::ConfigMap("other"), ""),
    ] {
        assert_eq!(origin(features, src), Origin { volume, path }, "{src}");
    }
}

#[test]
fn problems_name_the_field_and_the_fix() {
    let problem = |features: Value, machines: Value| {
        let mut sim = Sim::new(&features);
        sim.cluster.spec.machines = serde_json::from_value(machines).expect("machines");
        let problems = problems(&sim.cluster.spec);
        assert!(problems.len() < 2, "{problems:?}");
        problems.first().map(ToString::to_string).unwrap_or_default()
    };
    let no_machines = || json!([]);
    assert_eq!(problem(json!({}), json!([{"ip": "10.0.0.9"}])), "");
    let rows = [
        (
            json!({}),
            json!([{"ip": "master"}]),
            "spec.machines[0].ip: Invalid value: \"master\": must be an IP",
        ),
        (
            json!({"hooks": {"PreInstall": "/tmp/hooks/pre/sub/x"}}),
            no_machines(),
            "spec.features.hooks.PreInstall: Invalid value: \"/tmp/hooks/pre/sub/x\": must begin with the dst",
        ),
        (
            json!({"hooks": {"PostClusterDelete": "/tmp/hooks/pre/x {{ a"}}),
            no_machines(),
            "spec.features.hooks.PostClusterDelete: Invalid value: \"/tmp/hooks/pre/x {{ a\": must not contain {{",
        ),
        (
            json!({"hooks": {}, "sources": [], "files": [{"src": "Hooks/x", "dst": "/x"}]}),
            no_machines(),
            "spec.features.files[0].src: Invalid value: \"Hooks/x\": \"Hooks\" cannot be the name",
        ),
        (
            json!({"hooks": {}, "sources": [], "files": [{"src": "hooks/pre/x", "dst": "/x"}]}),
            no_machines(),
            "spec.features.files[0].src: Invalid value: \"hooks/pre/x\": ConfigMap hooks has no directories; \
             write hooks/KEY",
        ),
    ];
    for (features, machines, expected) in rows {
        let found = problem(features, machines);
        assert!(found.starts_with(expected), "{found}");
    }
}

//! Rules that involve two objects, and rules on a single object that need several cases. The other rules are covered by
//! the table of bad manifests, which the linter's tests check.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::api::HookTemplateSpec;

fn template(args: Value, url: &str) -> HookTemplateSpec {
    let metric = json!({"name": "ready", "provider": {"web": {"url": url}}});
    serde_json::from_value(json!({"args": args, "metrics": [metric]})).expect("a template")
}

/// The findings about a GameDeployment with these HookTemplates.
fn messages(spec: Value, templates: &[(&str, HookTemplateSpec)]) -> Vec<String> {
    messages_for_kind("GameDeployment", spec, templates)
}

/// The findings about a workload with these HookTemplates.
fn messages_for_kind(
    kind: &str,
    spec: Value,
    templates: &[(&str, HookTemplateSpec)],
) -> Vec<String> {
    let known: BTreeMap<&str, Arc<HookTemplate>> = templates
        .iter()
        .map(|(name, spec)| (*name, Arc::new(HookTemplate::new(name, spec.clone()))))
        .collect();
    messages_about(&workload(kind, spec), &known)
}

/// A workload with these fields.
fn workload(kind: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": "game"},
        "spec": {
            "selector": {"matchLabels": {"app": "game"}},
            "template": {
                "metadata": {"labels": {"app": "game"}},
                "spec": {"containers": [{"name": "server", "image": "game:1"}]},
            },
        },
    });
    let fields = object["spec"].as_object_mut().expect("a spec");
    fields.extend(spec.as_object().expect("fields").clone());
    object
}

fn messages_about(object: &Value, known: &BTreeMap<&str, Arc<HookTemplate>>) -> Vec<String> {
    let find = |name: &str| known.get(name).cloned();
    let templates = Templates { find: &find, place: "this namespace" };
    let findings = check(object, &templates).into_iter();
    findings
        .map(|finding| match finding.severity {
            Severity::Error => finding.to_string(),
            Severity::Warning => format!("warning: {finding}"),
        })
        .collect()
}

fn pre_delete(hook: Value) -> Value {
    json!({"preDeleteUpdateStrategy": {"hook": hook}})
}

fn step(hook: Value) -> Value {
    json!({"updateStrategy": {"canary": {"steps": [{"hook": hook}]}}})
}

#[test]
fn arguments_come_from_the_template_the_workload_or_the_operator() {
    let url = "http://{{ args.PodIP }}/{{ args.PodContainer[0] }}/{{ args.team }}/{{ args.mode }}";
    let check = template(json!([{"name": "team"}, {"name": "mode", "value": "x"}]), url);
    let given = json!({"templateName": "check", "args": [{"name": "team", "value": "red"}]});
    let templates = [("check", check)];
    assert_eq!(messages(pre_delete(given.clone()), &templates), [""; 0]);
    let found = messages(pre_delete(json!({"templateName": "check"})), &templates);
    assert_eq!(
        found,
        [
            "spec.preDeleteUpdateStrategy.hook.templateName: Invalid value: HookTemplate \"check\" needs a \
          value for team; add it to the hook's args"
        ]
    );
    let step_findings = messages(step(given), &templates);
    assert!(
        step_findings[0].starts_with("warning: ")
            && step_findings[0].contains("a canary step concerns no pod"),
        "{step_findings:?}"
    );
}

#[test]
fn a_missing_template_is_a_warning() {
    let found = messages(pre_delete(json!({"templateName": "later"})), &[]);
    assert_eq!(
        found,
        ["warning: spec.preDeleteUpdateStrategy.hook.templateName: Invalid value: HookTemplate \
          \"later\" does not exist in this namespace; create it, or name another one"]
    );
}

#[test]
fn an_unknown_argument_is_a_warning() {
    let args = json!([{"name": "tem", "value": "red"}]);
    let found = messages(
        pre_delete(json!({"templateName": "check", "args": args})),
        &[("check", template(json!([]), "http://10.0.0.1"))],
    );
    assert_eq!(
        found,
        [
            "warning: spec.preDeleteUpdateStrategy.hook.args[0].name: Invalid value: \"tem\": HookTemplate \
          \"check\" has no such argument; check its spelling"
        ]
    );
}

#[test]
fn a_stored_template_that_cannot_succeed_is_an_error_in_the_workload() {
    let mut endless = template(json!([]), "http://10.0.0.1");
    endless.metrics[0].interval = Some("5s".into());
    let found = messages(pre_delete(json!({"templateName": "check"})), &[("check", endless)]);
    assert!(found[0].contains("HookTemplate \"check\" can never end Successful"), "{found:?}");
}

#[test]
fn fields_without_effect_are_warnings() {
    let templates = [("check", template(json!([]), "http://10.0.0.1"))];
    let hook = json!({"hook": {"templateName": "check"}});
    let rolling = json!({"type": "RollingUpdate"});
    let in_place = json!({"type": "InplaceUpdate"});
    let hot_patch = json!({"type": "HotPatchUpdate"});
    let recreating = json!({"type": "HotPatchUpdate",
        "inPlaceUpdateStrategy": {"whenImpossible": "Recreate"}});
    for (strategy, hooks, without_effect) in [
        (&in_place, &["preDelete", "preInplace", "postInplace"][..], None),
        (
            &rolling,
            &["preInplace", "postInplace"],
            Some(("postInplace", "which runs no PostInplace hooks;")),
        ),
        // PreInplace guards recreation unless PreDelete does.
        (&rolling, &["preInplace"], None),
        (
            &rolling,
            &["preDelete", "preInplace"],
            Some(("preInplace", "after their PreDelete hook;")),
        ),
        (&hot_patch, &["preInplace"], Some(("preInplace", "which runs no PreInplace hooks;"))),
        (&recreating, &["preInplace"], None),
        (
            &recreating,
            &["preDelete", "preInplace"],
            Some(("preInplace", "after their PreDelete hook;")),
        ),
    ] {
        let mut spec = json!({"updateStrategy": strategy});
        for point in hooks {
            spec[format!("{point}UpdateStrategy")] = hook.clone();
        }
        let found = messages(spec, &templates);
        assert_eq!(found.len(), without_effect.iter().len(), "{found:?}");
        if let Some((point, why)) = without_effect {
            let expected = format!(
                "warning: spec.{point}UpdateStrategy.hook: Invalid value: has no effect with"
            );
            assert!(found[0].starts_with(&expected), "{found:?}");
            assert!(found[0].contains(why), "{found:?}");
        }
    }
    for (type_, is_warned) in
        [("InplaceUpdate", false), ("RollingUpdate", true), ("HotPatchUpdate", true)]
    {
        let strategy = json!({"type": type_, "inPlaceUpdateStrategy": {"policy": "OrderedReady"}});
        let found = messages(json!({"updateStrategy": strategy}), &[]);
        let expected = "warning: spec.updateStrategy.inPlaceUpdateStrategy.policy: Invalid value: \"OrderedReady\": ";
        assert_eq!(found.len(), usize::from(is_warned), "{found:?}");
        assert!(found.iter().all(|it| it.starts_with(expected)), "{found:?}");
    }
    let messages_for_steps = |partitions: [Value; 3]| {
        let steps = partitions.map(|partition| json!({"partition": partition}));
        messages(json!({"updateStrategy": {"canary": {"steps": steps}}}), &[])
    };
    let messages_for_partition_and_steps = |partition: Value| {
        let canary = json!({"steps": [{"partition": 1}]});
        messages(json!({"updateStrategy": {"partition": partition, "canary": canary}}), &[])
    };
    assert_eq!(messages_for_partition_and_steps(json!(0)), [""; 0]);
    let expected = "warning: spec.updateStrategy.partition: Invalid value: 1: has no effect";
    assert!(messages_for_partition_and_steps(json!(1))[0].starts_with(expected));
    assert_eq!(messages_for_steps([json!(3), json!(1), json!(0)]), [""; 0]);
    assert_eq!(messages_for_steps([json!("50%"), json!(20), json!("10%")]), [""; 0]);
    for partitions in [[json!(3), json!(5), json!(0)], [json!("9%"), json!("10%"), json!(0)]] {
        let found = messages_for_steps(partitions);
        let expected = "warning: spec.updateStrategy.canary.steps[1].partition: ";
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    }
    // The last step keeps more pods at the old revision than the first, but fewer than the second.
    assert_eq!(messages_for_steps([json!(5), json!(8), json!(6)]).len(), 2);
}

/// The findings about a GameDeployment whose pods get indexes from this range.
fn messages_for_range(range: Option<&str>, enabled: &str, spec: Value) -> Vec<String> {
    let mut object = workload("GameDeployment", spec);
    let mut annotations = json!({crate::api::names::INDEX_ON: enabled});
    if let Some(range) = range {
        annotations[crate::api::names::INDEX_RANGE] = range.into();
    }
    object["metadata"]["annotations"] = annotations;
    messages_about(&object, &BTreeMap::new())
}

#[test]
fn an_invalid_index_range_is_refused() {
    let none = || json!({});
    let good = r#"{"podStartIndex": 100, "podEndIndex": 110}"#;
    assert_eq!(messages_for_range(Some(good), "true", none()), [""; 0]);
    assert_eq!(messages_for_range(Some("x"), "false", none()), [""; 0]);
    let field = "metadata.annotations.tkex.bkbcs.tencent.com/gamedeployment-index-range: ";
    for (range, why) in [
        (None, "Required value: must be JSON such as "),
        (Some("100-110"), "Invalid value: \"100-110\": must be JSON such as "),
    ] {
        let found = messages_for_range(range, "true", none());
        let expected = format!("{field}{why}");
        assert!(found.len() == 1 && found[0].starts_with(&expected), "{found:?}");
    }
    let found = messages_for_range(Some(good), "True", none());
    let switch = "warning: metadata.annotations.tkex.bkbcs.tencent.com/gamedeployment-index-on: ";
    assert!(found.len() == 1 && found[0].starts_with(switch), "{found:?}");
}

#[test]
fn too_few_indexes_and_a_conflicting_variable_are_warnings() {
    let range = Some(r#"{"podEndIndex": 5}"#);
    let spec = |replicas: i32, surge: Value| json!({"replicas": replicas, "updateStrategy": {"maxSurge": surge}});
    assert_eq!(messages_for_range(range, "true", spec(4, json!(1))), [""; 0]);
    for (replicas, surge) in [(5, json!(1)), (4, json!("50%")), (6, json!(0))] {
        let found = messages_for_range(range, "true", spec(replicas, surge));
        let expected = "the range has 5 indexes, fewer than replicas + maxSurge";
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
        assert!(found[0].starts_with("warning: "), "{found:?}");
    }
    let env = json!([{"name": "MODE", "value": "x"}, {"name": "POD_INDEX", "value": "1"}]);
    let container = json!({"name": "server", "image": "game:1", "env": env});
    let metadata = json!({"labels": {"app": "game"}});
    let template = json!({"metadata": metadata, "spec": {"containers": [container]}});
    assert_eq!(
        messages_for_range(range, "true", json!({"template": template})),
        [
            "warning: spec.template.spec.containers[0].env[1].name: Invalid value: \"POD_INDEX\": is set to \
             the pod's index by the operator; remove it"
        ]
    );
}

#[test]
fn bk_bcs_fields_without_effect_are_warnings() {
    let found = messages(json!({"serviceName": "game"}), &[]);
    let expected = "warning: spec.serviceName: Invalid value: has no effect on a GameDeployment";
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    for (policy, strategy, place) in [
        ("OrderedReady", json!({"maxSurge": 1}), Some("")),
        ("OrderedReady", json!({"rollingUpdate": {"maxSurge": "20%"}}), Some("rollingUpdate.")),
        ("OrderedReady", json!({"maxSurge": "0%"}), None),
        ("Parallel", json!({"maxSurge": 1}), None),
    ] {
        let spec = json!({"podManagementPolicy": policy, "updateStrategy": strategy});
        let found = messages_for_kind("GameStatefulSet", spec, &[]);
        let expected = place.map(|place| {
            format!(
                "warning: spec.updateStrategy.{place}maxSurge: Invalid value: has no effect with \
                 podManagementPolicy OrderedReady; remove it, or use Parallel"
            )
        });
        assert_eq!(found, Vec::from_iter(expected));
    }
}

#[test]
fn max_surge_without_surge_pods_is_a_warning() {
    let in_place =
        Some("InplaceUpdate, unless maxUnavailable is 0; remove it, or set maxUnavailable to 0");
    for (strategy, expected) in [
        (json!({"type": "RollingUpdate", "maxSurge": 1}), None),
        (json!({"type": "InplaceUpdate", "maxSurge": 1, "maxUnavailable": 0}), None),
        (json!({"type": "InplaceUpdate", "maxSurge": 0}), None),
        (json!({"type": "InplaceUpdate", "maxSurge": 1}), in_place),
        (json!({"type": "InplaceUpdate", "maxSurge": "10%", "maxUnavailable": 2}), in_place),
        (json!({"type": "OnDelete", "maxSurge": 1}), Some("OnDelete; remove it")),
        (json!({"type": "HotPatchUpdate", "maxSurge": 1}), Some("HotPatchUpdate; remove it")),
    ] {
        let expected = expected.map(|why| {
            format!(
                "warning: spec.updateStrategy.maxSurge: Invalid value: has no effect with updateStrategy.type {why}"
            )
        });
        for kind in ["GameDeployment", "GameStatefulSet"] {
            let mut spec = json!({"updateStrategy": strategy});
            if kind == "GameStatefulSet" {
                spec["podManagementPolicy"] = json!("Parallel");
            }
            let found = messages_for_kind(kind, spec, &[]);
            assert_eq!(found, Vec::from_iter(expected.clone()), "{kind} {strategy}");
        }
    }
}

#[test]
fn a_reserved_ordinal_below_the_first_one_is_a_warning() {
    let messages_for_set = |spec| messages_for_kind("GameStatefulSet", spec, &[]);
    let found = messages_for_set(json!({"ordinals": {"start": 2}, "reserveOrders": [3, 1, 2]}));
    assert_eq!(
        found,
        [
            "warning: spec.reserveOrders[1]: Invalid value: has no effect below ordinals.start, which is \
          2; remove it"
        ]
    );
    assert_eq!(messages_for_set(json!({"reserveOrders": [0, 7]})), [""; 0]);
}

#[test]
fn create_batch_with_ordered_ready_is_a_warning() {
    for (policy, count) in [("OrderedReady", 1), ("Parallel", 0)] {
        let batch = json!({"createBatch": "20%"});
        let spec = json!({"podManagementPolicy": policy, "scaleStrategy": batch});
        let found = messages_for_kind("GameStatefulSet", spec, &[]);
        assert_eq!(found.len(), count, "{found:?}");
        let expected = "warning: spec.scaleStrategy.createBatch: Invalid value: has no effect with";
        assert!(found.iter().all(|it| it.starts_with(expected)), "{found:?}");
    }
}

#[test]
fn fields_that_need_a_readiness_gate_are_warnings_if_it_is_disabled() {
    let templates = [("check", template(json!([]), "http://10.0.0.1"))];
    let spec = |strategy: Value, disabled: bool| {
        json!({
            "updateStrategy": strategy, "disableReadinessGate": disabled,
            "postInplaceUpdateStrategy": {"hook": {"templateName": "check"}},
        })
    };
    let in_place = json!({
        "type": "InplaceUpdate", "inPlaceUpdateStrategy": {"gracePeriodSeconds": 30},
    });
    assert_eq!(messages(spec(in_place.clone(), false), &templates), [""; 0]);
    let found = messages(spec(in_place, true), &templates);
    let fields = [
        "warning: spec.updateStrategy.inPlaceUpdateStrategy.gracePeriodSeconds: Invalid value: ",
        "warning: spec.postInplaceUpdateStrategy.hook: Invalid value: ",
    ];
    assert_eq!(found.len(), fields.len(), "{found:?}");
    for (found, field) in found.iter().zip(fields) {
        assert!(found.starts_with(field), "{found}");
        assert!(found.contains("spec.disableReadinessGate"), "{found}");
    }
    let plain = json!({"type": "InplaceUpdate"});
    assert_eq!(
        messages(json!({"updateStrategy": plain, "disableReadinessGate": true}), &[]),
        [""; 0]
    );
}

#[test]
fn a_mount_without_a_volume_is_an_error() {
    let pod = |volumes: Value| {
        let mount = json!([{"name": "maps", "mountPath": "/maps"}]);
        let container = json!({"name": "server", "image": "game:1", "volumeMounts": mount});
        let metadata = json!({"labels": {"app": "game"}});
        json!({"template": {"metadata": metadata, "spec": {"containers": [container], "volumes": volumes}}})
    };
    assert_eq!(messages(pod(json!([{"name": "maps", "emptyDir": {}}])), &[]), [""; 0]);
    let found = messages(pod(json!([])), &[]);
    assert_eq!(
        found,
        [
            "spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"maps\": no volume has this \
          name; add it to spec.template.spec.volumes"
        ]
    );
}

#[test]
fn objects_of_another_version_are_not_refused() {
    let object = json!({"kind": "HookTemplate", "metadata": {}, "spec": {"metrics": "many"}});
    let templates = Templates { find: &|_| None, place: "this namespace" };
    let found = check(&object, &templates);
    assert!(found.len() == 1 && !found[0].is_error(), "{found:?}");
    assert_eq!(check(&json!({"kind": "Pod"}), &templates), []);
}

/// The cluster may be newer than the operator.
#[test]
fn an_unknown_field_is_a_warning_in_jobs_but_is_ignored_in_pod_templates() {
    let container = json!({"name": "backup", "image": "backup:1", "imagee": "x"});
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let metric = json!({"name": "backup", "provider": {"job": {"spec": {"template": pod}}}});
    let body = json!({"name": "b", "provider": {"web": {"url": "http://a", "jsonBody": {"x": 1}}}});
    let mut template =
        json!({"kind": "HookTemplate", "metadata": {}, "spec": {"metrics": [metric, body]}});
    let none = Templates { find: &|_| None, place: "" };
    let field = "spec.metrics[0].provider.job.spec.template.spec.containers[0].imagee";
    let unknown = Finding::unknown(field).as_warning();
    assert_eq!(check(&template, &none), [unknown]);
    template["kind"] = "HookRun".into();
    assert_eq!(check(&template, &none).len(), 1);

    let template = json!({"metadata": {"lables": {}}, "spec": {"containers": [container]}});
    assert_eq!(messages(json!({"template": template}), &[]), Vec::<String>::new());
}

#[test]
fn protection_without_effect_and_a_template_with_the_guard_label_are_reported() {
    let guarded = json!({"pods": "Guarded", "askAgainSeconds": 60});
    let found = messages(json!({"protection": guarded}), &[]);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("warning: spec.protection.pods: Invalid value: Guarded has no effect"),
        "{found:?}"
    );
    let unguarded = json!({"pods": "None", "askAgainSeconds": 60, "deadlineSeconds": 600});
    let found = messages(json!({"protection": unguarded}), &[]);
    assert!(
        found[0]
            .starts_with("warning: spec.protection.deadlineSeconds: Invalid value: has no effect"),
        "{found:?}"
    );
    let container = |name: &str| json!({"name": name, "image": "game:1"});
    let template = json!({
        "metadata": {"labels": {"app": "game", "gamekeeper.tkex.tencent.com/guarded": "x"}},
        "spec": {"containers": [container("a"), container("b")]},
    });
    let mut spec = pre_delete(json!({"templateName": "check"}));
    spec["protection"] = guarded;
    spec["template"] = template;
    let found = messages(spec, &[("check", template_without_args())]);
    assert!(
        found.iter().any(|it| it.contains("several containers"))
            && found.iter().any(|it| it.contains("is set by the operator")),
        "{found:?}"
    );
}

fn template_without_args() -> HookTemplateSpec {
    template(json!([]), "http://10.0.0.1")
}

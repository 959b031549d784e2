//! Properties of all schemas. Their effect on a real API server is tested in `e2e/tests/api.rs`.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::crds;

/// The kinds and their schemas; generated once, because that takes a while.
static KINDS: LazyLock<Vec<(String, Value)>> = LazyLock::new(|| {
    crds()
        .into_iter()
        .map(|crd| {
            let schema = crd.spec.versions[0].schema.clone();
            let schema = schema.and_then(|validation| validation.open_api_v3_schema);
            let schema = serde_json::to_value(schema).expect("a schema is JSON");
            (crd.spec.names.kind, schema)
        })
        .collect()
});

/// The schema of a kind's field, by path.
fn schema_of(kind: &str, path: &str) -> &'static Value {
    let (_, root) = KINDS.iter().find(|(name, _)| name == kind).expect("a kind of ours");
    path.split('.').fold(root, |schema, name| {
        let field = match name {
            "[]" => &schema["items"],
            name => &schema["properties"][name],
        };
        assert!(!field.is_null(), "{kind}.{path}: no {name}");
        field
    })
}

/// Calls `check` for each field of each spec, with the field's path, its schema, and whether it belongs to a
/// Kubernetes core type.
fn each_field(mut check: impl FnMut(&str, &Value, bool)) {
    for (kind, _) in KINDS.iter() {
        visit(kind, schema_of(kind, "spec"), false, &mut check);
    }
}

/// The fields that only containers of a SidecarSet have.
const SIDECAR_OPTIONS: [&str; 6] = [
    "podInjectPolicy",
    "resourcesPolicy",
    "shareVolumeDevicePolicy",
    "shareVolumePolicy",
    "transferEnv",
    "upgradeStrategy",
];

fn visit(
    path: &str,
    schema: &Value,
    in_core_type: bool,
    check: &mut impl FnMut(&str, &Value, bool),
) {
    check(path, schema, in_core_type);
    let inside = in_core_type || schema["x-kubernetes-preserve-unknown-fields"] == true;
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        // The containers of a SidecarSet are of a core type, but have fields of ours.
        let inside = inside && !SIDECAR_OPTIONS.contains(&name.as_str());
        visit(&format!("{path}.{name}"), field, inside, check);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            // Claims are of a core type, although their list is ours.
            let inside = inside || path.ends_with(".volumeClaimTemplates");
            visit(&format!("{path}.[]"), &schema[key], inside, check);
        }
    }
}

#[test]
fn each_field_of_ours_has_a_description() {
    each_field(|path, schema, in_core_type| {
        let is_item = path.ends_with("[]");
        assert!(in_core_type || is_item || schema["description"].is_string(), "{path}");
    });
}

#[test]
fn kubernetes_own_types_have_no_description_and_keep_unknown_fields() {
    each_field(|path, schema, in_core_type| {
        if !in_core_type {
            return;
        }
        assert!(schema["description"].is_null(), "{path}");
        let has_fields = schema["properties"].is_object();
        let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
        assert!(keeps || !has_fields, "{path}");
    });
}

#[test]
fn each_of_our_lists_specifies_how_it_merges() {
    each_field(|path, schema, in_core_type| {
        if schema["type"] == "array" && !in_core_type {
            assert!(schema["x-kubernetes-list-type"].is_string(), "{path}");
        }
    });
}

#[test]
fn pods_to_delete_can_list_all_pods_of_a_large_workload() {
    let pods_to_delete = schema_of("GameDeployment", "spec.scaleStrategy.podsToDelete");
    assert_eq!(pods_to_delete["maxItems"], 10_000);
}

#[test]
fn reserved_ordinals_are_a_bounded_set_of_numbers() {
    let reserved = schema_of("GameStatefulSet", "spec.reserveOrders");
    assert_eq!(reserved["maxItems"], 1000);
    assert_eq!(reserved["x-kubernetes-list-type"], "set");
    assert_eq!(reserved["items"]["minimum"].as_f64(), Some(0.0));
}

/// A value is inserted wherever it is referenced, and copied to each run.
#[test]
fn values_of_arguments_are_bounded() {
    for (kind, args) in [
        ("HookTemplate", "spec.args"),
        ("HookRun", "spec.args"),
        ("GameDeployment", "spec.preDeleteUpdateStrategy.hook.args"),
        ("GameStatefulSet", "spec.preInplaceUpdateStrategy.hook.args"),
    ] {
        let args = schema_of(kind, args);
        assert_eq!(args["maxItems"], 256, "{kind}");
        let value = &args["items"]["properties"]["value"];
        assert_eq!(value["maxLength"], 65_536, "{kind}");
    }
}

#[test]
fn the_keys_of_a_list_are_required() {
    each_field(|path, schema, _| {
        for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten() {
            let required = schema["items"]["required"].as_array();
            assert!(required.is_some_and(|fields| fields.contains(key)), "{path}: {key}");
        }
    });
}

#[test]
fn containers_volumes_and_mounts_merge_but_env_and_ports_do_not() {
    let spec = schema_of("GameDeployment", "spec.template.spec");
    let container = &spec["properties"]["containers"]["items"]["properties"];
    for (list, key) in [
        (&spec["properties"]["containers"], "name"),
        (&spec["properties"]["initContainers"], "name"),
        (&spec["properties"]["volumes"], "name"),
        (&container["volumeMounts"], "mountPath"),
    ] {
        assert_eq!(list["x-kubernetes-list-map-keys"], json!([key]));
    }
    for list in ["env", "ports"] {
        assert_eq!(container[list]["x-kubernetes-list-type"], Value::Null);
    }
}

#[test]
fn quantities_may_be_numbers() {
    let resources = "spec.template.spec.containers.[].resources";
    let quantity =
        &schema_of("GameDeployment", resources)["properties"]["limits"]["additionalProperties"];
    assert_eq!(quantity["type"], Value::Null);
    assert!(quantity["pattern"].is_string());
}

#[test]
fn each_rule_has_a_one_line_message() {
    each_field(|path, schema, _| {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            let message = rule["message"].as_str().unwrap_or_default();
            assert!(!message.is_empty() && !message.contains('\n'), "{path}: {rule}");
        }
    });
}

#[test]
fn no_default_is_inside_a_list() {
    each_field(|path, schema, _| {
        assert!(!path.contains("[]") || schema["default"].is_null(), "{path}");
    });
}

/// A server-side apply validates nulls, and a Deployment takes them.
#[test]
fn only_fields_of_kubernetes_own_types_are_nullable_unless_they_are_required() {
    let mut nullable = 0;
    each_field(|path, schema, _| {
        // An option of a sidecar is no field of a core type, but its parent is one.
        let is_option = |name: &String| SIDECAR_OPTIONS.contains(&name.as_str());
        let in_core_type = schema["x-kubernetes-preserve-unknown-fields"] == true
            && !path.contains(".volumeClaimTemplates");
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let in_core_type = in_core_type || schema["x-kubernetes-map-type"] == "atomic";
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let may_be_null = in_core_type && !is_option(name) && !required.contains(&json!(name));
            assert_eq!(field["nullable"] == true, may_be_null, "{path}.{name}");
            nullable += usize::from(may_be_null);
        }
    });
    assert!(nullable > 3_000, "{nullable}");
}

#[test]
fn a_null_in_a_template_leaves_its_rules_and_its_keys_alone() {
    let template = schema_of("GameDeployment", "spec.template");
    assert_eq!(template["nullable"], Value::Null, "the template itself is required");
    let container = schema_of("GameDeployment", "spec.template.spec.containers.[]");
    assert_eq!(container["properties"]["name"]["nullable"], Value::Null);
    let secret = schema_of("GameDeployment", "spec.template.spec.imagePullSecrets.[]");
    assert_eq!(
        (&secret["required"], &secret["properties"]["name"]["nullable"]),
        (&Value::Null, &json!(true))
    );
}

#[test]
fn parents_of_paused_and_retry_have_defaults() {
    for kind in ["GameDeployment", "GameStatefulSet"] {
        assert_eq!(schema_of(kind, "spec.updateStrategy")["default"]["paused"], json!(false));
        for point in ["preDelete", "preInplace", "postInplace"] {
            let strategy = schema_of(kind, &format!("spec.{point}UpdateStrategy"));
            assert_eq!(strategy["default"], json!({"retry": false}));
            assert_eq!(strategy["properties"]["retry"]["default"], json!(false));
        }
    }
}

#[test]
fn enum_values_are_cased_as_in_bk_bcs() {
    let update_types = json!(["RollingUpdate", "InplaceUpdate", "HotPatchUpdate", "OnDelete"]);
    for (kind, path, values) in [
        ("GameDeployment", "spec.updateStrategy.type", update_types.clone()),
        ("GameStatefulSet", "spec.updateStrategy.type", update_types),
        ("GameStatefulSet", "spec.podManagementPolicy", json!(["OrderedReady", "Parallel"])),
        ("HookTemplate", "spec.policy", json!(["Parallel", "Ordered"])),
        ("HookTemplate", "spec.metrics.[].provider.kubernetes.function", json!(["get", "patch"])),
    ] {
        assert_eq!(schema_of(kind, path)["enum"], values, "{kind} {path}");
    }
}

#[test]
fn limits_of_a_game_stateful_set_have_no_default_so_users_can_choose_where_to_set_them() {
    for place in ["", "rollingUpdate."] {
        for field in ["partition", "maxUnavailable", "maxSurge"] {
            let limit =
                schema_of("GameStatefulSet", &format!("spec.updateStrategy.{place}{field}"));
            assert_eq!(limit["default"], Value::Null, "{place}{field}");
        }
    }
}

//! Schemas of Kubernetes' own types (pod templates, claims, jobs) in our CRDs.
//!
//! Generated from k8s-openapi's schemas, with these changes: descriptions are dropped (a CRD must fit into
//! the 256 KiB of kubectl's last-applied annotation), objects keep unknown fields (a cluster may be newer
//! than this schema), quantities may be numbers, lists have keys, so that server-side apply merges them
//! as in a Deployment, and values of maps and fields that are not required may be null.
//!
//! An empty field of a manifest is a null. The API server drops it when an object is created or replaced, but in a
//! server-side apply it validates it. In a built-in kind, a null means that the field is absent.

use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::{Container, PersistentVolumeClaim, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{always_restarted, immutable, job_rules, no_deadline, sidecar_container_rules};
use crate::api::SidecarOptions;

/// The lists that server-side apply merges, with their keys: the lists in which Kubernetes itself refuses duplicates.
/// The others (`env`, `ports`, `imagePullSecrets`, ...) stay atomic: if they had keys, some templates that are
/// valid in a Deployment would be refused.
const MERGED_LISTS: [(&str, &[&str]); 9] = [
    ("containers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("initContainers", &["name"]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
];

/// References whose name may be absent, although k8s-openapi requires it.
const REFERENCES: [&str; 8] = [
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "LocalObjectReference",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
];

/// The pattern of a quantity.
const QUANTITY: &str =
    r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";

/// The pattern of a label's value.
const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";

/// Schema of the pod template of a workload.
pub(crate) fn pod_template(_: &mut SchemaGenerator) -> Schema {
    let mut schema = bounded_template(core_schema::<PodTemplateSpec>());
    schema["properties"]["spec"]["x-kubernetes-validations"] =
        json!([no_deadline(), always_restarted()]);
    into_schema(schema)
}

/// Schema of the spec of a Job.
pub(crate) fn job_spec(_: &mut SchemaGenerator) -> Schema {
    let mut schema = core_schema::<JobSpec>();
    let mut template = bounded_template(schema["properties"]["template"].take());
    let spec = &mut template["properties"]["spec"];
    require(spec, &["containers", "restartPolicy"]);
    spec["properties"]["restartPolicy"]["enum"] = json!(["Never", "OnFailure"]);
    schema["properties"]["template"] = template;
    schema["x-kubernetes-validations"] = json!(job_rules());
    into_schema(schema)
}

/// Requires containers and valid label values in a pod template.
fn bounded_template(mut template: Value) -> Value {
    require(&mut template, &["spec"]);
    let label =
        &mut template["properties"]["metadata"]["properties"]["labels"]["additionalProperties"];
    label["maxLength"] = json!(63);
    label["pattern"] = json!(LABEL_VALUE);
    template["properties"]["spec"]["properties"]["containers"]["minItems"] = json!(1);
    template
}

/// Makes these the required fields of an object. None of them may be null.
fn require(schema: &mut Value, fields: &[&str]) {
    schema["required"] = json!(fields);
    for field in fields {
        schema["properties"][field].as_object_mut().map(|field| field.remove("nullable"));
    }
}

/// Schema of a list of claim templates.
pub(crate) fn volume_claim_templates(_: &mut SchemaGenerator) -> Schema {
    let mut claim = core_schema::<PersistentVolumeClaim>();
    require(&mut claim, &["metadata", "spec"]);
    require(&mut claim["properties"]["metadata"], &["name"]);
    // Claim templates cannot change, and a stored null would be another value than an absent field.
    drop_nullable(&mut claim);
    schemars::json_schema!({
        "type": "array",
        "items": claim,
        "x-kubernetes-list-type": "atomic",
        // Without a default, claim templates could be added later, because the rule needs an old value.
        "default": [],
        "x-kubernetes-validations": [immutable("create a new workload with the new claims")],
    })
}

/// The maximum number of containers, init containers or volumes of a SidecarSet.
const MAX_SIDECARS: u32 = 64;

/// Schema of the containers of a SidecarSet: that of a pod's containers, with options for the injection.
pub(crate) fn sidecar_containers(generator: &mut SchemaGenerator) -> Schema {
    let mut container = core_schema::<Container>();
    let mut options = generator.subschema_for::<SidecarOptions>().to_value();
    let mut options = options["properties"].take();
    drop_nullable(&mut options);
    let known = container["properties"].as_object_mut();
    if let (Some(known), Value::Object(options)) = (known, options) {
        known.extend(options);
    }
    container["x-kubernetes-validations"] = json!(sidecar_container_rules());
    list_by_name(container)
}

/// Removes `nullable`, and the alternatives that become it, at any depth.
fn drop_nullable(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("nullable");
            if let Some(Value::Array(types)) = fields.get("type") {
                let type_ = types.iter().find(|it| *it != "null").cloned();
                fields.insert("type".to_owned(), type_.unwrap_or_default());
            }
            if let Some(Value::Array(alternatives)) = fields.remove("anyOf") {
                let is_null = |it: &Value| it["type"] == "null";
                let given = alternatives.into_iter().find(|it| !is_null(it));
                fields.extend(
                    given
                        .iter()
                        .flat_map(Value::as_object)
                        .flatten()
                        .map(|(key, value)| (key.clone(), value.clone())),
                );
            }
            fields.values_mut().for_each(drop_nullable);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nullable),
        _ => {}
    }
}

/// Schema of the volumes of a SidecarSet.
pub(crate) fn sidecar_volumes(_: &mut SchemaGenerator) -> Schema {
    list_by_name(core_schema::<Volume>())
}

/// A list that server-side apply merges by name.
fn list_by_name(items: Value) -> Schema {
    schemars::json_schema!({
        "type": "array",
        "items": items,
        "maxItems": MAX_SIDECARS,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    })
}

/// Schema of an object's metadata.
pub(crate) fn object_meta(_: &mut SchemaGenerator) -> Schema {
    into_schema(core_schema::<ObjectMeta>())
}

/// Schema of a field that holds any JSON object.
pub(crate) fn json_object(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// The schema of one of Kubernetes' types, inlined and transformed.
fn core_schema<T: JsonSchema>() -> Value {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let root = generator.subschema_for::<T>().to_value();
    let mut definitions = generator.take_definitions(false);
    definitions.insert(
        Quantity::schema_name().into_owned(),
        // No type: OpenAPI has none for "number or string".
        json!({ "x-kubernetes-preserve-unknown-fields": true, "pattern": QUANTITY }),
    );
    inline(&root, &definitions)
}

fn into_schema(schema: Value) -> Schema {
    // A schema is an object or a boolean; these are objects.
    Schema::try_from(schema).unwrap_or_default()
}

/// Replaces references with their definitions, and makes the changes that the module's documentation lists.
fn inline(schema: &Value, definitions: &Map<String, Value>) -> Value {
    let Value::Object(schema) = schema else {
        return schema.clone();
    };
    if let Some(definition) = schema.get("$ref").and_then(Value::as_str) {
        let name = definition.rsplit('/').next().unwrap_or(definition);
        let mut target = definitions.get(name).cloned().unwrap_or_default();
        if REFERENCES.iter().any(|it| name.rsplit('.').next() == Some(it)) {
            drop_required_name(&mut target);
        }
        return inline(&target, definitions);
    }
    let mut out = schema.clone();
    out.remove("description");
    let nullable = |mut schema: Value| {
        schema["nullable"] = json!(true);
        schema
    };
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|it| it.iter().any(|it| it == name));
    if let Some(items) = schema.get("items") {
        out.insert("items".to_owned(), inline(items, definitions));
    }
    if let Some(values) = schema.get("additionalProperties") {
        out.insert("additionalProperties".to_owned(), nullable(inline(values, definitions)));
    }
    if let Some(Value::Object(properties)) = schema.get("properties") {
        let properties = properties
            .iter()
            .map(|(name, property)| {
                let schema = field(name, property, definitions);
                let schema = if is_required(name) { schema } else { nullable(schema) };
                (name.clone(), schema)
            })
            .collect();
        out.insert("properties".to_owned(), Value::Object(properties));
    }
    if out.get("type") == Some(&json!("object")) && !out.contains_key("additionalProperties") {
        out.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
    }
    Value::Object(out)
}

fn drop_required_name(schema: &mut Value) {
    if let Some(required) = schema["required"].as_array_mut() {
        required.retain(|field| field != "name");
    }
    if schema["required"] == json!([]) {
        schema.as_object_mut().map(|schema| schema.remove("required"));
    }
}

/// The schema of a named field, with keys if it is a merged list.
fn field(name: &str, schema: &Value, definitions: &Map<String, Value>) -> Value {
    let mut out = inline(schema, definitions);
    if let Some((_, keys)) = MERGED_LISTS.iter().find(|(list, _)| *list == name) {
        out["x-kubernetes-list-type"] = json!("map");
        out["x-kubernetes-list-map-keys"] = json!(keys);
    }
    out
}

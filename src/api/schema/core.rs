//! Core's own types (pod templates, claims, jobs) as parts of our CRDs.
//!
//! Generated from k8s-openapi's schemas instead of written by hand. On the way the descriptions go
//! (a CRD must stay below the 256 KiB that `kubectl apply` keeps in an annotation), every object
//! keeps the fields it does not know (a cluster may be newer than this schema), quantities may be
//! numbers, and lists get keys, so that server-side apply merges them as it does in a Deployment.

use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Lists that server-side apply merges, and their keys: those of core in which core itself refuses
/// duplicates. The others (`env`, `ports`, `imagePullSecrets`, ...) stay atomic, or a template that
/// a Deployment takes would be refused here.
const MERGED_LISTS: [(&str, &[&str]); 9] = [
    ("containers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("initContainers", &["name"]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    (
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
];

/// What a quantity's text looks like.
const QUANTITY: &str =
    r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";

/// Schema of a pod template.
pub fn pod_template(_: &mut SchemaGenerator) -> Schema {
    core_schema::<PodTemplateSpec>()
}

/// Schema of a list of claim templates.
pub fn volume_claim_templates(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "array",
        "items": core_schema::<PersistentVolumeClaim>(),
        "x-kubernetes-list-type": "atomic",
    })
}

/// Schema of a Job's spec.
pub fn job_spec(_: &mut SchemaGenerator) -> Schema {
    core_schema::<JobSpec>()
}

/// Schema of an object's metadata.
pub fn object_meta(_: &mut SchemaGenerator) -> Schema {
    core_schema::<ObjectMeta>()
}

/// Schema of a field that may be any JSON.
pub fn any_json(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// A core type's schema, written out and transformed.
fn core_schema<T: JsonSchema>() -> Schema {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let root = generator.subschema_for::<T>().to_value();
    let mut definitions = generator.take_definitions(false);
    definitions.insert(
        Quantity::schema_name().into_owned(),
        // No type: Kubernetes has none for "number or text".
        json!({ "x-kubernetes-preserve-unknown-fields": true, "pattern": QUANTITY }),
    );
    let mut object = Map::new();
    if let Value::Object(schema) = write_out(&root, &definitions) {
        object = schema;
    }
    Schema::from(object)
}

/// A schema with its references replaced by what they refer to, transformed.
fn write_out(schema: &Value, definitions: &Map<String, Value>) -> Value {
    let Value::Object(schema) = schema else {
        return schema.clone();
    };
    if let Some(definition) = schema.get("$ref").and_then(Value::as_str) {
        let name = definition.rsplit('/').next().unwrap_or(definition);
        return definitions
            .get(name)
            .map_or(Value::Null, |target| write_out(target, definitions));
    }
    let mut out = schema.clone();
    out.remove("description");
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(key) {
            out.insert(key.to_owned(), write_out(inner, definitions));
        }
    }
    if let Some(Value::Object(properties)) = schema.get("properties") {
        let properties = properties
            .iter()
            .map(|(name, property)| (name.clone(), field(name, property, definitions)))
            .collect();
        out.insert("properties".to_owned(), Value::Object(properties));
    }
    if out.get("type") == Some(&json!("object")) && !out.contains_key("additionalProperties") {
        out.insert(
            "x-kubernetes-preserve-unknown-fields".to_owned(),
            true.into(),
        );
    }
    Value::Object(out)
}

/// The schema of a named field: a list that is merged gets its keys.
fn field(name: &str, schema: &Value, definitions: &Map<String, Value>) -> Value {
    let mut out = write_out(schema, definitions);
    if let Some((_, keys)) = MERGED_LISTS.iter().find(|(list, _)| *list == name) {
        out["x-kubernetes-list-type"] = json!("map");
        out["x-kubernetes-list-map-keys"] = json!(keys);
    }
    out
}

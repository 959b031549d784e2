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

use super::{immutable, job_rules, no_deadline};

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

/// A label's value.
const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";

/// Schema of the pod template of a workload.
pub fn pod_template(_: &mut SchemaGenerator) -> Schema {
    let mut schema = template_with_restart_policies(core_schema::<PodTemplateSpec>(), &["Always"]);
    schema["properties"]["spec"]["x-kubernetes-validations"] = json!([no_deadline()]);
    into_schema(schema)
}

/// Schema of the spec of a Job.
pub fn job_spec(_: &mut SchemaGenerator) -> Schema {
    let mut schema = core_schema::<JobSpec>();
    let template = schema["properties"]["template"].take();
    let mut template = template_with_restart_policies(template, &["Never", "OnFailure"]);
    template["properties"]["spec"]["required"] = json!(["containers", "restartPolicy"]);
    schema["properties"]["template"] = template;
    schema["x-kubernetes-validations"] = json!(job_rules());
    into_schema(schema)
}

/// A pod template as a controller wants it: with containers, and one of the given policies.
fn template_with_restart_policies(mut template: Value, policies: &[&str]) -> Value {
    template["required"] = json!(["spec"]);
    let label =
        &mut template["properties"]["metadata"]["properties"]["labels"]["additionalProperties"];
    label["maxLength"] = json!(63);
    label["pattern"] = json!(LABEL_VALUE);
    let spec = &mut template["properties"]["spec"]["properties"];
    spec["containers"]["minItems"] = json!(1);
    spec["restartPolicy"]["enum"] = json!(policies);
    template
}

/// Schema of a list of claim templates.
pub fn volume_claim_templates(_: &mut SchemaGenerator) -> Schema {
    let mut claim = core_schema::<PersistentVolumeClaim>();
    claim["required"] = json!(["metadata", "spec"]);
    claim["properties"]["metadata"]["required"] = json!(["name"]);
    schemars::json_schema!({
        "type": "array",
        "items": claim,
        "x-kubernetes-list-type": "atomic",
        // Always there, so that a claim template cannot be added either.
        "default": [],
        "x-kubernetes-validations": [immutable("create a new workload with the new claims")],
    })
}

/// Schema of an object's metadata.
pub fn object_meta(_: &mut SchemaGenerator) -> Schema {
    into_schema(core_schema::<ObjectMeta>())
}

/// Schema of a field that holds any JSON object.
pub fn json_object(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A core type's schema, written out and transformed.
fn core_schema<T: JsonSchema>() -> Value {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let root = generator.subschema_for::<T>().to_value();
    let mut definitions = generator.take_definitions(false);
    definitions.insert(
        Quantity::schema_name().into_owned(),
        // No type: Kubernetes has none for "number or text".
        json!({ "x-kubernetes-preserve-unknown-fields": true, "pattern": QUANTITY }),
    );
    write_out(&root, &definitions)
}

fn into_schema(schema: Value) -> Schema {
    // A schema is an object or a boolean; core's are objects.
    Schema::try_from(schema).unwrap_or_default()
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

//! Schemas of Kubernetes' own types (pod templates, claims, jobs) in our CRDs.
//!
//! Generated from k8s-openapi's schemas, with these changes: descriptions are dropped (a CRD must fit into
//! the 256 KiB of kubectl's last-applied annotation), objects keep unknown fields (a cluster may be newer
//! than this schema), quantities may be numbers, and lists have keys, so that server-side apply merges them
//! as in a Deployment.

use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::{Container, PersistentVolumeClaim, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{immutable, job_rules, no_deadline, sidecar_container_rules};
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

/// The pattern of a quantity.
const QUANTITY: &str =
    r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";

/// The pattern of a label's value.
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

/// Requires containers and valid label values in a pod template, and allows only these restart policies.
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
        // Without a default, claim templates could be added later, because the rule needs an old value.
        "default": [],
        "x-kubernetes-validations": [immutable("create a new workload with the new claims")],
    })
}

/// The maximum number of containers, init containers or volumes of a SidecarSet.
const MAX_SIDECARS: u32 = 64;

/// Schema of the containers of a SidecarSet: that of a pod's containers, with options for the injection.
pub fn sidecar_containers(generator: &mut SchemaGenerator) -> Schema {
    let mut container = core_schema::<Container>();
    let mut options = generator.subschema_for::<SidecarOptions>().to_value();
    let options = options["properties"].take();
    let known = container["properties"].as_object_mut();
    if let (Some(known), Value::Object(options)) = (known, options) {
        known.extend(options);
    }
    container["x-kubernetes-validations"] = json!(sidecar_container_rules());
    list_by_name(container)
}

/// Schema of the volumes of a SidecarSet.
pub fn sidecar_volumes(_: &mut SchemaGenerator) -> Schema {
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
pub fn object_meta(_: &mut SchemaGenerator) -> Schema {
    into_schema(core_schema::<ObjectMeta>())
}

/// Schema of a field that holds any JSON object.
pub fn json_object(_: &mut SchemaGenerator) -> Schema {
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
        return definitions.get(name).map_or(Value::Null, |target| inline(target, definitions));
    }
    let mut out = schema.clone();
    out.remove("description");
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(key) {
            out.insert(key.to_owned(), inline(inner, definitions));
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
        out.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
    }
    Value::Object(out)
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

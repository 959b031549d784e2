//! The content of ControllerRevisions: the template that one records, and whether two templates mean the same.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::api::JsonText;
use crate::observed::quantity;

/// The pod template in a ControllerRevision's data, without the marker that makes it a patch; null
/// if there is no template.
pub fn recorded_template(data: &JsonText) -> JsonText {
    let mut fields = data.read::<RecordedData>().spec.template;
    fields.remove("$patch");
    match fields.is_empty() {
        true => JsonText::default(),
        false => JsonText::of_length(&fields, data.text().len()),
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RecordedData<'a> {
    #[serde(borrow)]
    spec: RecordedSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RecordedSpec<'a> {
    #[serde(borrow)]
    template: BTreeMap<String, &'a RawValue>,
}

/// The canonical form of a template, which is the same for all templates with the same meaning. Nulls, empty lists,
/// defaults of the API server and empty maps are left out, except for the empty maps that have a meaning. Quantities are
/// canonical, too.
pub fn canonical(template: &Value) -> Value {
    let mut template = prune_empty(template).unwrap_or(Value::Object(Map::new()));
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        // The API server adds this field to embedded metadata; it has no effect on pods.
        metadata.remove("creationTimestamp");
        if metadata.is_empty() {
            template.as_object_mut().map(|template| template.remove("metadata"));
        }
    }
    if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
        drop_defaults(spec, &POD_DEFAULTS);
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
            {
                canonical_container(container);
            }
        }
    }
    template
}

fn canonical_container(container: &mut Value) {
    let Some(container) = container.as_object_mut() else {
        return;
    };
    drop_defaults(container, &CONTAINER_DEFAULTS);
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            drop_defaults(port, &[("protocol", "TCP")]);
        }
    }
    for kind in ["requests", "limits"] {
        let quantities = container.get_mut("resources").and_then(|it| it.get_mut(kind));
        for (_, value) in quantities.and_then(Value::as_object_mut).into_iter().flatten() {
            *value = Value::String(quantity::canonical(value));
        }
    }
}

/// Defaults that the API server sets in pods.
const POD_DEFAULTS: [(&str, &str); 4] = [
    ("restartPolicy", "Always"),
    ("dnsPolicy", "ClusterFirst"),
    ("schedulerName", "default-scheduler"),
    ("terminationGracePeriodSeconds", "30"),
];
const CONTAINER_DEFAULTS: [(&str, &str); 2] =
    [("terminationMessagePath", "/dev/termination-log"), ("terminationMessagePolicy", "File")];

fn drop_defaults(object: &mut Map<String, Value>, defaults: &[(&str, &str)]) {
    object.retain(|key, value| {
        let text = match &*value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        !defaults.iter().any(|(name, default)| name == key && *default == text)
    });
}

/// Removes nulls, empty lists and empty objects, except objects that have a meaning even if they are empty.
fn prune_empty(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(map) => {
            let kept: Map<String, Value> = map
                .iter()
                .filter_map(|(key, value)| {
                    let pruned = prune_empty(value).or_else(|| meaningful_empty(key, value));
                    pruned.map(|value| (key.clone(), value))
                })
                .collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(list) if list.is_empty() => None,
        Value::Array(list) => Some(Value::Array(
            list.iter().map(|it| prune_empty(it).unwrap_or(Value::Null)).collect(),
        )),
        other => Some(other.clone()),
    }
}

/// An empty object that has a meaning: without `emptyDir: {}`, for example, a volume has no source.
fn meaningful_empty(key: &str, value: &Value) -> Option<Value> {
    let has_meaning =
        !matches!(key, "metadata" | "resources" | "securityContext" | "labels" | "annotations")
            && value.is_object();
    has_meaning.then(|| value.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_with_the_same_meaning_have_the_same_canonical_form() {
        let short = json!({"spec": {"containers": [
            {"name": "game", "image": "game:v1", "resources": {"requests": {"cpu": 0.5}}}]}});
        let long = json!({
            "metadata": {"creationTimestamp": null, "annotations": {}},
            "spec": {
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "securityContext": {},
                "containers": [{
                    "resources": {"requests": {"cpu": "500m"}}, "image": "game:v1", "name": "game",
                    "env": [], "terminationMessagePolicy": "File",
                }],
            },
        });
        assert_eq!(canonical(&short), canonical(&long));
    }

    #[test]
    fn fields_with_a_meaning_are_kept() {
        let volume =
            json!({"spec": {"containers": [], "volumes": [{"name": "data", "emptyDir": {}}]}});
        assert_eq!(canonical(&volume).pointer("/spec/volumes/0/emptyDir"), Some(&json!({})));
        let grace = json!({"spec": {"terminationGracePeriodSeconds": 60}});
        assert_ne!(canonical(&grace), canonical(&json!({"spec": {}})));
    }
}

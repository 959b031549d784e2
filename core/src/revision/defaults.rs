//! The API server's defaults in pod templates.
//!
//! `defaults.txt` lists the values that mean the same as the absence of a field. It is generated from the answers of
//! API servers (`e2e/tests/defaults.rs`), and a test finds what a new version of Kubernetes adds. Here are only the
//! defaults that depend on other fields.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::observed::quantity;

/// `PARENT.FIELD VALUE...`. The parent is the field that holds the object, or the list or map of objects.
const TABLE: &str = include_str!("defaults.txt");

/// The values that mean the same as the absence of a field, by its parent and its name.
static ABSENCE: LazyLock<HashMap<(&str, &str), Vec<Value>>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter_map(|line| line.split_once(' '));
    let entries = lines.filter_map(|(path, values)| {
        let values = serde_json::Deserializer::from_str(values).into_iter();
        Some((path.split_once('.')?, values.map_while(Result::ok).collect()))
    });
    entries.collect()
});

/// The field `field` of an object that is in field `parent`, without what the API server would set itself; None if all
/// of it is the same as absent. Nulls, and lists without items, are absent. Quantities get their canonical form.
pub(super) fn without_defaults(parent: &str, field: &str, value: &Value) -> Option<Value> {
    let value = match value {
        Value::Null => return None,
        Value::Array(items) if items.is_empty() => return None,
        Value::Array(items) => Value::Array(items.iter().map(|it| item(field, it)).collect()),
        Value::Object(fields) => Value::Object(object(parent, field, fields)),
        value if is_quantity(parent, field) => Value::String(quantity::canonical(value)),
        value => value.clone(),
    };
    (!is_absence(parent, field, &value)).then_some(value)
}

/// An item of a list. Its position counts, so it is kept even if nothing is left of it.
fn item(list: &str, value: &Value) -> Value {
    match value {
        Value::Object(fields) if fields.is_empty() => Value::Null,
        Value::Object(fields) => {
            let item = object("", list, fields);
            if item.is_empty() { Value::Null } else { Value::Object(item) }
        }
        Value::Array(items) => Value::Array(items.iter().map(|it| item(list, it)).collect()),
        value => value.clone(),
    }
}

/// The fields of the object, or of an item of the list, in field `name`.
fn object(parent: &str, name: &str, fields: &Map<String, Value>) -> Map<String, Value> {
    let kept = fields.iter().filter_map(|(field, value)| {
        let value = without_defaults(name, field, value)?;
        Some((field.clone(), value))
    });
    let mut object: Map<String, Value> = kept.collect();
    match name {
        "containers" | "initContainers" => container(&mut object),
        "image" => drop_pull_policy(&mut object, "reference", "pullPolicy"),
        "spec" if parent == "template" => pod(&mut object),
        _ => {}
    }
    object
}

fn is_absence(parent: &str, field: &str, value: &Value) -> bool {
    // Earlier versions took these for absent wherever they occur, and no revision may differ from then on.
    let sets_nothing =
        matches!(field, "metadata" | "resources" | "securityContext" | "labels" | "annotations")
            && value.as_object().is_some_and(Map::is_empty);
    let known = ABSENCE.get(&(parent, field)).map_or(&[][..], Vec::as_slice);
    let is_known = match is_quantity(parent, field) {
        true => known.iter().any(|it| quantity::canonical(it) == quantity::canonical(value)),
        false => known.contains(value),
    };
    sets_nothing || is_known
}

fn is_quantity(parent: &str, field: &str) -> bool {
    matches!(
        (parent, field),
        ("limits" | "requests" | "overhead", _)
            | ("emptyDir", "sizeLimit")
            | ("resourceFieldRef", "divisor")
    )
}

fn container(container: &mut Map<String, Value>) {
    drop_pull_policy(container, "image", "imagePullPolicy");
    drop_default_requests(container, |_| true);
}

/// An absent request is the limit, so a request that equals it is the same as absent, if `defaults` says that of the
/// resource.
fn drop_default_requests(object: &mut Map<String, Value>, defaults: impl Fn(&str) -> bool) {
    let Some(resources) = object.get_mut("resources").and_then(Value::as_object_mut) else {
        return;
    };
    let limits = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(requests) = resources.get_mut("requests").and_then(Value::as_object_mut) {
        requests.retain(|name, request| limits.get(name) != Some(request) || !defaults(name));
        if requests.is_empty() {
            resources.remove("requests");
        }
    }
}

fn drop_pull_policy(object: &mut Map<String, Value>, image: &str, policy: &str) {
    let image = object.get(image).and_then(Value::as_str).unwrap_or_default();
    if object.get(policy).and_then(Value::as_str) == Some(pull_policy(image)) {
        object.remove(policy);
    }
}

fn pod(spec: &mut Map<String, Value>) {
    // The old name of serviceAccountName, which has precedence. The API server sets both.
    if let Some(account) = spec.remove("serviceAccount") {
        spec.entry("serviceAccountName").or_insert(account);
    }
    // The default of a pod's own request is what its containers request, and the limit only if they request nothing.
    let requested: BTreeSet<String> = containers(spec).flat_map(resources_of).cloned().collect();
    drop_default_requests(spec, |resource| !requested.contains(resource));
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        LISTS.iter().for_each(|list| drop_host_ports(spec.get_mut(*list)));
    }
}

const LISTS: [&str; 2] = ["containers", "initContainers"];

fn containers(spec: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    LISTS.iter().filter_map(|list| spec.get(*list)?.as_array()).flatten()
}

/// The resources that a container requests or limits.
fn resources_of(container: &Value) -> impl Iterator<Item = &String> {
    let kinds = ["requests", "limits"].into_iter();
    let kinds = kinds.filter_map(|kind| container.get("resources")?.get(kind)?.as_object());
    kinds.flat_map(Map::keys)
}

/// In the network of the host, the port of a container is also its port on the host.
fn drop_host_ports(containers: Option<&mut Value>) {
    let containers = containers.and_then(Value::as_array_mut).into_iter().flatten();
    let ports = containers.filter_map(|it| it.get_mut("ports")?.as_array_mut()).flatten();
    for port in ports.filter_map(Value::as_object_mut) {
        if port.get("hostPort") == port.get("containerPort") {
            port.remove("hostPort");
        }
    }
}

/// The pull policy of an image for which none is set: Always if its tag is `latest` or it has neither a tag nor a
/// digest, otherwise IfNotPresent. The API server takes an image that it cannot parse for one with another tag.
pub fn pull_policy(image: &str) -> &'static str {
    let (tagged, digest) =
        image.split_once('@').map_or((image, None), |(it, digest)| (it, Some(digest)));
    // A colon before the last slash belongs to the port of the registry.
    let path = tagged.rsplit('/').next().unwrap_or_default();
    let tag = path.split_once(':').map(|(_, tag)| tag);
    let is_latest = tag == Some("latest") || (tag.is_none() && digest.is_none());
    if is_latest && is_reference(tagged) { "Always" } else { "IfNotPresent" }
}

/// Whether an image without its digest can be the name of one: apart from the host of a registry and the tag, it
/// consists of lower case letters, digits and separators.
fn is_reference(image: &str) -> bool {
    let (first, rest) = image.split_once('/').unwrap_or(("", image));
    let is_host =
        first.contains(['.', ':']) || first == "localhost" || first.contains(char::is_uppercase);
    let path = if is_host { rest } else { image };
    let (path, _tag) = path.rsplit_once(':').unwrap_or((path, ""));
    let is_part = |part: &str| {
        let is_letter = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
        part.starts_with(is_letter)
            && part.ends_with(is_letter)
            && part.chars().all(|it| is_letter(it) || matches!(it, '.' | '_' | '-'))
    };
    path.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_each_line_names_a_field_and_its_values() {
        let lines: Vec<&str> = TABLE.lines().filter(|line| !line.starts_with('#')).collect();
        for line in &lines {
            let (path, values) = line.split_once(' ').expect("a path and values");
            let path = path.split_once('.').expect("a parent and a field");
            let values: Result<Vec<Value>, _> =
                serde_json::Deserializer::from_str(values).into_iter().collect();
            let values = values.expect("JSON");
            assert!(!values.is_empty() && ABSENCE[&path] == values, "{line}");
        }
        let sorted: BTreeSet<&&str> = lines.iter().collect();
        assert!(lines.iter().eq(sorted), "not sorted, or a line occurs twice");
    }

    #[test]
    fn the_pull_policy_of_an_image_depends_on_its_tag() {
        let digest = format!("@sha256:{}", "0".repeat(64));
        for (image, policy) in [
            ("game", "Always"),
            ("game:latest", "Always"),
            ("game:v1", "IfNotPresent"),
            ("registry:5000/studio/game", "Always"),
            ("registry:5000/studio/game:v1", "IfNotPresent"),
            ("Registry.example/studio/game", "Always"),
            (&format!("game{digest}"), "IfNotPresent"),
            (&format!("game:latest{digest}"), "Always"),
            ("Game", "IfNotPresent"),
            ("game:", "IfNotPresent"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }
}

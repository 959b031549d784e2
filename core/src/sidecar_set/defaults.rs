//! Defaults of fields in a SidecarSet's lists. The schema does not set them.

use serde_json::{Value, json};

use crate::api::PodInjectPolicy;

/// A SidecarSet with its defaults, as the webhook returns it. Parts that do not match the schema are not changed.
pub fn with_defaults(set: &Value) -> Value {
    let mut set = set.clone();
    for (list, place) in [
        ("initContainers", PodInjectPolicy::AfterAppContainer),
        ("containers", PodInjectPolicy::BeforeAppContainer),
    ] {
        let path = format!("/spec/{list}");
        let containers = set.pointer_mut(&path).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            *container = completed(container, place);
        }
    }
    set
}

/// A container with its defaults.
pub(super) fn completed(container: &Value, place: PodInjectPolicy) -> Value {
    let mut container = container.clone();
    let Some(fields) = container.as_object_mut() else {
        return container;
    };
    for (field, default) in [
        ("podInjectPolicy", json!(place)),
        ("shareVolumePolicy", json!({"type": "disabled"})),
        ("upgradeStrategy", json!({"upgradeType": "ColdUpgrade"})),
    ] {
        match (fields.get_mut(field), default) {
            (None | Some(Value::Null), default) => {
                fields.insert(field.to_owned(), default);
            }
            (Some(Value::Object(given)), Value::Object(defaults)) => {
                for (name, default) in defaults {
                    given.entry(name).or_insert(default);
                }
            }
            _ => {}
        }
    }
    container
}

//! The content of ControllerRevisions: the template that one records, and whether two templates mean the same.

mod defaults;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::api::JsonText;

pub use defaults::pull_policy;

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

/// The canonical form of a template, which is the same for all templates that give the same pods. What the API server
/// would set itself is left out ([`defaults`]), so a template may have been stored with any of its defaults, or without.
///
/// It may only ever become coarser: if a later version told two templates apart that this one takes for the same, its
/// first plan would start a rollout.
pub fn canonical(template: &Value) -> Value {
    let mut template = defaults::without_defaults("", "template", template)
        .unwrap_or_else(|| Value::Object(Map::new()));
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        // The API server adds this field to embedded metadata; it has no effect on pods.
        metadata.remove("creationTimestamp");
        if metadata.is_empty() {
            template.as_object_mut().map(|template| template.remove("metadata"));
        }
    }
    template
}

/// The canonical form of one volume of a template.
pub fn canonical_volume(volume: &Value) -> Value {
    defaults::without_defaults("spec", "volumes", &json!([volume])).unwrap_or_default()
}

//! What differs between the pod templates of two revisions.

use serde_json::{Value, json};

use crate::change::undo::revision_numbered;
use crate::error::Error;
use crate::scene::{Scene, template_of};
use crate::view::cut;

/// The maximum number of differences that are shown.
const MAX_DIFFERENCES: usize = 200;
/// The maximum length of a value.
const MAX_VALUE: usize = 300;

/// The fields that differ, as path, value before and value after.
pub fn differences(scene: &Scene, from: i64, to: i64) -> Result<Value, Error> {
    let before = template_of(revision_numbered(scene, from)?).unwrap_or_default();
    let after = template_of(revision_numbered(scene, to)?).unwrap_or_default();
    let mut found = Vec::new();
    compare(&before, &after, "", &mut found);
    let total = found.len();
    found.truncate(MAX_DIFFERENCES);
    Ok(json!({"from": from, "to": to, "shown": found, "total": total}))
}

/// Lists of objects with names, such as containers, are compared by name.
fn compare(before: &Value, after: &Value, path: &str, found: &mut Vec<Value>) {
    if before == after {
        return;
    }
    if let (Some(before), Some(after)) = (children(before), children(after)) {
        let added = after.iter().filter(|(key, _)| before.iter().all(|(other, _)| other != key));
        for (key, _) in before.iter().chain(added) {
            let value_in = |list: &[(String, &Value)]| {
                let found = list.iter().find(|(other, _)| other == key);
                found.map_or(Value::Null, |(_, value)| (*value).clone())
            };
            compare(&value_in(&before), &value_in(&after), &format!("{path}{key}"), found);
        }
        return;
    }
    let text = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(cut(text, MAX_VALUE)),
        value => Some(cut(&value.to_string(), MAX_VALUE)),
    };
    let path = path.trim_start_matches('.');
    found.push(json!({"path": path, "before": text(before), "after": text(after)}));
}

/// The fields of an object, or the elements of a list that have names; None for other values.
fn children(value: &Value) -> Option<Vec<(String, &Value)>> {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (format!(".{key}"), value));
            Some(fields.collect())
        }
        Value::Array(elements) => {
            let named = elements.iter().map(|element| {
                let name = element.get("name")?.as_str()?;
                Some((format!("[{name}]"), element))
            });
            named.collect()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::paused_canary;

    #[test]
    fn fields_are_compared_by_the_names_of_containers() {
        let mut found = Vec::new();
        let before = json!({"spec": {"containers": [
            {"name": "a", "image": "a:1", "args": ["x"]}, {"name": "b", "image": "b:1"},
        ]}});
        let after = json!({"spec": {"containers": [
            {"name": "b", "image": "b:2"}, {"name": "a", "image": "a:1", "args": ["y"], "tty": true},
        ]}});
        compare(&before, &after, "", &mut found);
        assert_eq!(
            Value::from(found),
            json!([
                {"path": "spec.containers[a].args", "before": "[\"x\"]", "after": "[\"y\"]"},
                {"path": "spec.containers[a].tty", "before": null, "after": "true"},
                {"path": "spec.containers[b].image", "before": "b:1", "after": "b:2"},
            ])
        );
    }

    #[test]
    fn two_revisions_are_compared() {
        let shown = differences(&paused_canary(), 1, 2).expect("both exist");
        let image = json!({
            "path": "spec.containers[game].image", "before": "game:v1", "after": "game:v2",
        });
        let found = shown["shown"].as_array().is_some_and(|shown| shown.contains(&image));
        assert!(found, "{shown:#}");
        assert!(differences(&paused_canary(), 1, 9).is_err());
    }
}

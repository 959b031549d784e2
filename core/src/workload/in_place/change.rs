//! What changes between two templates, and whether the change can be made in a running pod.
//!
//! Images, labels and annotations of a running pod can be changed, and so can cpu and memory if no request or limit is
//! removed. Whether the pod's QoS class stays the same depends on the pod: see `qos`.

use serde_json::{Map, Value};

use crate::api::names::INDEX_ID;
use crate::observed::SidecarMark;
use crate::revision::{canonical, pull_policy};

/// A change that can be made in place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InPlaceChange {
    /// Containers with a new image: (name, image).
    pub images: Vec<(String, String)>,
    /// Labels to set, or (None) to remove.
    pub labels: Vec<(String, Option<String>)>,
    /// Annotations to set, or (None) to remove.
    pub annotations: Vec<(String, Option<String>)>,
    /// Containers with new resources: (name, resources).
    pub resources: Vec<(String, Value)>,
    /// Path of the first changed image that belongs to a native sidecar. Not every kubelet restarts a native sidecar
    /// when its image changes.
    pub native_sidecar_path: Option<String>,
    /// The SidecarSets whose containers this change updates. The new images of these containers are among `images`.
    pub marks: Vec<MarkChange>,
}

/// An update of a SidecarSet's containers. In the pod of a workload, the token in the pod's mark permits it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MarkChange {
    /// The set's name.
    pub set: String,
    /// The pod's mark as it was observed. It is a precondition of the change.
    pub mark: SidecarMark,
    /// The revision that the containers are updated to.
    pub revision: String,
}

/// Why a change cannot be made in place.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("spec.template{}{path} {why}", if path.is_empty() { "" } else { "." })]
pub(crate) struct NotInPlace {
    /// The field, below spec.template.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
}

/// What changes from one template to another.
pub(crate) fn change_between(from: &Value, to: &Value) -> Result<InPlaceChange, NotInPlace> {
    let (mut old, mut new) = (canonical(from), canonical(to));
    drop_same_pull_policies(&mut old, &mut new);
    if let Some(path) = first_difference(&fixed_part(&old), &fixed_part(&new), "") {
        let why = "cannot be changed in a running pod".to_owned();
        return Err(NotInPlace { path, why });
    }
    let mut annotations =
        map_change(old.pointer("/metadata/annotations"), new.pointer("/metadata/annotations"));
    // A pod keeps the index that it was created with.
    annotations.retain(|(key, _)| key != INDEX_ID);
    let mut change = InPlaceChange {
        annotations,
        labels: map_change(old.pointer("/metadata/labels"), new.pointer("/metadata/labels")),
        ..InPlaceChange::default()
    };
    for list in LISTS {
        for (index, container) in items(&new, list).enumerate() {
            let Some(old_container) = items(&old, list).nth(index) else {
                continue;
            };
            let name = text(container, "name");
            if text(old_container, "image") != text(container, "image") {
                if list == "initContainers" {
                    let path = || format!("spec.initContainers[{index}].image");
                    change.native_sidecar_path.get_or_insert_with(path);
                }
                change.images.push((name.to_owned(), text(container, "image").to_owned()));
            }
            if list == "containers" && old_container.get("resources") != container.get("resources")
            {
                check_resources(
                    old_container,
                    container,
                    &format!("spec.containers[{index}].resources"),
                )?;
                let wanted = items(to, list).nth(index).and_then(|it| it.get("resources"));
                let wanted = with_default_requests(wanted.cloned().unwrap_or_default());
                change.resources.push((name.to_owned(), wanted));
            }
        }
    }
    Ok(change)
}

const LISTS: [&str; 2] = ["containers", "initContainers"];

fn items<'a>(template: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    template
        .get("spec")
        .and_then(|spec| spec.get(list))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Removes the pull policies that are the same in both templates, although only one of them has to write it out: the
/// images may have different defaults.
fn drop_same_pull_policies(old: &mut Value, new: &mut Value) {
    const POLICY: &str = "imagePullPolicy";
    let policy = |container: &Value| {
        let written = container.get(POLICY).and_then(Value::as_str);
        written.unwrap_or_else(|| pull_policy(text(container, "image"))).to_owned()
    };
    for list in LISTS {
        let [old, new] = [&mut *old, &mut *new].map(|template| {
            let containers = template.get_mut("spec").and_then(|spec| spec.get_mut(list));
            containers.and_then(Value::as_array_mut).into_iter().flatten()
        });
        for (old, new) in old.zip(new).filter(|(old, new)| policy(old) == policy(new)) {
            for container in [old, new].into_iter().filter_map(Value::as_object_mut) {
                container.remove(POLICY);
            }
        }
    }
}

/// The part of a template that cannot be changed in a running pod.
fn fixed_part(template: &Value) -> Value {
    let mut fixed = template.clone();
    if let Some(metadata) = fixed.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("labels");
        metadata.remove("annotations");
    }
    if fixed.get("metadata").and_then(Value::as_object).is_some_and(Map::is_empty) {
        fixed.as_object_mut().map(|fixed| fixed.remove("metadata"));
    }
    for list in LISTS {
        let containers = fixed.get_mut("spec").and_then(|spec| spec.get_mut(list));
        for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
            let keeps_running = text(container, "restartPolicy") == "Always";
            let Some(container) = container.as_object_mut() else {
                continue;
            };
            if list == "containers" {
                container.remove("resources");
            }
            if list == "containers" || keeps_running {
                container.remove("image");
            }
        }
    }
    fixed
}

/// Path of the first difference, in kubectl's notation: `spec.containers[0].env`.
fn first_difference(a: &Value, b: &Value, path: &str) -> Option<String> {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.into_iter().find_map(|key| {
                let deeper = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => first_difference(a, b, &deeper),
                    _ => Some(deeper),
                }
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .find_map(|(index, (a, b))| first_difference(a, b, &format!("{path}[{index}]"))),
        (a, b) => (a != b).then(|| path.to_owned()),
    }
}

fn map_change(from: Option<&Value>, to: Option<&Value>) -> Vec<(String, Option<String>)> {
    let empty = Map::new();
    let from = from.and_then(Value::as_object).unwrap_or(&empty);
    let to = to.and_then(Value::as_object).unwrap_or(&empty);
    let set = to
        .iter()
        .filter(|(key, value)| from.get(*key) != Some(value))
        .map(|(key, value)| (key.clone(), Some(value.as_str().unwrap_or_default().to_owned())));
    let removed = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), None));
    set.chain(removed).collect()
}

/// The resources of a new pod: at its creation, the API server adds a request where there is only a limit. A resize has
/// to set these requests, too, because the API server does not change them with the limits.
fn with_default_requests(mut resources: Value) -> Value {
    let limits = resources.get("limits").and_then(Value::as_object).cloned();
    for (name, limit) in limits.into_iter().flatten() {
        let request = &mut resources["requests"][&name];
        if request.is_null() {
            *request = limit;
        }
    }
    resources
}

fn check_resources(from: &Value, to: &Value, path: &str) -> Result<(), NotInPlace> {
    let resources = |container: &Value| {
        with_default_requests(container.get("resources").cloned().unwrap_or_default())
    };
    let (old, new) = (resources(from), resources(to));
    let empty = Map::new();
    for kind in ["limits", "requests"] {
        let [old, new] =
            [&old, &new].map(|it| it.get(kind).and_then(Value::as_object).unwrap_or(&empty));
        let keys = old.keys().chain(new.keys());
        for key in keys.filter(|key| old.get(*key) != new.get(*key)) {
            let refuse = |why: &str| {
                Err(NotInPlace { path: format!("{path}.{kind}.{key}"), why: why.to_owned() })
            };
            if !new.contains_key(key) {
                return refuse("cannot be removed from a running pod");
            }
            if key != "cpu" && key != "memory" {
                return refuse("cannot be resized; only cpu and memory can");
            }
        }
    }
    let claims =
        |container: &Value| container.get("resources").and_then(|it| it.get("claims")).cloned();
    if claims(from) != claims(to) {
        let why = "cannot be changed in a running pod".to_owned();
        return Err(NotInPlace { path: format!("{path}.claims"), why });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(resources: Value) -> Value {
        json!({
            "metadata": {"labels": {"app": "game", "old": "1"}, "annotations": {"note": "a"}},
            "spec": {
                "containers": [
                    {"name": "game", "image": "game:v1", "resources": resources},
                    {"name": "log", "image": "log:v1", "env": [{"name": "A", "value": "1"}]},
                ],
                "initContainers": [
                    {"name": "setup", "image": "setup:v1"},
                    {"name": "proxy", "image": "proxy:v1", "restartPolicy": "Always"},
                ],
            },
        })
    }

    fn changed(edit: impl FnOnce(&mut Value)) -> Result<InPlaceChange, String> {
        let from = template(json!({"requests": {"cpu": "1"}}));
        let mut to = from.clone();
        edit(&mut to);
        change_between(&from, &to).map_err(|error| error.to_string())
    }

    #[test]
    fn a_resize_sets_the_requests_that_the_api_server_takes_from_limits() {
        let wanted = |from: Value, to: Value| {
            let change = change_between(&template(from), &template(to)).expect("in place");
            change.resources[0].1.clone()
        };
        let limits = |cpu: &str| json!({"limits": {"cpu": cpu, "memory": "1Gi"}});
        let both = json!({"cpu": "2", "memory": "1Gi"});
        let resized = wanted(limits("1"), limits("2"));
        assert_eq!(resized, json!({"limits": both, "requests": both}));
        let resized = wanted(
            json!({"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}}),
            json!({"limits": {"memory": "2Gi"}, "requests": {"cpu": "1"}}),
        );
        let requests = json!({"cpu": "1", "memory": "2Gi"});
        assert_eq!(resized, json!({"limits": {"memory": "2Gi"}, "requests": requests}));
        let set = json!({"limits": {"cpu": "4"}, "requests": {"cpu": "2"}});
        assert_eq!(
            wanted(json!({"limits": {"cpu": "4"}, "requests": {"cpu": "1"}}), set.clone()),
            set
        );
    }

    #[test]
    fn images_labels_and_annotations_change_in_place() {
        let change = changed(|to| {
            to["spec"]["containers"][0]["image"] = json!("game:v2");
            to["spec"]["initContainers"][1]["image"] = json!("proxy:v2");
            to["metadata"]["labels"] = json!({"app": "game", "new": "2"});
            to["metadata"]["annotations"]["note"] = json!("b");
        })
        .expect("in place");
        assert_eq!(
            change.images,
            [
                ("game".to_owned(), "game:v2".to_owned()),
                ("proxy".to_owned(), "proxy:v2".to_owned())
            ]
        );
        assert_eq!(
            change.labels,
            [("new".to_owned(), Some("2".to_owned())), ("old".to_owned(), None)]
        );
        assert_eq!(change.annotations, [("note".to_owned(), Some("b".to_owned()))]);
    }

    #[test]
    fn resources_are_changed_in_place_to_what_the_user_wrote() {
        let change = changed(|to| {
            to["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1500m"}});
        })
        .expect("in place");
        assert_eq!(change.resources, [("game".to_owned(), json!({"requests": {"cpu": "1500m"}}))]);
    }

    #[test]
    fn the_error_names_the_field_that_cannot_change_in_place() {
        type Edit = fn(&mut Value);
        let cases: [(Edit, &str); 6] = [
            (
                |to| to["spec"]["containers"][1]["env"][0]["value"] = json!("2"),
                "spec.template.spec.containers[1].env[0].value cannot be changed in a running pod",
            ),
            (
                |to| to["spec"]["initContainers"][0]["image"] = json!("setup:v2"),
                "spec.template.spec.initContainers[0].image cannot be changed in a running pod",
            ),
            (
                |to| to["spec"]["hostNetwork"] = json!(true),
                "spec.template.spec.hostNetwork cannot be changed in a running pod",
            ),
            (
                |to| to["spec"]["containers"][0]["resources"] = json!({}),
                "spec.template.spec.containers[0].resources.requests.cpu cannot be removed from a running pod",
            ),
            (
                |to| {
                    to["spec"]["containers"][0]["resources"]["requests"]["hugepages-2Mi"] =
                        json!("2Mi");
                },
                "spec.template.spec.containers[0].resources.requests.hugepages-2Mi cannot be resized; only cpu and memory can",
            ),
            (
                |to| {
                    to["spec"]["containers"].as_array_mut().expect("list").pop();
                },
                "spec.template.spec.containers cannot be changed in a running pod",
            ),
        ];
        for (edit, message) in cases {
            assert_eq!(changed(edit), Err(message.to_owned()));
        }
    }

    #[test]
    fn a_pull_policy_counts_only_if_it_differs_from_what_the_pod_has() {
        let changed = |old: (&str, Option<&str>), new: (&str, Option<&str>)| {
            let [from, to] = [old, new].map(|(image, policy)| {
                let policy = policy.map_or(Value::Null, |policy| json!(policy));
                json!({"spec": {"containers": [{"image": image, "imagePullPolicy": policy}]}})
            });
            change_between(&from, &to).map_err(|error| error.path)
        };
        let path = Err("spec.containers[0].imagePullPolicy".to_owned());
        let (always, cached) = (Some("Always"), Some("IfNotPresent"));
        for (old, new, expected) in [
            (("game:v1", None), ("game:v1", cached), true),
            (("game:v1", None), ("game:v2", cached), true),
            (("game:v1", None), ("game:latest", None), true),
            (("game:v1", always), ("game:latest", always), true),
            (("game:v1", always), ("game:latest", None), true),
            (("game:latest", None), ("game:v1", always), true),
            // As without a policy: Always is the default of this image.
            (("game:v1", None), ("game:latest", always), true),
            (("game:v1", None), ("game:v1", always), false),
            (("game:v1", always), ("game:v2", None), false),
        ] {
            match changed(old, new) {
                Ok(_) => assert!(expected, "{old:?} {new:?}"),
                refused => {
                    assert_eq!((refused, expected), (path.clone(), false), "{old:?} {new:?}")
                }
            }
        }
    }

    #[test]
    fn a_request_that_equals_its_limit_can_be_left_out() {
        let resources =
            |requests: Value| template(json!({"limits": {"cpu": "1"}, "requests": requests}));
        let change = |from: Value, to: Value| {
            change_between(&resources(from), &resources(to)).expect("in place").resources
        };
        assert_eq!(change(json!({}), json!({"cpu": 1})), []);
        let reverted = change(json!({"cpu": "500m"}), json!({}));
        assert_eq!(reverted[0].1, json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}));
    }
}

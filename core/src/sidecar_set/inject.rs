//! Injects SidecarSets into a new pod.
//!
//! Sets are injected in the order of their names, and the containers of a set in the order in which it lists them. A
//! set is injected completely or not at all. Injecting twice is harmless: a set whose containers are all present is
//! skipped.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::containers::{Sidecar, is_injected, list, name};
use super::set::{PodAnnotation, Sidecars, selected};
use super::volumes::is_same_volume;
use crate::api::PodInjectPolicy;
use crate::api::names::{DEFAULT_CONTAINER, SIDECARS_PREFIX};
use crate::observed::{SidecarMark, SidecarMarks, mark_key, sidecar_marks};

/// Annotation of mirror pods: a kubelet runs them from a file, and only reports them to the API server.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The lists of containers in a pod.
const LISTS: [&str; 2] = ["initContainers", "containers"];

/// Injects the sets that select the pod. `sets` are those that reach its namespace, sorted by name. An object that is
/// not a valid pod is not changed.
pub fn inject(pod: &mut Value, sets: &[Arc<Sidecars>]) {
    let labels = pod.pointer("/metadata/labels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    let labels = labels.collect();
    let mut annotations = match pod.pointer("/metadata/annotations") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(annotations)) => annotations.clone(),
        Some(_) => return,
    };
    if annotations.contains_key(MIRROR) || !pod["spec"].is_object() || !pod["metadata"].is_object()
    {
        return;
    }
    let old_marks = marks_of(&annotations);
    let count = annotations.len();
    // All existing annotations about sidecars are removed, regardless of their author: the marks are set again.
    annotations.retain(|key, _| !key.starts_with(SIDECARS_PREFIX));
    let had_marks = count != annotations.len();
    let mut marks = Vec::new();
    for set in selected(sets, &labels) {
        let mark = inject_set(&mut pod["spec"], set, old_marks.get(&set.name));
        if mark.is_injected() {
            annotate(&mut annotations, &set.annotations);
        }
        marks.push((&set.name, mark));
    }
    if marks.is_empty() && !had_marks {
        return;
    }
    for (set, mark) in marks {
        annotations.insert(mark_key(set), json!(mark.text()));
    }
    if let Some(game) = hidden_container(&pod["spec"]) {
        let default = annotations.entry(DEFAULT_CONTAINER);
        default.or_insert_with(|| json!(game));
    }
    pod["metadata"]["annotations"] = Value::Object(annotations);
}

/// Adds the annotations of a set. What another set or the author of the pod has written is kept, unless the set
/// overwrites it.
fn annotate(annotations: &mut Map<String, Value>, added: &[PodAnnotation]) {
    for PodAnnotation { key, value, overwrites } in added {
        if *overwrites || !annotations.contains_key(key) {
            annotations.insert(key.clone(), json!(value));
        }
    }
}

/// The first of the pod's own containers, if an injected one is placed before it and would be kubectl's default.
fn hidden_container(spec: &Value) -> Option<&str> {
    let containers = list(spec.get("containers"));
    let own = containers.iter().position(|it| !is_injected(it))?;
    (own > 0).then(|| name(&containers[own]))
}

fn marks_of(annotations: &Map<String, Value>) -> SidecarMarks {
    let texts = annotations.iter();
    let texts = texts.filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned())));
    sidecar_marks(&texts.collect())
}

/// Injects one set into a pod's spec, unless it conflicts with the pod. Returns the set's mark.
fn inject_set(spec: &mut Value, set: &Sidecars, old_mark: Option<&SidecarMark>) -> SidecarMark {
    let sidecars = set.init_containers.iter().chain(&set.containers);
    let containers: Vec<String> = sidecars.map(|it| it.name.clone()).collect();
    let mark = SidecarMark {
        revision: set.revision.clone(),
        shape: set.shape.clone(),
        ..SidecarMark::default()
    };
    // The pod may already have the containers: the API server calls the webhook again if another webhook has changed
    // the pod, and users copy and restore pods. The mark alone proves nothing, because any client can write it.
    let matching = old_mark.filter(|mark| mark.containers == containers);
    if let Some(old_mark) = matching.filter(|_| has_containers(spec, set)) {
        return mark_of_existing(old_mark, set);
    }
    match with_set(spec, set) {
        Ok(injected) => {
            *spec = injected;
            SidecarMark { containers, ..mark }
        }
        Err(clash) => SidecarMark { left_out: Some(clash), ..mark },
    }
}

/// The mark of a pod whose manifest already contains the containers of the set. The old mark names the revision of
/// these containers: a restored pod has the containers from the time of the backup. If the mark names no revision, the
/// containers are updated as soon as possible.
fn mark_of_existing(old: &SidecarMark, set: &Sidecars) -> SidecarMark {
    let shape = match old.shape.is_empty() {
        true => &set.shape,
        false => &old.shape,
    };
    SidecarMark {
        revision: old.revision.clone(),
        shape: shape.clone(),
        containers: old.containers.clone(),
        ..SidecarMark::default()
    }
}

/// Whether the pod already has all containers of the set.
fn has_containers(spec: &Value, set: &Sidecars) -> bool {
    let has = |field: &str, sidecars: &[Sidecar]| {
        let containers = list(spec.get(field));
        let mut sidecars = sidecars.iter();
        sidecars.all(|sidecar| {
            let mut containers = containers.iter();
            containers.any(|it| name(it) == sidecar.name && is_injected(it))
        })
    };
    has("initContainers", &set.init_containers) && has("containers", &set.containers)
}

/// The spec with the set's containers.
///
/// # Errors
/// If they cannot be injected, with the reason.
fn with_set(spec: &Value, set: &Sidecars) -> Result<Value, String> {
    let mut spec = spec.clone();
    let all = LISTS.into_iter().flat_map(|field| list(spec.get(field)));
    let own: Vec<Value> = all.filter(|it| !is_injected(it)).cloned().collect();
    add_volumes(&mut spec, &set.volumes)?;
    for (field, sidecars) in
        [("initContainers", &set.init_containers), ("containers", &set.containers)]
    {
        for sidecar in sidecars {
            let existing = LISTS.into_iter().flat_map(|field| list(spec.get(field)));
            if existing.into_iter().any(|it| name(it) == sidecar.name) {
                return Err(format!(
                    "the pod has another container {:?}; rename one of the two",
                    sidecar.name
                ));
            }
            let container = sidecar.for_pod(&own)?;
            let containers = items(&mut spec, field);
            let place = match sidecar.place {
                PodInjectPolicy::AfterAppContainer => containers.len(),
                // After the containers of earlier sets, so that containers are in the order of their sets.
                PodInjectPolicy::BeforeAppContainer => {
                    let is_own = |it: &Value| !is_injected(it);
                    containers.iter().position(is_own).unwrap_or(containers.len())
                }
            };
            containers.insert(place, container);
        }
    }
    for secret in &set.pull_secrets {
        let secrets = items(&mut spec, "imagePullSecrets");
        if !secrets.contains(secret) {
            secrets.push(secret.clone());
        }
    }
    Ok(spec)
}

fn add_volumes(spec: &mut Value, added: &[Value]) -> Result<(), String> {
    for volume in added {
        let volumes = items(spec, "volumes");
        match volumes.iter().find(|it| name(it) == name(volume)) {
            None => volumes.push(volume.clone()),
            Some(same) if is_same_volume(same, volume) => {}
            Some(_) => {
                return Err(format!(
                    "the pod has another volume {:?}; rename one of the two",
                    name(volume)
                ));
            }
        }
    }
    Ok(())
}

/// The items of a list in a spec; if there is no list, an empty one is added.
fn items<'v>(spec: &'v mut Value, field: &str) -> &'v mut Vec<Value> {
    let value = &mut spec[field];
    if !value.is_array() {
        *value = json!([]);
    }
    match value {
        Value::Array(items) => items,
        _ => unreachable!("it was made an array"),
    }
}

//! In-place updates that the operator of bk-bcs has started but not completed, as recorded in its annotations.
//!
//! That operator sets the revision label first, and the images after the grace period, if there is one. Until then,
//! the annotation `inplace-update-grace` holds the images. The annotation `inplace-update-state` records what ran
//! before the update, and remains when the update is complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use gamekeeper_core::api::{AnnotationLimits, names};
use gamekeeper_core::observed::{Container, ContainerChange, ContainerStatus, Gate, InPlaceRecord};
use jiff::Timestamp;
use serde::Deserialize;

/// The changes to make when the grace period ends.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Grace {
    revision: String,
    #[serde(default)]
    container_images: BTreeMap<String, String>,
}

/// The state of the pod before an update.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    revision: String,
    update_timestamp: Timestamp,
    #[serde(default)]
    last_container_statuses: BTreeMap<String, LastStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LastStatus {
    #[serde(rename = "imageID")]
    image_id: String,
}

type Annotations = BTreeMap<String, String>;

/// The images, by container, that will be set after a grace period. None if no images are postponed, or if they belong
/// to a revision other than the one in the pod's label.
pub(super) fn postponed(
    annotations: &Annotations,
    revision: &str,
) -> Option<Arc<BTreeMap<String, String>>> {
    let text = annotations.get(names::BCS_IN_PLACE_GRACE)?;
    let grace: Grace = AnnotationLimits::PER_CONTAINER.read(text)?;
    (grace.revision == revision).then(|| Arc::new(grace.container_images))
}

/// Our own record of an update whose images have already been set, so that the update is completed
/// like one of ours.
pub(super) fn record(
    annotations: &Annotations,
    revision: &str,
    gate: Gate,
    containers: &[Container],
) -> Option<Arc<InPlaceRecord>> {
    let text = annotations.get(names::BCS_IN_PLACE_STATE)?;
    let state: State = AnnotationLimits::PER_CONTAINER.read(text)?;
    let is_postponed = annotations.contains_key(names::BCS_IN_PLACE_GRACE);
    if state.revision != revision || is_postponed {
        return None;
    }
    let changes = containers.iter().filter_map(|container| {
        let last = state.last_container_statuses.get(&container.name)?;
        let change = ContainerChange {
            from_container_id: old_container_id(container, last, state.update_timestamp),
            ..ContainerChange::default()
        };
        Some((container.name.clone(), Box::new(change)))
    });
    let changes: BTreeMap<_, _> = changes.collect();
    let gate_closed_at = match gate {
        // bk-bcs closes the gate first, so an older state belongs to the previous update.
        Gate::Closed(since) if state.update_timestamp >= since => Some(since),
        Gate::None if changes.values().any(|it| !it.from_container_id.is_empty()) => None,
        _ => return None,
    };
    Some(Arc::new(InPlaceRecord {
        revision: state.revision,
        gate_closed_at,
        patched_at: state.update_timestamp,
        containers: changes,
        ..InPlaceRecord::default()
    }))
}

/// The containerID of a container if it has not been restarted since the update; otherwise empty.
fn old_container_id(container: &Container, last: &LastStatus, updated_at: Timestamp) -> String {
    let status = container.status.as_ref();
    let is_old = |status: &&ContainerStatus| {
        status.image_id == last.image_id && status.started_at.is_none_or(|at| at <= updated_at)
    };
    let old = status.filter(is_old).map(|it| it.container_id.clone());
    old.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn container(image_id: &str, started_at: &str) -> Container {
        Container {
            name: "game".to_owned(),
            index: 0,
            init: false,
            image: "game:v2".to_owned(),
            resources: Arc::from("{}"),
            status: Some(ContainerStatus {
                image: "game:v1".to_owned(),
                image_id: image_id.to_owned(),
                container_id: "c".to_owned(),
                restart_count: 0,
                ready: true,
                running: true,
                started_at: Some(started_at.parse().expect("a time")),
                resources_applied: true,
            }),
        }
    }

    fn annotated(pairs: &[(&str, Value)]) -> Annotations {
        let pairs = pairs.iter();
        pairs.map(|(key, value)| ((*key).to_owned(), value.to_string())).collect()
    }

    fn state() -> (&'static str, Value) {
        let last = json!({"game": {"imageID": "id-1"}});
        let state = json!({"revision": "game-2", "updateTimestamp": "2026-01-01T00:01:00Z",
            "lastContainerStatuses": last});
        (names::BCS_IN_PLACE_STATE, state)
    }

    fn grace() -> (&'static str, Value) {
        let images = json!({"game": "game:v2"});
        let grace = json!({"revision": "game-2", "containerImages": images, "graceSeconds": 30});
        (names::BCS_IN_PLACE_GRACE, grace)
    }

    const BEFORE: &str = "2026-01-01T00:00:00Z";
    const AFTER: &str = "2026-01-01T00:01:05Z";

    fn closed(at: &str) -> Gate {
        Gate::Closed(at.parse().expect("a time"))
    }

    #[test]
    fn postponed_images_are_those_of_the_revision_in_the_label() {
        let annotations = annotated(&[state(), grace()]);
        let images = postponed(&annotations, "game-2").expect("images");
        assert_eq!(images.get("game").map(String::as_str), Some("game:v2"));
        assert_eq!(postponed(&annotations, "game-3"), None);
        assert_eq!(postponed(&annotated(&[state()]), "game-2"), None);
        let gate = closed("2026-01-01T00:01:00Z");
        assert_eq!(record(&annotations, "game-2", gate, &[]), None);
    }

    #[test]
    fn an_update_with_a_closed_gate_has_a_record() {
        let annotations = annotated(&[state()]);
        let gate = closed("2026-01-01T00:00:59Z");
        for (container, from_id) in [
            (container("id-1", BEFORE), "c"),
            (container("id-1", AFTER), ""),
            (container("id-2", AFTER), ""),
        ] {
            let record = record(&annotations, "game-2", gate, &[container]).expect("a record");
            assert_eq!(record.containers["game"].from_container_id, from_id);
            assert_eq!(Gate::Closed(record.gate_closed_at.expect("a time")), gate);
        }
    }

    #[test]
    fn a_completed_update_has_no_record() {
        let annotations = annotated(&[state()]);
        let (old, new) = (container("id-1", BEFORE), container("id-2", AFTER));
        for (revision, gate, container) in [
            ("game-2", Gate::Open, &old),
            ("game-3", closed("2026-01-01T00:00:59Z"), &old),
            // Closed again for the next update.
            ("game-2", closed("2026-01-01T00:02:00Z"), &old),
            ("game-2", Gate::None, &new),
        ] {
            let containers = std::slice::from_ref(container);
            assert_eq!(record(&annotations, revision, gate, containers), None);
        }
        let containers = std::slice::from_ref(&old);
        assert!(record(&annotations, "game-2", Gate::None, containers).is_some());
    }
}

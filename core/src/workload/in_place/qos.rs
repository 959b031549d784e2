//! Whether new resources would change a pod's QoS class, which the API server refuses.
//!
//! The pod decides, not its template: sidecars, a LimitRange and policies have their part in its class.

use serde_json::{Map, Value};

use super::NotInPlace;
use crate::observed::{Container, Pod, Qos, QosClass, is_guaranteed};

/// Why a pod cannot get these resources, by container, because its class would change; None if it would not.
pub(crate) fn why_class_would_change(
    pod: &Pod,
    resources: &[(String, Value)],
) -> Option<NotInPlace> {
    // Most changes are none of resources, and each plan asks for each pod.
    let Qos { class, init_guaranteed } = pod.qos.filter(|_| !resources.is_empty())?;
    let after: Vec<Value> = pod.containers.iter().map(|it| resized(it, resources)).collect();
    let becomes = if init_guaranteed && after.iter().all(is_guaranteed) {
        QosClass::Guaranteed
    } else if class == QosClass::BestEffort && after.iter().all(is_empty) {
        QosClass::BestEffort
    } else {
        QosClass::Burstable
    };
    (becomes != class).then(|| NotInPlace {
        path: "spec.containers[].resources".to_owned(),
        why: format!(
            "would change the QoS class of pod {} from {class:?} to {becomes:?}",
            pod.name
        ),
    })
}

/// The resources of a container after a resize, which keeps what it does not name.
fn resized(container: &Container, resources: &[(String, Value)]) -> Value {
    let mut all: Value = serde_json::from_str(&container.resources).unwrap_or_default();
    let wanted = resources.iter().find(|(name, _)| *name == container.name);
    for kind in ["limits", "requests"] {
        let changed = wanted.and_then(|(_, it)| it.get(kind)?.as_object());
        for (name, quantity) in changed.into_iter().flatten() {
            all[kind][name] = quantity.clone();
        }
    }
    all
}

fn is_empty(resources: &Value) -> bool {
    let quantities = |kind: &str| resources.get(kind).and_then(Value::as_object);
    ["limits", "requests"].into_iter().all(|kind| quantities(kind).is_none_or(Map::is_empty))
}

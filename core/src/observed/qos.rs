//! Quality-of-service classes of pods, which a resize must not change.

use serde_json::Value;

use super::quantity;

/// A quality-of-service class of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QosClass {
    /// All containers have limits for cpu and memory that equal their requests.
    Guaranteed,
    /// Some container has a request or a limit.
    Burstable,
    /// No container has any.
    BestEffort,
}

/// What decides about the class of a pod, besides the containers that are observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qos {
    /// The pod's class.
    pub class: QosClass,
    /// Whether the init containers that end allow the class Guaranteed.
    pub init_guaranteed: bool,
}

impl QosClass {
    /// The class with this name.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "Guaranteed" => Some(Self::Guaranteed),
            "Burstable" => Some(Self::Burstable),
            "BestEffort" => Some(Self::BestEffort),
            _ => None,
        }
    }
}

/// Whether a container with these resources allows the class Guaranteed: its limits for cpu and memory equal its
/// requests, which default to the limits.
pub fn is_guaranteed(resources: &Value) -> bool {
    ["cpu", "memory"].into_iter().all(|name| {
        let limit = &resources["limits"][name];
        let request = match &resources["requests"][name] {
            Value::Null => limit,
            request => request,
        };
        !limit.is_null() && quantity::canonical(limit) == quantity::canonical(request)
    })
}

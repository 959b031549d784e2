//! Workloads as untyped objects, so fields that this version does not know are printed, too.

use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::api::{GameDeployment, GameStatefulSet};
use gamekeeper_core::causes::with_causes;
use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;

use crate::error::Error;
use crate::game::Game;
use crate::kind::full_name;

pub fn resource(kind: WorkloadKind) -> ApiResource {
    match kind {
        WorkloadKind::GameDeployment => ApiResource::erase::<GameDeployment>(&()),
        WorkloadKind::GameStatefulSet => ApiResource::erase::<GameStatefulSet>(&()),
    }
}

/// Reads a workload, without its managed fields, which kubectl does not show either.
pub fn read(kind: WorkloadKind, object: DynamicObject) -> Result<Game, Error> {
    let name = full_name(kind, object.metadata.name.as_deref().unwrap_or_default());
    let unexpected = |error: &dyn std::error::Error| {
        Error::Unexpected(format!("{name}: {}", with_causes(error)))
    };
    let object = plain(kind.as_str(), object).map_err(|error| unexpected(&error))?;
    Game::read(kind, object).map_err(|error| unexpected(&error))
}

/// An object as kubectl prints it.
pub fn plain(kind: &str, object: DynamicObject) -> serde_json::Result<Value> {
    let mut object = serde_json::to_value(object)?;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object["apiVersion"] = Value::from(gamekeeper_core::api::API_VERSION);
    object["kind"] = Value::from(kind);
    Ok(object)
}

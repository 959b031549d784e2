//! The controller of an object: one of our workloads, another controller, or none.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use gamekeeper_core::api::GROUP;
use gamekeeper_core::api::names::controller_of;

/// The controller of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Control {
    /// One of our workloads, by uid.
    Ours(String),
    /// Another controller.
    Foreign,
    /// No controller.
    #[default]
    None,
}

impl Control {
    fn from_owner(api_version: &str, kind: &str, uid: &str) -> Self {
        let is_workload = matches!(kind, "GameDeployment" | "GameStatefulSet");
        match api_version.split('/').next() == Some(GROUP) && is_workload {
            true => Control::Ours(uid.to_owned()),
            false => Control::Foreign,
        }
    }
}

pub(crate) fn control(meta: &ObjectMeta) -> Control {
    controller_of(meta).map_or(Control::None, |owner| {
        Control::from_owner(&owner.api_version, &owner.kind, &owner.uid)
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(default)]
    controller: bool,
}

impl<'de> Deserialize<'de> for Control {
    /// Reads the controller from a list of owner references.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let owners = Option::<Vec<Owner<'de>>>::deserialize(deserializer)?;
        let mut owners = owners.into_iter().flatten();
        let owner = owners.find(|owner| owner.controller);
        Ok(owner.map_or(Control::None, |owner| {
            Control::from_owner(&owner.api_version, &owner.kind, &owner.uid)
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_object_is_ours_when_a_workload_controls_it() {
        let owner = |api_version: &str, kind: &str, controller: Option<bool>| {
            json!({
                "apiVersion": api_version, "kind": kind, "name": "a", "uid": "u",
                "controller": controller, "blockOwnerDeletion": true,
            })
        };
        let non_controller = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"});
        let ours = Control::Ours("u".to_owned());
        let group = "tkex.tencent.com/v1alpha1";
        let workload = owner(group, "GameDeployment", Some(true));
        let cases = [
            (json!([]), Control::None),
            (Value::Null, Control::None),
            (json!([non_controller]), Control::None),
            (json!([workload]), ours.clone()),
            (json!([non_controller, workload]), ours),
            (json!([owner(group, "GameDeployment", Some(false))]), Control::None),
            (json!([owner(group, "HookRun", Some(true))]), Control::Foreign),
            (json!([owner("apps/v1", "ReplicaSet", Some(true))]), Control::Foreign),
            (json!([owner("v1", "GameDeployment", Some(true))]), Control::Foreign),
        ];
        for (owners, expected) in cases {
            let text = owners.to_string().replace("\"controller\":null,", "");
            assert_eq!(serde_json::from_str::<Control>(&text).unwrap(), expected);
            let meta = json!({"ownerReferences": owners});
            assert_eq!(control(&serde_json::from_value(meta).unwrap()), expected);
        }
    }
}

//! One container of a SidecarSet, and what it gets from the pod's own containers.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::names::IS_INJECTED;
use crate::api::{PodInjectPolicy, ShareVolumeType, SidecarOptions, TransferEnv};

/// Fields that only containers of a SidecarSet have.
const OPTIONS: [&str; 4] =
    ["podInjectPolicy", "shareVolumePolicy", "transferEnv", "upgradeStrategy"];
/// The path at which the API server mounts the service account's token into every container.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A container to inject.
#[derive(Clone, Debug)]
pub(super) struct Sidecar {
    pub name: String,
    /// Whether it is placed before or after the pod's own containers.
    pub place: PodInjectPolicy,
    /// The container as it is injected, without what it gets from the pod's own containers.
    container: Value,
    shares_volumes: bool,
    transfers: Vec<TransferEnv>,
}

impl Sidecar {
    /// Parses a container of a set; `place` applies if the container specifies none.
    pub(super) fn of(container: &Value, place: PodInjectPolicy) -> Self {
        let options = SidecarOptions::deserialize(container).unwrap_or_default();
        // The schema refuses everything except objects.
        let mut container = match without_options(container) {
            Value::Object(fields) => Value::Object(fields),
            _ => json!({}),
        };
        let mut env = list(container.get("env")).to_vec();
        env.retain(|it| it["name"] != IS_INJECTED);
        env.push(json!({"name": IS_INJECTED, "value": "true"}));
        container["env"] = Value::Array(env);
        let share_policy = options.share_volume_policy.unwrap_or_default();
        Self {
            name: name(&container).to_owned(),
            place: options.pod_inject_policy.unwrap_or(place),
            container,
            shares_volumes: share_policy.type_ == Some(ShareVolumeType::Enabled),
            transfers: options.transfer_env,
        }
    }

    /// The image; empty if it has none.
    pub(super) fn image(&self) -> &str {
        self.container["image"].as_str().unwrap_or_default()
    }

    /// Whether it is an init container that keeps running.
    pub(super) fn keeps_running(&self) -> bool {
        self.container["restartPolicy"] == "Always"
    }

    /// The container as it is injected into a pod whose own containers are `own`.
    ///
    /// # Errors
    /// If it shares their volumes, and would have two different mounts at the same path.
    pub(super) fn for_pod(&self, own: &[Value]) -> Result<Value, String> {
        let mut container = self.container.clone();
        self.transfer(own, &mut container);
        if self.shares_volumes {
            self.share(own, &mut container)?;
        }
        Ok(container)
    }

    /// Adds the requested variables of the pod's own containers, except those that the container already has.
    fn transfer(&self, own: &[Value], container: &mut Value) {
        let mut env = list(container.get("env")).to_vec();
        for transfer in &self.transfers {
            let source = own.iter().find(|it| name(it) == transfer.source_container_name);
            let variables = list(source.and_then(|it| it.get("env"))).iter();
            let mut variables = variables.filter(|it| name(it) == transfer.env_name);
            let is_known = env.iter().any(|it| name(it) == transfer.env_name);
            env.extend(variables.next_back().filter(|_| !is_known).cloned());
        }
        container["env"] = Value::Array(env);
    }

    /// Adds the mounts of the pod's own containers.
    fn share(&self, own: &[Value], container: &mut Value) -> Result<(), String> {
        let mut mounts = list(container.get("volumeMounts")).to_vec();
        let own_mounts = own.iter().flat_map(|it| list(it.get("volumeMounts")));
        for mount in own_mounts.filter(|it| it["mountPath"] != TOKEN_PATH) {
            let at_path = mounts.iter().find(|it| it["mountPath"] == mount["mountPath"]);
            match at_path {
                None => mounts.push(mount.clone()),
                Some(existing) if is_same(existing, mount) => {}
                Some(_) => {
                    let path = mount["mountPath"].as_str().unwrap_or_default();
                    return Err(format!(
                        "container {:?} would mount two volumes at {path}",
                        self.name
                    ));
                }
            }
        }
        if !mounts.is_empty() {
            container["volumeMounts"] = Value::Array(mounts);
        }
        Ok(())
    }
}

/// A container, without the fields that only containers of a SidecarSet have.
pub fn without_options(container: &Value) -> Value {
    let mut container = container.clone();
    if let Some(fields) = container.as_object_mut() {
        fields.retain(|field, _| !OPTIONS.contains(&field.as_str()));
    }
    container
}

/// Whether two mounts contain the same files.
fn is_same(one: &Value, other: &Value) -> bool {
    let same = |field: &str| one[field] == other[field];
    ["name", "subPath", "subPathExpr"].into_iter().all(same)
}

/// Whether a container comes from a SidecarSet.
pub(super) fn is_injected(container: &Value) -> bool {
    let mut env = list(container.get("env")).iter();
    env.any(|it| it["name"] == IS_INJECTED && it["value"] == "true")
}

/// The name of a named object.
pub(super) fn name(object: &Value) -> &str {
    object.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// The items of a list; none if the value is not a list.
pub(super) fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

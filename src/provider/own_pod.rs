//! The pod that a run is about.
//!
//! The arguments `PodName` and `PodNamespace` name the pod. It must be in the run's namespace, because users who may
//! write a HookRun there need not have any permission in other namespaces.

use serde::Deserialize;

use super::container_status::ContainerStatuses;
use super::filling::Filling;
use super::measure::Measurement;
use gamekeeper_core::api::names::{HookPoint, RUN_POD_UID, WorkloadKind};
use gamekeeper_core::api::{GROUP, HookRun};
use gamekeeper_core::expr::brief;

/// The arguments that name the pod.
pub(super) const POD_ARGUMENTS: [&str; 2] = ["PodName", "PodNamespace"];

/// The name of the pod, which is in the run's namespace.
pub(super) fn name(measurement: &Measurement, filling: &Filling<'_>) -> Result<String, String> {
    let namespace = measurement.run().metadata.namespace.as_deref().unwrap_or_default();
    let given = filling.value("PodNamespace");
    if let Some(other) = given.filter(|other| *other != namespace) {
        let other = brief(other);
        return Err(format!(
            "pods of namespace {other} are not accessible: the run is in {namespace}"
        ));
    }
    match filling.value("PodName") {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err("the pod is not known: set a value for the argument PodName".into()),
    }
}

/// The uid of the pod that the run was created for; None if the run was not created for a pod.
pub(super) fn wanted_uid(run: &HookRun) -> Option<&str> {
    let annotations = run.metadata.annotations.as_ref()?;
    let uid = annotations.get(RUN_POD_UID).map(String::as_str);
    uid.filter(|uid| !uid.is_empty())
}

/// Whether a workload created the run for a canary step, and therefore not for a pod.
pub(super) fn is_step_run(run: &HookRun) -> bool {
    let workload = run.controlling_workload();
    workload.is_some_and(|(kind, _)| run.point(kind) == Some(HookPoint::Step))
}

/// Checks that a pod is the one that the run was created for, if the run was created for a pod.
pub(super) fn check_uid(run: &HookRun, pod: &str, uid: &str) -> Result<(), String> {
    match wanted_uid(run).is_none_or(|wanted| wanted == uid) {
        true => Ok(()),
        false => Err(format!("pod {pod} is not the one that the run was created for")),
    }
}

/// The fields of a pod that are read before a command is run in it. The other fields might be long.
#[derive(Debug, Deserialize)]
pub(super) struct Pod {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: ContainerStatuses,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    uid: String,
    owner_references: Vec<Owner>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Owner {
    api_version: String,
    kind: String,
    controller: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    init_containers: Vec<Container>,
    containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    name: String,
}

impl Pod {
    pub(super) fn uid(&self) -> &str {
        &self.metadata.uid
    }

    /// Whether a workload controls the pod.
    pub(super) fn belongs_to_workload(&self) -> bool {
        self.metadata.owner_references.iter().any(|owner| {
            let group = owner.api_version.split('/').next();
            owner.controller && group == Some(GROUP) && WorkloadKind::parse(&owner.kind).is_some()
        })
    }

    /// Checks that the container exists and is running, so that a command can be run in it.
    pub(super) fn check_container(&self, pod: &str, name: &str) -> Result<(), String> {
        let Spec { init_containers, containers } = &self.spec;
        let known = containers.iter().chain(init_containers);
        if !known.clone().any(|it| it.name == name) {
            let names: Vec<&str> = known.map(|it| it.name.as_str()).collect();
            let (name, names) = (brief(name), names.join(", "));
            return Err(format!("pod {pod} has no container {name}: use one of {names}"));
        }
        let mut statuses = self.status.iter();
        match statuses.any(|it| it.name == name && it.is_running()) {
            true => Ok(()),
            false => Err(format!("container {name} of pod {pod} is not running")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(owners: Value, more: Value) -> Pod {
        let metadata = json!({"uid": "pod-uid", "ownerReferences": owners});
        let mut pod = json!({"metadata": metadata});
        let fields = pod.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("fields").clone());
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn a_pod_belongs_to_a_workload_only_if_a_game_workload_controls_it() {
        let owner = |version: &str, kind: &str, controller: bool| json!({"apiVersion": version, "kind": kind, "controller": controller});
        let ours = "tkex.tencent.com/v1alpha1";
        for (owners, expected) in [
            (json!([owner(ours, "GameDeployment", true)]), true),
            (json!([owner(ours, "GameStatefulSet", true)]), true),
            (json!([owner(ours, "GameDeployment", false)]), false),
            (json!([owner(ours, "HookRun", true)]), false),
            (json!([owner("apps/v1", "GameDeployment", true)]), false),
            (json!([{"apiVersion": ours, "kind": "GameDeployment"}]), false),
            (json!([]), false),
        ] {
            let pod = pod(owners.clone(), json!({}));
            assert_eq!(pod.belongs_to_workload(), expected, "{owners}");
        }
    }

    #[test]
    fn a_container_must_exist_and_be_running() {
        let running =
            |name: &str| json!({"name": name, "state": {"running": {"startedAt": "now"}}});
        let pod = pod(
            json!([]),
            json!({
                "spec": {
                    "initContainers": [{"name": "sidecar"}, {"name": "prepare"}],
                    "containers": [{"name": "game"}, {"name": "proxy"}],
                },
                "status": {
                    "initContainerStatuses": [running("sidecar"), {"name": "prepare", "state": {"terminated": {}}}],
                    "containerStatuses": [running("game"), {"name": "proxy", "state": {"waiting": {}}}],
                },
            }),
        );
        for (container, expected) in [
            ("game", Ok(())),
            ("sidecar", Ok(())),
            ("proxy", Err("container proxy of pod game-1 is not running")),
            ("prepare", Err("container prepare of pod game-1 is not running")),
            (
                "other",
                Err("pod game-1 has no container other: use one of game, proxy, sidecar, prepare"),
            ),
        ] {
            let checked = pod.check_container("game-1", container);
            assert_eq!(checked, expected.map_err(str::to_owned));
        }
    }
}

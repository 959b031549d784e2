//! The fields of a pod's status that providers read: container statuses and conditions. The other fields are skipped,
//! because they might be long.

use serde::Deserialize;

/// The container statuses and the conditions of a pod.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerStatuses {
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
    conditions: Vec<PodCondition>,
}

/// A condition of a pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    message: String,
}

/// The status of a container.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerStatus {
    pub(super) name: String,
    pub(super) image: String,
    state: State,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    waiting: Option<Waiting>,
    running: Option<Running>,
    terminated: Option<Terminated>,
}

/// How a container ended.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Terminated {
    pub(super) exit_code: i32,
    /// The container's termination message.
    pub(super) message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Running {}

impl ContainerStatuses {
    /// The statuses of all containers; those of init containers come first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ContainerStatus> {
        let init = self.init_container_statuses.iter();
        init.chain(&self.container_statuses)
    }

    /// Why the pod could not be scheduled; None if that is not reported.
    pub(super) fn why_unscheduled(&self) -> Option<&str> {
        let mut conditions = self.conditions.iter();
        let unscheduled = conditions.find(|it| it.kind == "PodScheduled" && it.status == "False");
        unscheduled.map(|it| it.message.as_str())
    }
}

impl ContainerStatus {
    pub(super) fn is_running(&self) -> bool {
        self.state.running.is_some()
    }

    /// How the container ended; None if it has not.
    pub(super) fn terminated(&self) -> Option<&Terminated> {
        self.state.terminated.as_ref()
    }

    /// Why the container waits; None if it does not wait.
    pub(super) fn waiting_reason(&self) -> Option<&str> {
        self.state.waiting.as_ref().map(|it| it.reason.as_str())
    }
}

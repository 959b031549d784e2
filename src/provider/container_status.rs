//! The container statuses of a pod, as far as providers read them. The other fields might be long.

use serde::Deserialize;

/// The status of a pod.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerStatuses {
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
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
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Running {}

impl ContainerStatuses {
    /// Those of init containers first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ContainerStatus> {
        let init = self.init_container_statuses.iter();
        init.chain(&self.container_statuses)
    }
}

impl ContainerStatus {
    pub(super) fn is_running(&self) -> bool {
        self.state.running.is_some()
    }

    /// Why the container waits; None if it does not wait.
    pub(super) fn waiting_reason(&self) -> Option<&str> {
        self.state.waiting.as_ref().map(|it| it.reason.as_str())
    }
}

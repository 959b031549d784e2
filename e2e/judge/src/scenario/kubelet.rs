//! What the kubelet and Kubernetes itself write to pods in a scenario.

use serde_json::json;

use super::Scenario;
use crate::names;

impl Scenario {
    /// The kubelet reports the phase of a pod, and whether its container runs.
    pub(crate) fn report_phase(&mut self, name: &str, phase: &str, runs: bool) {
        let state = if runs { "running" } else { "waiting" };
        let mut status = json!({"name": "main", "ready": runs, "state": {}});
        status["state"][state] = json!({});
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["status"]["phase"] = json!(phase);
        pod["status"]["containerStatuses"] = json!([status]);
        self.write_pod("kubelet", "patch", "status", name);
    }

    /// Kubernetes is about to delete a pod for this reason.
    pub(crate) fn disrupt(&mut self, name: &str, reason: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        let conditions = pod["status"]["conditions"].as_array_mut();
        conditions
            .expect("conditions")
            .push(json!({"type": "DisruptionTarget", "status": "True", "reason": reason}));
        self.write_pod("kubelet", "patch", "status", name);
    }

    pub(super) fn set_conditions(&mut self, user: &str, name: &str, gate: bool, ready: bool) {
        let text = |yes| if yes { "True" } else { "False" };
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["status"]["phase"] = json!("Running");
        pod["status"]["conditions"] = json!([
            {"type": "Ready", "status": text(ready), "lastTransitionTime": self.log.now},
            {"type": names::GATE, "status": text(gate)},
        ]);
        self.write_pod(user, "patch", "status", name);
    }

    /// The kubelet reports a pod as ready or not ready.
    pub(crate) fn set_ready(&mut self, name: &str, ready: bool) {
        self.set_conditions("kubelet", name, true, ready);
    }

    /// The kubelet reports the image that a pod's container runs.
    pub(crate) fn report_image(&mut self, name: &str, image: &str, ready: bool) {
        let pod = self.pods.get_mut(name).expect("a pod");
        let id = format!("containerd://0#{image}");
        pod["status"]["containerStatuses"] =
            json!([{"name": "main", "containerID": id, "ready": ready}]);
        self.write_pod("kubelet", "patch", "status", name);
    }

    /// The kubelet has restarted a container of a pod that is ready.
    pub(crate) fn report_restart(&mut self, name: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["status"]["containerStatuses"][0]["restartCount"] = json!(1);
        self.write_pod("kubelet", "patch", "status", name);
    }

    /// The kubelet reports which images a pod's containers were started from.
    pub(crate) fn report_images(&mut self, name: &str, images: [&str; 2]) {
        let pod = self.pods.get_mut(name).expect("a pod");
        let statuses = [0, 1].map(|index| {
            let id = format!("containerd://{index}#{}", images[index]);
            let name = &pod["spec"]["containers"][index]["name"];
            json!({"name": name, "containerID": id, "ready": true, "state": {"running": {}}})
        });
        pod["status"]["containerStatuses"] = json!(statuses);
        self.write_pod("kubelet", "patch", "status", name);
    }

    /// The kubelet reports a container as not ready.
    pub(crate) fn report_unready_container(&mut self, name: &str, index: usize) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["status"]["containerStatuses"][index]["ready"] = json!(false);
        self.write_pod("kubelet", "patch", "status", name);
    }

    /// The kubelet has stopped a pod's containers, and deletes the pod.
    pub(crate) fn end(&mut self, name: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        self.write_pod("kubelet", "delete", "", name);
    }
}

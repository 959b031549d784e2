//! What the operator and users do to pods in a scenario.

use serde_json::{Value, json};

use super::log::merge;
use super::{GAME, OPERATOR, Scenario};
use crate::names;

impl Scenario {
    /// The operator creates a pod, which becomes ready.
    pub(crate) fn create(&mut self, name: &str, revision: &str) {
        self.create_unready(name, revision);
        self.set_ready(name, true);
    }

    /// The operator creates a pod with an index.
    pub(crate) fn create_with_index(&mut self, name: &str, index: &str) {
        self.create_annotated(name, "v1", json!({names::INDEX: index}));
    }

    /// The operator creates a pod, which does not become ready.
    pub(crate) fn create_unready(&mut self, name: &str, revision: &str) {
        self.create_annotated(name, revision, json!({}));
    }

    /// The operator creates a pod with annotations.
    pub(crate) fn create_annotated(&mut self, name: &str, revision: &str, annotations: Value) {
        let identity = match self.workload["kind"] == "GameStatefulSet" {
            true => names::IDENTITY[2],
            false => names::INSTANCE,
        };
        let pod = json!({
            "kind": "Pod",
            "metadata": {
                "name": name, "uid": format!("uid-{name}"),
                "labels": {names::REVISION: revision, identity: name},
                "annotations": annotations,
                "ownerReferences": [{"controller": true, "uid": GAME}],
            },
            "spec": {
                "readinessGates": [{"conditionType": names::GATE}],
                "containers": [{"name": "main", "image": format!("image-{revision}")}],
            },
        });
        let pod = self.log.write(OPERATOR, "create", "pods", "", name, pod);
        self.pods.insert(name.to_owned(), pod);
    }

    /// The operator changes labels of a pod, and replaces its annotations.
    pub(crate) fn change_metadata(&mut self, name: &str, labels: Value, annotations: Value) {
        let pod = self.pods.get_mut(name).expect("a pod");
        merge(&mut pod["metadata"]["labels"], &labels);
        pod["metadata"]["annotations"] = annotations;
        self.write_pod(OPERATOR, "patch", "", name);
    }

    /// A user labels a pod.
    pub(crate) fn label(&mut self, name: &str, key: &str, value: &str) {
        self.set_metadata("labels", name, key, value);
    }

    /// A user annotates a pod.
    pub(crate) fn annotate(&mut self, name: &str, key: &str, value: &str) {
        self.set_metadata("annotations", name, key, value);
    }

    /// The operator sets the mark of SidecarSet `log` on a pod.
    pub(crate) fn mark(&mut self, name: &str, mark: &Value) {
        let key = format!("{}log", names::SIDECARS);
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["metadata"]["annotations"][key] = json!(mark.to_string());
        self.write_pod(OPERATOR, "patch", "", name);
    }

    /// The operator updates the container `log` of a pod to a revision of SidecarSet `log`.
    pub(crate) fn update_sidecar(&mut self, name: &str, revision: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["spec"]["containers"][1]["image"] = json!(format!("image-{revision}"));
        self.mark(name, &json!({"at": revision, "in": ["log"]}));
    }

    /// Like [`Self::update_sidecar`], but also changes the game's image.
    pub(crate) fn update_sidecar_and_game(&mut self, name: &str, revision: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["spec"]["containers"][0]["image"] = json!("image-other");
        self.update_sidecar(name, revision);
    }

    fn set_metadata(&mut self, map: &str, name: &str, key: &str, value: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["metadata"][map][key] = json!(value);
        self.write_pod("user", "patch", "", name);
    }

    /// Adds a resourceVersion precondition to the next request.
    pub(crate) fn if_unchanged(&mut self) -> &mut Self {
        self.log.request = json!({"preconditions": {"uid": "x", "resourceVersion": "1"}});
        self
    }

    pub(super) fn write_pod(&mut self, user: &str, verb: &str, subresource: &str, name: &str) {
        let pod = self.pods[name].clone();
        let pod = self.log.write(user, verb, "pods", subresource, name, pod);
        self.pods.insert(name.to_owned(), pod);
    }

    /// The operator closes a pod's gate, and the kubelet updates Ready.
    pub(crate) fn close_gate(&mut self, name: &str) {
        self.set_conditions(OPERATOR, name, false, true);
        self.set_conditions("kubelet", name, false, false);
    }

    /// The operator opens a pod's gate, and the kubelet updates Ready.
    pub(crate) fn open_gate(&mut self, name: &str) {
        self.set_conditions(OPERATOR, name, true, false);
        self.set_conditions("kubelet", name, true, true);
    }

    /// The operator changes the image of a container, given by its index.
    pub(crate) fn change_container(&mut self, name: &str, index: usize, revision: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["spec"]["containers"][index]["image"] = json!(format!("image-{revision}"));
        self.write_pod(OPERATOR, "patch", "", name);
    }

    /// The operator updates a pod to a revision in place, and changes the images of two containers in one write.
    pub(crate) fn change_two_containers(&mut self, name: &str, revision: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["spec"]["containers"][1]["image"] = json!(format!("image-{revision}"));
        self.change(name, revision);
    }

    /// The operator updates a pod to a revision in place.
    pub(crate) fn change(&mut self, name: &str, revision: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["metadata"]["labels"][names::REVISION] = json!(revision);
        pod["spec"]["containers"][0]["image"] = json!(format!("image-{revision}"));
        self.write_pod(OPERATOR, "patch", "", name);
    }

    /// The operator hot-patches a pod.
    pub(crate) fn hot_patch(&mut self, name: &str, revision: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["metadata"]["annotations"] = json!({names::HOT_PATCH: "true"});
        self.change(name, revision);
    }

    /// The operator deletes a pod.
    pub(crate) fn delete(&mut self, name: &str) {
        self.delete_by(OPERATOR, name);
    }

    /// A user deletes a pod.
    pub(crate) fn delete_by(&mut self, user: &str, name: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["metadata"]["deletionTimestamp"] = json!(self.log.now);
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        self.write_pod(user, "delete", "", name);
    }

    /// A user makes a pod an orphan.
    pub(crate) fn orphan(&mut self, user: &str, name: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["metadata"]["ownerReferences"] = json!([]);
        self.write_pod(user, "patch", "", name);
    }

    /// A user adds a container to a pod.
    pub(crate) fn add_container(&mut self, pod: &str, name: &str) {
        let spec = &mut self.pods.get_mut(pod).expect("a pod")["spec"];
        let containers = spec["containers"].as_array_mut().expect("containers");
        containers.push(json!({"name": name, "image": "image-v1"}));
        self.write_pod("user", "patch", "", pod);
    }

    /// A user resizes a pod's container, which restarts if its memory changes.
    pub(crate) fn resize(&mut self, pod: &str, resource: &str, value: &str) {
        let container = &mut self.pods.get_mut(pod).expect("a pod")["spec"]["containers"][0];
        container["resizePolicy"] = json!([
            {"resourceName": "cpu", "restartPolicy": "NotRequired"},
            {"resourceName": "memory", "restartPolicy": "RestartContainer"},
        ]);
        container["resources"]["requests"][resource] = json!(value);
        self.write_pod("user", "patch", "resize", pod);
    }

    /// A user removes the readiness gate from a pod.
    pub(crate) fn remove_gate(&mut self, pod: &str) {
        let spec = &mut self.pods.get_mut(pod).expect("a pod")["spec"];
        spec["readinessGates"] = json!([]);
        self.write_pod("user", "patch", "", pod);
    }
}

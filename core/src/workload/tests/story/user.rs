//! What happens in a story: users change objects, time passes, hooks end, and pods fail.

use super::kubelet::set_running;
use super::*;
use crate::api::{Measurement, MetricResult};

impl<K: Planned + Serialize> Story<K> {
    /// The user (or an autoscaler) changes the spec.
    pub fn user(&mut self, change: Value) -> &mut Self {
        self.change_spec(change);
        self
    }

    /// Merges a change into the workload's spec. If this alters the spec, the workload gets a new generation.
    pub fn change_spec(&mut self, change: Value) {
        let before = serde_json::to_value(&self.object).expect("object");
        let mut after = before.clone();
        merge(&mut after, json!({"spec": change}));
        if after["spec"] != before["spec"] {
            self.object = serde_json::from_value(after).expect("object");
            *self.object.meta_mut().generation.get_or_insert(0) += 1;
        }
    }

    /// The user sets an annotation.
    pub fn annotate(&mut self, key: &str, value: &str) {
        let annotations = self.object.annotations_mut();
        annotations.insert(key.to_owned(), value.to_owned());
    }

    /// The user changes the tag of the game's image.
    pub fn image(&mut self, tag: &str) -> &mut Self {
        let image = format!("game:{tag}");
        self.user(json!({"template": {"spec": {"containers": [{"name": "game", "image": image}]}}}))
    }

    /// A user creates a HookTemplate that has no arguments.
    pub fn template(&mut self, name: &str) -> &mut Self {
        let template: HookTemplate = serde_json::from_value(json!({
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookTemplate", "metadata": {"name": name},
            "spec": {"metrics": [{"name": "webtest", "provider": {"web": {"url": "http://127.0.0.1:9091"}}}]},
        }))
        .expect("template");
        self.world.templates.insert(name.to_owned(), Arc::new(template));
        self
    }

    /// Time passes.
    pub fn wait(&mut self, seconds: i64) -> &mut Self {
        self.world.now =
            self.world.now.checked_add(SignedDuration::from_secs(seconds)).expect("time");
        self
    }

    /// Ends all running HookRuns whose names contain this string, with this phase. Returns their number.
    pub fn hooks_end(&mut self, containing: &str, phase: HookPhase) -> usize {
        let now = self.world.now;
        let mut ended = 0;
        for run in &mut self.world.runs {
            let status = run.status.clone().unwrap_or_default();
            let name = run.metadata.name.clone().unwrap_or_default();
            if !status.phase.is_completed() && name.contains(containing) {
                let run = Arc::make_mut(run);
                run.status = Some(crate::api::HookRunStatus {
                    phase,
                    started_at: Some(Time(now)),
                    finished_at: Some(Time(now)),
                    ..status
                });
                ended += 1;
            }
        }
        ended
    }

    /// The last measurement of all running HookRuns ends in an error, or without one.
    pub fn hooks_measure(&mut self, error: Option<&str>) {
        for run in &mut self.world.runs {
            let status = Arc::make_mut(run).status.get_or_insert_default();
            status.phase = HookPhase::Running;
            status.metric_results = vec![MetricResult {
                consecutive_error: i32::from(error.is_some()),
                measurements: vec![Measurement {
                    phase: if error.is_some() { HookPhase::Error } else { HookPhase::Successful },
                    message: error.map(str::to_owned),
                    ..Measurement::default()
                }],
                ..MetricResult::default()
            }];
        }
    }

    /// Another client or a kubelet changes a pod.
    pub fn edit_pod(&mut self, name: &str, edit: impl FnOnce(&mut Pod)) {
        let pod = self.world.pods.iter_mut().find(|pod| pod.name == name).expect("pod");
        let pod = Arc::make_mut(pod);
        edit(pod);
        self.clock += 1;
        pod.resource_version = self.clock;
    }

    /// A pod fails on its own.
    pub fn fail_pod(&mut self, name: &str) {
        self.stop_containers(name);
        self.edit_pod(name, |pod| pod.phase = PodPhase::Failed);
    }

    /// The containers of a pod crash, and wait to be restarted.
    pub fn stop_containers(&mut self, name: &str) {
        let now = self.world.now;
        self.edit_pod(name, |pod| {
            pod.ready_since = None;
            for container in &mut pod.containers {
                set_running(container, false, now);
            }
        });
    }
}

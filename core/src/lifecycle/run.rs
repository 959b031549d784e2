//! The HookRun of an attempt: one measurement by a Job that runs the script on the node.
//!
//! No shell interprets the script's arguments. Labels and annotations are passed in the run's `spec.args`, so `{{` in
//! them is not substituted. `$` is doubled, because the kubelet expands `$(NAME)`.

use serde_json::{Value, json};

use super::attempt;
use super::paths::{Origin, Volume, mount, origin};
use super::scene::Scene;
use super::world::ClusterNode;
use crate::api::names::{
    FIELD_MANAGER, HOOKS_NAMESPACE, LAST_APPLIED, RETRY_ANNOTATION, RUN_ATTEMPT, RUN_HOOK_HASH,
    RUN_HOOK_LABEL, RUN_NODE, RUN_NODE_UID, RUN_STEP, instance_id, lifecycle_run_name,
};
use crate::api::{Argument, HookRun, LifecycleStep, RawJson, StepScope};

/// The name of the metric, and of the container.
const SCRIPT: &str = "script";
/// A successful run is kept for an hour, so that its log can be read.
const KEPT_SECONDS: i32 = 3_600;
/// The maximum number of labels and annotations that can be arguments.
const MAX_PAIRS: usize = 200;
/// The maximum length of such an argument, in bytes.
const MAX_PAIR_BYTES: usize = 65_536;

/// Step, uid of the node, and hash of a task.
pub(super) type TaskKey = (String, String, String);

/// The task of which a run is an attempt; None if it is none.
pub(super) fn task_of(run: &HookRun) -> Option<TaskKey> {
    let [step, node, hash] =
        [RUN_STEP, RUN_NODE_UID, RUN_HOOK_HASH].map(|key| attempt::annotation(run, key));
    Some((step?.to_owned(), node?.to_owned(), hash?.to_owned()))
}

/// A step on a node.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub step: LifecycleStep,
    pub node: &'a ClusterNode,
}

impl Task<'_> {
    /// Distinguishes this task from others with the same step and node name. An edit of the hook changes the hash, so
    /// new attempts start.
    pub(super) fn hash(&self, scene: &Scene) -> String {
        let features = scene.features;
        let identity = json!([
            scene.uid,
            self.node.uid,
            scene.cluster.spec.version,
            scene.upgrade_of(self.step),
            self.step.command(&features.hooks),
            features.files,
            features.sources,
        ]);
        instance_id(identity.to_string().as_bytes())
    }

    /// What the attempts at this task have in common.
    pub(super) fn key(&self, hash: &str) -> TaskKey {
        (self.step.to_string(), self.node.uid.clone(), hash.to_owned())
    }

    /// What the task does, as messages describe it.
    pub(super) fn description(&self, scene: &Scene) -> String {
        match self.step.command(&scene.features.hooks) {
            Some(command) => {
                let program = command.split_whitespace().next().unwrap_or_default();
                format!("exec {program:?}")
            }
            None => "copying files".to_owned(),
        }
    }

    /// The HookRun of an attempt.
    ///
    /// # Errors
    /// If the labels and annotations cannot be arguments.
    pub(super) fn hook_run(&self, scene: &Scene, attempt: u32) -> Result<HookRun, String> {
        let cluster = scene.cluster;
        let pairs = match self.step.scope() {
            StepScope::FirstMaster => pairs(scene)?,
            StepScope::Nodes => Vec::new(),
        };
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let hash = self.hash(scene);
        let prefix = self.step.run_prefix();
        let job = self.job(scene, attempt, pairs.len());
        let mut run: HookRun = serde_json::from_value(json!({
            "apiVersion": crate::api::API_VERSION,
            "kind": "HookRun",
            "metadata": {
                "namespace": HOOKS_NAMESPACE,
                "name": lifecycle_run_name(prefix, name, &self.node.name, &hash, attempt),
                "labels": {RUN_HOOK_LABEL: prefix},
                "annotations": {
                    RUN_STEP: self.step.to_string(),
                    RUN_NODE: self.node.name,
                    RUN_NODE_UID: self.node.uid,
                    RUN_HOOK_HASH: hash,
                    RUN_ATTEMPT: attempt.to_string(),
                },
            },
            "spec": {
                "metrics": [{
                    "name": SCRIPT,
                    "count": 1,
                    // Each attempt is one Job. The plan for the Cluster starts the next attempt.
                    "consecutiveErrorLimit": 0,
                    "provider": {"job": {
                        "metadata": {"labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER}},
                        "spec": {},
                    }},
                }],
                "ttlStrategy": {"secondsAfterSuccess": KEPT_SECONDS},
            },
        }))
        .map_err(|error| error.to_string())?;
        run.metadata.owner_references = Some(vec![cluster.owner_reference()]);
        if let Some(retry) = retry(scene) {
            let annotations = run.metadata.annotations.get_or_insert_default();
            annotations.insert(RETRY_ANNOTATION.to_owned(), retry.to_owned());
        }
        if let Some(metric) = run.spec.metrics.first_mut()
            && let Some(job_metric) = &mut metric.provider.job
        {
            job_metric.spec = RawJson::from(&job);
        }
        let arguments = pairs.into_iter().enumerate();
        run.spec.args = arguments
            .map(|(index, pair)| Argument {
                name: argument_name(index),
                value: Some(escaped(&pair)),
                value_from: None,
            })
            .collect();
        Ok(run)
    }

    /// The spec of the Job.
    fn job(&self, scene: &Scene, attempt: u32, pair_count: usize) -> Value {
        let features = scene.features;
        let (mut arguments, mut volumes) = (vec!["node-hook".to_owned()], Vec::new());
        for file in &features.files {
            let Origin { volume, path } = origin(features, &file.src);
            let mount = mount(&volume);
            if !volumes.contains(&volume) {
                volumes.push(volume);
            }
            let src = match path {
                "" => mount,
                path => format!("{mount}/{path}"),
            };
            arguments.extend(["--copy".to_owned(), escaped(&src), escaped(&file.dst)]);
        }
        if let Some(command) = self.step.command(&features.hooks) {
            arguments.push("--".to_owned());
            arguments.extend(command.split_whitespace().map(escaped));
            let pairs =
                (0..pair_count).map(|index| format!("{{{{ args.{} }}}}", argument_name(index)));
            arguments.extend(pairs);
        }
        let numbered = volumes.iter().enumerate();
        let mounts: Vec<Value> = numbered
            .clone()
            .map(|(number, volume)| json!({"name": volume_name(number), "mountPath": mount(volume), "readOnly": true}))
            .collect();
        let volumes: Vec<Value> = numbered
            .map(|(number, volume)| match volume {
                // If the ConfigMap is missing, node-hook reports that; if it were not optional, the pod would wait.
                Volume::ConfigMap(name) => json!({
                    "name": volume_name(number), "configMap": {"name": name, "optional": true},
                }),
                Volume::Claim(name) => json!({
                    "name": volume_name(number),
                    "persistentVolumeClaim": {"claimName": name, "readOnly": true},
                }),
            })
            .collect();
        let name = scene.cluster.metadata.name.as_deref().unwrap_or_default();
        let version = scene.cluster.spec.version.as_deref().unwrap_or_default();
        json!({
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": features.hook_timeout_seconds,
            "template": {
                "metadata": {"labels": {RUN_HOOK_LABEL: self.step.run_prefix()}},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    // The pod runs before a network plugin does, and sees the node's processes.
                    "hostNetwork": true,
                    "hostPID": true,
                    "dnsPolicy": "Default",
                    "terminationGracePeriodSeconds": 5,
                    "tolerations": [{"operator": "Exists"}],
                    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": [self.node.name]},
                        ]}],
                    }}},
                    "containers": [{
                        "name": SCRIPT,
                        "image": scene.world.image,
                        "args": arguments,
                        "env": [
                            {"name": "CLUSTER", "value": name},
                            {"name": "NODE", "value": self.node.name},
                            {"name": "HOOK", "value": self.step.hook()},
                            {"name": "VERSION", "value": escaped(version)},
                            {"name": "ATTEMPT", "value": attempt.to_string()},
                        ],
                        "securityContext": {"privileged": true, "runAsUser": 0, "runAsNonRoot": false},
                        "volumeMounts": mounts,
                    }],
                    "volumes": volumes,
                },
            },
        })
    }
}

/// The user's latest request for another attempt.
pub(super) fn retry<'a>(scene: &Scene<'a>) -> Option<&'a str> {
    let annotations = scene.cluster.metadata.annotations.as_ref()?;
    annotations.get(RETRY_ANNOTATION).map(String::as_str)
}

fn argument_name(index: usize) -> String {
    format!("pair{index}")
}

fn volume_name(number: usize) -> String {
    format!("source-{number}")
}

/// Escapes text so that the kubelet's expansion of `$(NAME)` restores it.
fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}

/// The Cluster's labels, then its annotations, as KEY=VALUE, each sorted by key.
fn pairs(scene: &Scene) -> Result<Vec<String>, String> {
    let metadata = &scene.cluster.metadata;
    let labels = metadata.labels.iter().flatten();
    let annotations = metadata.annotations.iter().flatten();
    // Neither kubectl's copy of the whole manifest nor a request for another attempt is passed.
    let omitted = [LAST_APPLIED, RETRY_ANNOTATION];
    let annotations = annotations.filter(|(key, _)| !omitted.contains(&key.as_str()));
    let pairs: Vec<String> =
        labels.chain(annotations).map(|(key, value)| format!("{key}={value}")).collect();
    if pairs.len() > MAX_PAIRS {
        return Err(format!(
            "metadata: {} labels and annotations, but at most {MAX_PAIRS} can be arguments of a cluster hook; \
             remove some",
            pairs.len()
        ));
    }
    // Doubled characters count toward the limit.
    match pairs.iter().find(|it| escaped(it).len() > MAX_PAIR_BYTES) {
        Some(long) => Err(format!(
            "metadata.annotations: {} is too long to be an argument of a cluster hook; shorten it to \
             {MAX_PAIR_BYTES} bytes",
            long.split('=').next().unwrap_or_default()
        )),
        None => Ok(pairs),
    }
}

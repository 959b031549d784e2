//! A workload with its pods and HookRuns at one point in time.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use judge::names;
use judge::object::{self, annotation, label, text};
use serde_json::Value;

/// A workload with its pods and HookRuns.
#[derive(Clone, Debug)]
pub struct View {
    /// The workload.
    pub game: Value,
    /// Its pods, sorted by name.
    pub pods: Vec<Pod>,
    /// Its HookRuns, sorted by name.
    pub runs: Vec<Run>,
}

/// The name of the container that a mesh injects before the game's.
pub const MESH_PROXY: &str = "mesh-proxy";

/// A pod.
#[derive(Clone, Debug)]
pub struct Pod(pub Value);

/// A HookRun.
#[derive(Clone, Debug)]
pub struct Run(pub Value);

/// A condition of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// True, False or Unknown.
    pub status: String,
    /// The reason.
    pub reason: String,
    /// The message.
    pub message: String,
}

impl View {
    /// A number in the workload; 0 if it is not set.
    pub fn number(&self, pointer: &str) -> i64 {
        self.game.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
    }

    /// A string in the workload; empty if it is not set.
    pub fn text(&self, pointer: &str) -> &str {
        text(&self.game, pointer)
    }

    /// DESIRED, UPDATED, UPDATED_READY, READY and TOTAL.
    pub fn counts(&self) -> [i64; 5] {
        [
            self.number("/spec/replicas"),
            self.number("/status/updatedReplicas"),
            self.number("/status/updatedReadyReplicas"),
            self.number("/status/readyReplicas"),
            self.number("/status/replicas"),
        ]
    }

    /// Whether the status reflects the current generation.
    pub fn is_observed(&self) -> bool {
        self.number("/status/observedGeneration") == self.number("/metadata/generation")
    }

    /// Whether all pods are updated and available, and no HookRun is left.
    pub fn is_settled(&self, replicas: i64) -> bool {
        self.counts() == [replicas; 5]
            && self.number("/status/availableReplicas") == replicas
            && self.is_observed()
            && self.pods.len() as i64 == replicas
            && self.runs.is_empty()
            && self.is_stable(replicas)
    }

    /// Whether the update revision is the stable one; a workload that never had a pod has none.
    fn is_stable(&self, replicas: i64) -> bool {
        let stable = self.text("/status/canary/revision");
        stable == self.text("/status/updateRevision") || (replicas == 0 && stable.is_empty())
    }

    /// status.currentStepIndex.
    pub fn step(&self) -> i64 {
        self.number("/status/currentStepIndex")
    }

    /// spec.updateStrategy.paused.
    pub fn is_paused(&self) -> bool {
        self.game.pointer("/spec/updateStrategy/paused") == Some(&Value::Bool(true))
    }

    /// Reasons in status.pauseConditions.
    pub fn pause_reasons(&self) -> Vec<&str> {
        let conditions = self.game.pointer("/status/pauseConditions");
        let conditions = conditions.and_then(Value::as_array);
        conditions.map_or_else(Vec::new, |all| all.iter().map(|c| text(c, "/reason")).collect())
    }

    /// Pod names and phases in one of the status's lists of hook conditions (`preDelete`, ...).
    pub fn hook_conditions(&self, point: &str) -> Vec<(&str, &str)> {
        let list = self.game.pointer(&format!("/status/{point}HookCondition"));
        let list = list.and_then(Value::as_array);
        let entry = |c| (text(c, "/podName"), text(c, "/phase"));
        list.map_or_else(Vec::new, |all| all.iter().map(entry).collect())
    }

    /// A condition of the workload.
    pub fn condition(&self, type_: &str) -> Option<Condition> {
        let conditions = self.game.pointer("/status/conditions")?.as_array()?;
        let found = conditions.iter().find(|c| text(c, "/type") == type_)?;
        let part = |pointer| text(found, pointer).to_owned();
        Some(Condition {
            status: part("/status"),
            reason: part("/reason"),
            message: part("/message"),
        })
    }

    /// Whether a condition is True.
    pub fn is_true(&self, type_: &str) -> bool {
        self.condition(type_).is_some_and(|c| c.status == "True")
    }

    /// Names of the pods.
    pub fn pod_names(&self) -> Vec<&str> {
        self.pods.iter().map(Pod::name).collect()
    }

    /// Pods that are not terminating, as ORDINAL:TAG, by ordinal.
    pub fn shape(&self) -> String {
        let ordinal_and_tag = |pod: &Pod| {
            let ordinal = pod.name().rsplit('-').next().unwrap_or_default();
            let tag = pod.image().rsplit(':').next().unwrap_or_default();
            (ordinal.parse::<i64>().unwrap_or(-1), tag.to_owned())
        };
        let active = self.pods.iter().filter(|pod| !pod.is_terminating());
        let mut pods: Vec<(i64, String)> = active.map(ordinal_and_tag).collect();
        pods.sort();
        let pods = pods.iter().map(|(ordinal, tag)| format!("{ordinal}:{tag}"));
        pods.collect::<Vec<_>>().join(" ")
    }

    /// The pod with this name.
    pub fn pod(&self, name: &str) -> Result<&Pod> {
        let mut pods = self.pods.iter();
        let found = pods.find(|pod| pod.name() == name);
        found.with_context(|| format!("no pod {name} among {:?}", self.pod_names()))
    }

    /// How many ready pods have this image.
    pub fn ready_with(&self, image: &str) -> usize {
        let is_ready_with =
            |pod: &&Pod| pod.image() == image && pod.is_ready() && !pod.is_terminating();
        self.pods.iter().filter(is_ready_with).count()
    }

    /// How many pods have this image in their spec.
    pub fn count_with(&self, image: &str) -> usize {
        let has_image = |pod: &&Pod| pod.image() == image && !pod.is_terminating();
        self.pods.iter().filter(has_image).count()
    }

    /// Names of the HookRuns.
    pub fn run_names(&self) -> Vec<&str> {
        self.runs.iter().map(Run::name).collect()
    }

    /// Phases of the HookRuns of a hook point.
    pub fn phases(&self, point: &str) -> Vec<&str> {
        let at_point = self.runs.iter().filter(|run| run.point() == point);
        at_point.map(Run::phase).collect()
    }

    /// Fails with a summary of this view unless a condition holds.
    pub fn ensure(&self, holds: bool) -> Result<()> {
        ensure!(holds, "{}", self.summary());
        Ok(())
    }

    /// This view in a few lines, for messages.
    pub fn summary(&self) -> String {
        let status = serde_json::to_string(&self.game["status"]).unwrap_or_default();
        let pods = self.pods.iter().map(Pod::summary);
        let runs = self.runs.iter().map(|run| format!("{} {}", run.name(), run.phase()));
        let lines: Vec<String> = pods.chain(runs).collect();
        format!(
            "counts {:?}, paused {}, status {status}\n  {}",
            self.counts(),
            self.is_paused(),
            lines.join("\n  ")
        )
    }
}

impl Pod {
    /// Name.
    pub fn name(&self) -> &str {
        text(&self.0, "/metadata/name")
    }

    /// Uid.
    pub fn uid(&self) -> &str {
        object::uid(&self.0)
    }

    /// Image of the first container in the spec that no mesh has injected.
    pub fn image(&self) -> &str {
        let containers = self.0["spec"]["containers"].as_array();
        let mut own = containers.into_iter().flatten().filter(|it| it["name"] != MESH_PROXY);
        own.next().map_or("", |it| text(it, "/image"))
    }

    /// Revision.
    pub fn revision(&self) -> &str {
        object::revision(&self.0)
    }

    /// Whether its condition Ready is True.
    pub fn is_ready(&self) -> bool {
        object::is_true(&self.0, "Ready")
    }

    /// Whether a container is running.
    pub fn is_running(&self) -> bool {
        object::is_running(&self.0)
    }

    /// Whether the pod is terminating.
    pub fn is_terminating(&self) -> bool {
        object::is_terminating(&self.0)
    }

    /// Restarts of all containers.
    pub fn restarts(&self) -> i64 {
        object::restarts(&self.0)
    }

    /// Whether the pod waits for its PreDelete or PreInplace hook.
    pub fn waits_for_hook(&self) -> bool {
        self.annotation(names::DELETING) == Some("true")
    }

    /// An annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        annotation(&self.0, key)
    }

    /// A label.
    pub fn label(&self, key: &str) -> Option<&str> {
        label(&self.0, key)
    }

    /// Address.
    pub fn ip(&self) -> Result<IpAddr> {
        let ip = text(&self.0, "/status/podIP");
        ip.parse().with_context(|| format!("{} has no address: {ip:?}", self.name()))
    }

    fn summary(&self) -> String {
        format!(
            "{} {} {} {} ready={} restarts={}{}{}",
            self.name(),
            self.image(),
            self.revision(),
            object::phase(&self.0),
            self.is_ready(),
            self.restarts(),
            if self.waits_for_hook() { " deleting" } else { "" },
            if self.is_terminating() { " terminating" } else { "" },
        )
    }
}

impl Run {
    /// Name.
    pub fn name(&self) -> &str {
        text(&self.0, "/metadata/name")
    }

    /// Uid.
    pub fn uid(&self) -> &str {
        object::uid(&self.0)
    }

    /// Step, PreDelete, PreInplace or PostInplace.
    pub fn point(&self) -> &str {
        object::point(&self.0)
    }

    /// Phase.
    pub fn phase(&self) -> &str {
        object::phase(&self.0)
    }

    /// Instance ID of the HookRun's pod.
    pub fn instance(&self) -> &str {
        label(&self.0, "InstanceID").unwrap_or_default()
    }

    /// Value of an argument.
    pub fn argument(&self, name: &str) -> Option<&str> {
        let args = object::arguments(&self.0, "/spec/args");
        args.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

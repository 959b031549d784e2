//! Failing steps of Clusters, and attempts in progress, read from the cache at each scrape. Without Clusters, there
//! are no series.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use prometheus_client::encoding::DescriptorEncoder;

use crate::kinds::Cache;
use crate::runtime::metrics::encode_family;
use crate::runtime::store::Cached;
use gamekeeper_core::api::names::{HOOKS_NAMESPACE, RUN_STEP};
use gamekeeper_core::api::{Cluster, HookRun};
use gamekeeper_core::lifecycle::READY;

/// Seconds by Cluster and condition.
type Seconds = BTreeMap<(String, String), f64>;

#[derive(Default)]
pub(super) struct Clusters {
    /// How long a condition has been False.
    failing: Seconds,
    /// How long the oldest attempt in progress has taken.
    in_progress: Seconds,
}

pub(super) fn read(cache: &Cache, now: Timestamp) -> Clusters {
    let clusters = cache.clusters.store().all();
    if clusters.is_empty() {
        // The HookRuns are not even read, because workloads may have thousands of them.
        return Clusters::default();
    }
    let since = |time: Timestamp| now.duration_since(time).as_secs_f64().max(0.0);
    let failing = clusters.iter().flat_map(|cluster| {
        let name = cluster.object.metadata.name.clone().unwrap_or_default();
        let status = cluster.object.status.iter();
        let conditions = status.flat_map(|status| &status.conditions);
        let failing = conditions.filter(|it| it.status == "False" && it.type_ != READY);
        failing.map(move |it| {
            let key = (name.clone(), it.type_.clone());
            (key, since(it.last_transition_time.0))
        })
    });
    let runs = cache.hook_runs.store().all();
    let runs = runs.iter().filter(|run| run.namespace() == HOOKS_NAMESPACE);
    let mut in_progress = Seconds::new();
    for (key, started) in runs.filter_map(|run| attempt(&run.object)) {
        let seconds = in_progress.entry(key).or_default();
        *seconds = seconds.max(since(started));
    }
    Clusters { failing: failing.collect(), in_progress }
}

/// The Cluster, the condition and the start of an attempt; None if the run is not an attempt in progress.
fn attempt(run: &HookRun) -> Option<((String, String), Timestamp)> {
    let meta = &run.metadata;
    let step = meta.annotations.as_ref()?.get(RUN_STEP)?;
    let mut owners = meta.owner_references.iter().flatten();
    let cluster = owners.find(|owner| owner.kind == Cluster::KIND)?;
    let started = meta.creation_timestamp.as_ref()?.0;
    let key = (cluster.name.clone(), step.clone());
    (!run.phase().is_completed()).then_some((key, started))
}

pub(super) fn encode(clusters: &Clusters, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Time for which a condition of a Cluster has been False";
    let name = "gamekeeper_cluster_step_failing_seconds";
    encode_seconds(&clusters.failing, name, help, to)?;
    let help = "Age of the oldest attempt in progress at a step of a Cluster";
    let name = "gamekeeper_cluster_attempt_seconds";
    encode_seconds(&clusters.in_progress, name, help, to)
}

fn encode_seconds(
    seconds: &Seconds,
    name: &str,
    help: &str,
    to: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let series = seconds.iter().map(|((cluster, condition), seconds)| {
        let labels = [("name", cluster.as_str()), ("condition", condition.as_str())];
        (labels, *seconds)
    });
    encode_family(to, name, help, series)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_attempt_counts_from_its_creation_until_it_is_completed() {
        let run = |owner: &str, phase: Value| -> HookRun {
            let run = json!({
                "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookRun",
                "metadata": {
                    "name": "a", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "annotations": {RUN_STEP: "EnsurePreInstallHook"},
                    "ownerReferences": [{"apiVersion": "v1", "kind": owner, "name": "xa", "uid": "u"}],
                },
                "spec": {"metrics": []},
                "status": {"phase": phase},
            });
            serde_json::from_value(run).expect("a HookRun")
        };
        let found = attempt(&run("Cluster", json!("Running"))).expect("an attempt");
        let (key, started) = found;
        assert_eq!(key, ("xa".to_owned(), "EnsurePreInstallHook".to_owned()));
        assert_eq!(started.to_string(), "2026-01-01T00:00:00Z");
        assert!(attempt(&run("Cluster", json!("Failed"))).is_none());
        assert!(attempt(&run("GameDeployment", json!("Running"))).is_none());
    }
}

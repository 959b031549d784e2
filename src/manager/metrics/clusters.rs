//! Failing steps of Clusters, read from the cache at each scrape. Without Clusters there are no series.

use std::fmt;

use jiff::Timestamp;
use prometheus_client::encoding::DescriptorEncoder;

use crate::cache::Cache;
use crate::metrics::encode_family;
use gamekeeper_core::plan::cluster::READY;

/// By Cluster and condition: the seconds for which it has been False.
pub(super) type Failing = Vec<((String, String), f64)>;

pub(super) fn read(cache: &Cache, now: Timestamp) -> Failing {
    let clusters = cache.clusters.store().all();
    let failing = clusters.iter().flat_map(|cluster| {
        let name = cluster.object.metadata.name.clone().unwrap_or_default();
        let status = cluster.object.status.iter();
        let conditions = status.flat_map(|status| &status.conditions);
        let failing = conditions.filter(|it| it.status == "False" && it.type_ != READY);
        failing.map(move |it| {
            let seconds = now.duration_since(it.last_transition_time.0).as_secs_f64();
            ((name.clone(), it.type_.clone()), seconds.max(0.0))
        })
    });
    failing.collect()
}

pub(super) fn encode(failing: &Failing, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let series = failing.iter().map(|((name, condition), seconds)| {
        let labels = [("name", name.as_str()), ("condition", condition.as_str())];
        (labels, *seconds)
    });
    let help = "Time for which a condition of a Cluster has been False";
    encode_family(to, "gamekeeper_cluster_step_failing_seconds", help, series)
}

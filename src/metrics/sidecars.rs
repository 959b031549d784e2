//! Gauges of SidecarSets, from their status.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use crate::kinds::Cache;
use crate::runtime::metrics::encode_family;
use crate::runtime::store::Cached;
use gamekeeper_core::api::SidecarSetStatus;

/// The number of a SidecarSet's pods that are in a state.
type Count = fn(&SidecarSetStatus) -> i32;

const STATES: [(&str, Count); 5] = [
    ("matched", |it| it.matched_pods),
    ("updated", |it| it.updated_pods),
    ("ready", |it| it.ready_pods),
    ("updated_ready", |it| it.updated_ready_pods),
    ("uninjected", |it| it.uninjected_pods),
];

/// Exports the sets that this process reports on, if it leads.
pub(super) fn encode(cache: &Cache, leads: bool, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let sets = match leads {
        true => cache.sidecar_sets.store().all(),
        false => Vec::new(),
    };
    let sets = sets.iter().filter(|set| cache.sidecars.is_ours(&set.object));
    let pods = sets.flat_map(|set| {
        let status = set.object.status.clone().unwrap_or_default();
        STATES.map(|(state, count)| {
            let labels = [("name", set.name().to_owned()), ("state", state.to_owned())];
            (labels, f64::from(count(&status)))
        })
    });
    let help = "Pods that a SidecarSet selects";
    encode_family(to, "gamekeeper_sidecar_set_pods", help, pods)
}

//! What /metrics shows: counts read from the caches at each scrape, and durations.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::gate::Gate;
use crate::api::{GameWorkload, WorkloadStatus};
use crate::apply::Metrics;
use crate::cache::{Cache, Cached, Whole};
use crate::controller::Queue;

/// All that is shown.
pub struct Shown {
    registry: Registry,
}

impl Shown {
    /// Shows these.
    pub fn new(durations: [(&'static str, &Metrics); 2], gauges: Gauges) -> Self {
        let mut registry = Registry::default();
        for (prefix, metrics) in durations {
            metrics.register(registry.sub_registry_with_prefix(prefix));
        }
        registry.register_collector(Box::new(gauges));
        Self { registry }
    }

    /// The page, as Prometheus reads it.
    pub fn page(&self) -> Result<String, fmt::Error> {
        let mut page = String::new();
        encode(&mut page, &self.registry)?;
        Ok(page)
    }
}

/// Counts that are read when somebody asks.
pub struct Gauges {
    /// The caches.
    pub cache: Arc<Cache>,
    /// Queues, by controller.
    pub queues: Vec<(&'static str, Arc<Queue>)>,
    /// Whether this process may write.
    pub gate: Arc<Gate>,
}

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gauges")
    }
}

type Count = fn(&WorkloadStatus) -> i32;

const REPLICAS: [(&str, &str, Count); 5] = [
    ("replicas", "Pods that exist", |it| it.replicas),
    ("ready_replicas", "Pods that are ready", |it| {
        it.ready_replicas
    }),
    (
        "available_replicas",
        "Pods that have been ready for minReadySeconds",
        |it| it.available_replicas,
    ),
    ("updated_replicas", "Pods at the update revision", |it| {
        it.updated_replicas
    }),
    (
        "updated_ready_replicas",
        "Pods at the update revision that are ready",
        |it| it.updated_ready_replicas,
    ),
];

/// Shows the counts of all workloads of a kind.
fn encode_replicas<K: GameWorkload>(
    encoder: &mut DescriptorEncoder,
    prefix: &str,
    workloads: &[Arc<Whole<K>>],
) -> Result<(), fmt::Error> {
    for (name, help, count) in REPLICAS {
        let name = format!("{prefix}_{name}");
        let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
        for workload in workloads {
            let status = workload.object.status();
            let pods = status.map_or(0, |status| count(status.as_ref()));
            let labels = [
                ("namespace", workload.namespace()),
                ("name", workload.name()),
            ];
            let gauge = ConstGauge::new(i64::from(pods));
            gauge.encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let deployments = self.cache.game_deployments.store().all();
        let sets = self.cache.game_stateful_sets.store().all();
        encode_replicas(&mut encoder, "bkbcs_gamedeployment", &deployments)?;
        encode_replicas(&mut encoder, "bkbcs_gamestatefulset", &sets)?;
        let name = "gamekeeper_queue_length";
        let help = "Objects that wait for a look, or are being looked at";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (controller, queue) in &self.queues {
            let gauge = ConstGauge::new(i64::try_from(queue.len()).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("controller", *controller)])?)?;
        }
        let cached = [
            ("gamedeployment", deployments.len()),
            ("gamestatefulset", sets.len()),
            ("pod", self.cache.pods.store().len()),
            ("hookrun", self.cache.hook_runs.store().len()),
        ];
        let name = "gamekeeper_cached_objects";
        let mut family =
            encoder.encode_descriptor(name, "Objects in the caches", None, MetricType::Gauge)?;
        for (kind, count) in cached {
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("kind", kind)])?)?;
        }
        let leads = ConstGauge::new(i64::from(self.gate.is_open()));
        let name = "gamekeeper_leader";
        let help = "1 while this process leads";
        leads.encode(encoder.encode_descriptor(name, help, None, leads.metric_type())?)
    }
}

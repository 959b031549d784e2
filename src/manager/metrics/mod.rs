//! What /metrics shows: what was counted, and what the caches hold at the moment of a scrape.
//!
//! docs/metrics.md lists every series. Nothing here or in what is counted has a label that grows
//! without end; series of a workload go when it goes.

mod hooks;
mod owners;
mod page;
mod process;
mod progress;
mod waits;
mod workloads;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use self::owners::Owners;
use self::process::Process;
use self::progress::Progress;
use self::waits::Waits;
use super::fence::Fence;
use super::requests::ApiRequests;
use crate::apply::Metrics;
use crate::cache::{self, Cache};
use crate::controller::{HookMetrics, Queues};
use crate::metrics::{counter, gauge};
use crate::webhook::AdmissionMetrics;

/// All that is shown.
pub(super) struct MetricsRegistry {
    registry: Registry,
    cache: Arc<Cache>,
    writes: Metrics,
    hooks: HookMetrics,
}

/// What is counted all over the process.
#[derive(Clone, Default)]
pub(super) struct Counters {
    /// Reconciles of workloads, and their writes.
    pub writes: Metrics,
    pub hooks: HookMetrics,
    pub requests: ApiRequests,
    /// Reviews of objects that are to be stored.
    pub admission: AdmissionMetrics,
}

impl MetricsRegistry {
    pub(super) fn new(
        counters: Counters,
        queues: Queues,
        cache: Arc<Cache>,
        fence: Arc<Fence>,
    ) -> Self {
        let Counters {
            writes,
            hooks,
            requests,
            admission,
        } = counters;
        let mut registry = Registry::default();
        let state = State {
            cache: Arc::clone(&cache),
            fence,
            progress: Progress::default(),
            waits: Waits::default(),
        };
        let parts: [Box<dyn Collector>; 7] = [
            Box::new(state),
            Box::new(writes.clone()),
            Box::new(hooks.clone()),
            Box::new(queues),
            Box::new(requests),
            Box::new(admission),
            Box::new(Process::started()),
        ];
        for part in parts {
            registry.register_collector(part);
        }
        Self {
            registry,
            cache,
            writes,
            hooks,
        }
    }

    /// The page, as Prometheus reads it.
    pub(super) fn page(&self) -> Result<String, fmt::Error> {
        self.forget();
        page::of(&self.registry)
    }

    /// Forgets what was counted for objects that are gone.
    fn forget(&self) {
        // Gathered before anything is locked that is counted into.
        let owners = Owners::of(&self.cache);
        self.writes
            .retain(|kind, namespace, name| owners.has_name(kind, namespace, name));
        self.hooks.retain(&owners.owners());
    }
}

/// What is read from the caches at each scrape.
struct State {
    cache: Arc<Cache>,
    /// Whether this process may write.
    fence: Arc<Fence>,
    progress: Progress,
    waits: Waits,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

impl Collector for State {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let leads = self.fence.is_open();
        // A standby gathers them too, so that it has their history when it becomes the leader.
        let now = Timestamp::now();
        let mut workloads = workloads::read(&self.cache, &self.progress, now);
        let owners = Owners::of(&self.cache);
        let mut hooks = hooks::read(&self.cache, &owners, &self.waits, now);
        if !leads {
            // Only the leader shows the state of the cluster, or sums would count it twice.
            (workloads, hooks) = Default::default();
        }
        workloads::encode(&workloads, now, &mut to)?;
        hooks.encode(&mut to)?;
        encode_cache(&self.cache, &mut to)?;
        let help = "1 while this process is the leader";
        let leads = to_number(leads);
        let name = "gamekeeper_leader";
        let kind = prometheus_client::metrics::MetricType::Gauge;
        to.encode_descriptor(name, help, None, kind)?
            .encode_gauge(&leads)?;
        let build = [[("version", env!("CARGO_PKG_VERSION"))]];
        let build = build.into_iter().map(|labels| (labels, 1.0));
        gauge(
            &mut to,
            "gamekeeper_build_info",
            "The running version",
            build,
        )
    }
}

fn to_number(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

fn encode_cache(cache: &Cache, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let kinds = cache.stats();
    let label = |it: &cache::ReflectorStats| [("kind", format!("{:?}", it.kind))];
    let objects = kinds.iter().map(|it| (label(it), it.objects as f64));
    let help = "Objects in the caches";
    gauge(to, "gamekeeper_cached_objects", help, objects)?;
    let lists = kinds.iter().map(|it| (label(it), &it.lists));
    let help = "Full lists of a kind that were started";
    counter(to, "gamekeeper_cache_lists", help, lists)?;
    let heard = kinds
        .iter()
        .map(|it| (label(it), it.heard.elapsed().as_secs_f64()));
    let help = "Time since the last watch event of a kind; there is a bookmark once a minute";
    gauge(to, "gamekeeper_cache_silence_seconds", help, heard)
}

#[cfg(test)]
mod tests;

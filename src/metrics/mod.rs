//! The metrics page: counters of the whole process, and gauges that are read from the caches at each scrape.
//!
//! docs/metrics.md lists every metric. The cardinality of every label is bounded. The series of a workload are
//! removed with it.

mod clusters;
mod fold;
mod guarded;
mod hooks;
mod owners;
mod page;
mod process;
mod progress;
mod sidecars;
mod waits;
mod workloads;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use self::guarded::FirstSeen;
use self::owners::Owners;
pub(crate) use self::page::Page;
use self::process::Process;
use self::progress::Progress;
use self::waits::Waits;
use crate::kinds;
use crate::kinds::Cache;
use crate::reconcile::HookMetrics;
use crate::reconcile::apply::Metrics;
use crate::runtime::fence::Fence;
use crate::runtime::metrics::{encode_family, encode_one};
use crate::runtime::queue::Queues;
use crate::runtime::request_metrics::ApiRequests;
use crate::webhook::AdmissionMetrics;

pub(crate) struct MetricsRegistry {
    registry: Registry,
    cache: Arc<Cache>,
    writes: Metrics,
    hooks: HookMetrics,
}

/// The metrics that other parts of the process update.
#[derive(Clone, Default)]
pub(crate) struct Counters {
    /// Reconciles of workloads, and their writes.
    pub writes: Metrics,
    pub hooks: HookMetrics,
    pub requests: ApiRequests,
    pub admission: AdmissionMetrics,
}

impl MetricsRegistry {
    pub(crate) fn new(
        counters: Counters,
        queues: Queues,
        cache: Arc<Cache>,
        fence: Arc<Fence>,
    ) -> Self {
        let Counters { writes, hooks, requests, admission } = counters;
        let mut registry = Registry::default();
        let state = State {
            cache: Arc::clone(&cache),
            fence,
            progress: Progress::default(),
            waits: Waits::default(),
            going_nodes: FirstSeen::default(),
        };
        let collectors: [Box<dyn Collector>; 7] = [
            Box::new(state),
            Box::new(writes.clone()),
            Box::new(hooks.clone()),
            Box::new(queues),
            Box::new(requests),
            Box::new(admission),
            Box::new(Process::starting()),
        ];
        for collector in collectors {
            registry.register_collector(collector);
        }
        Self { registry, cache, writes, hooks }
    }

    pub(crate) fn page(&self) -> Result<Page, fmt::Error> {
        self.remove_deleted();
        page::render(&self.registry)
    }

    /// Removes the series of deleted objects.
    pub(crate) fn remove_deleted(&self) {
        // Collected before the counters are locked.
        let owners = Owners::read(&self.cache);
        self.writes
            .retain(Instant::now(), |kind, namespace, name| owners.has_name(kind, namespace, name));
        self.hooks.retain(&owners.owners());
    }
}

/// The metrics that are read from the caches at each scrape.
struct State {
    cache: Arc<Cache>,
    /// Open while this process leads.
    fence: Arc<Fence>,
    progress: Progress,
    waits: Waits,
    going_nodes: FirstSeen,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

impl Collector for State {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let leads = self.fence.is_open();
        // A standby reads the caches too, so that it knows the history when it becomes the leader.
        let now = Timestamp::now();
        let mut workloads = workloads::read(&self.cache, &self.progress, now);
        let owners = Owners::read(&self.cache);
        let mut hooks = hooks::read(&self.cache, &owners, &self.waits, now);
        let mut clusters = clusters::read(&self.cache, now);
        let mut guarded = guarded::read(&self.cache, &self.going_nodes, now);
        if !leads {
            // Only the leader exports the state of the cluster; otherwise sums over replicas would count it more than
            // once.
            (workloads, hooks, clusters, guarded) = Default::default();
        }
        workloads::encode(&workloads, now, &mut to)?;
        hooks.encode(&mut to)?;
        guarded.encode(&mut to)?;
        sidecars::encode(&self.cache, leads, &mut to)?;
        clusters::encode(&clusters, &mut to)?;
        encode_cache(&self.cache, &mut to)?;
        let help = "1 while this process is the leader";
        let leads = f64::from(u8::from(leads));
        encode_one(&mut to, "gamekeeper_leader", help, Some(leads))?;
        let build = [([("version", env!("CARGO_PKG_VERSION"))], 1.0)];
        let help = "The running version";
        encode_family(&mut to, "gamekeeper_build_info", help, build)
    }
}

fn encode_cache(cache: &Cache, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let kinds = cache.stats();
    let label = |it: &kinds::ReflectorStats| [("kind", it.kind.name())];
    let objects = kinds.iter().map(|it| (label(it), it.objects as f64));
    let help = "Objects in the caches";
    encode_family(to, "gamekeeper_cached_objects", help, objects)?;
    let unreadable = kinds.iter().map(|it| (label(it), it.unreadable as f64));
    let help = "Objects that cannot be decoded, and are ignored";
    encode_family(to, "gamekeeper_unreadable_objects", help, unreadable)?;
    let lists = kinds.iter().map(|it| (label(it), it.lists));
    let help = "Full lists of a kind that were started";
    encode_family(to, "gamekeeper_cache_lists", help, lists)?;
    let last_event = kinds.iter().map(|it| (label(it), it.last_event.elapsed().as_secs_f64()));
    let help = "Time since the last watch event of a kind; there is a bookmark once a minute";
    encode_family(to, "gamekeeper_cache_silence_seconds", help, last_event)
}

#[cfg(test)]
mod tests;

//! Metrics of the queues, under the names of client-go.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tokio::time::Instant;

use super::{Queue, Requeue};
use crate::metrics::{Timing, counter, gauge, histogram};

/// Buckets of client-go.
const BUCKETS: [f64; 12] = [
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0,
];

#[derive(Clone, Debug)]
pub(super) struct QueueStats {
    adds: u64,
    retries: u64,
    errors: u64,
    waits: Timing,
    reconciles: Timing,
}

impl Default for QueueStats {
    fn default() -> Self {
        Self {
            adds: 0,
            retries: 0,
            errors: 0,
            waits: Timing::new(&BUCKETS),
            reconciles: Timing::new(&BUCKETS),
        }
    }
}

impl QueueStats {
    /// Counts an object that begins to wait.
    pub(super) fn added(&mut self) {
        self.adds += 1;
    }

    /// Counts a reconcile that begins, of an object that has waited since then.
    pub(super) fn begun(&mut self, since: Instant, now: Instant) {
        self.waits.observe(now.duration_since(since));
    }

    /// Counts a reconcile that ends, and began then.
    pub(super) fn ended(&mut self, since: Instant, now: Instant, requeue: Requeue) {
        self.reconciles.observe(now.duration_since(since));
        self.retries += u64::from(matches!(requeue, Requeue::Retry(_) | Requeue::Conflict));
        self.errors += u64::from(matches!(requeue, Requeue::Retry(_)));
    }
}

/// A queue as it is at a scrape.
struct QueueSnapshot {
    name: [(&'static str, &'static str); 1],
    controller: [(&'static str, &'static str); 1],
    stats: QueueStats,
    depth: usize,
    in_progress: Vec<Duration>,
}

/// The queues of all controllers, by the controller's name.
pub(crate) struct Queues(pub Vec<(&'static str, Arc<Queue>)>);

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queues")
    }
}

impl Queues {
    fn snapshots(&self) -> Vec<QueueSnapshot> {
        let show = |(name, queue): &(&'static str, Arc<Queue>)| {
            let state = queue.lock();
            let running = state.running.values();
            QueueSnapshot {
                name: [("name", name)],
                controller: [("controller", name)],
                stats: state.stats.clone(),
                depth: state.waiting.len(),
                in_progress: running.map(|it| it.since.elapsed()).collect(),
            }
        };
        self.0.iter().map(show).collect()
    }
}

impl Collector for Queues {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let queues = self.snapshots();
        let gauges = |of: fn(&QueueSnapshot) -> f64| queues.iter().map(move |it| (it.name, of(it)));
        let counts =
            |of: fn(&QueueSnapshot) -> &u64| queues.iter().map(move |it| (it.name, of(it)));
        let times =
            |of: fn(&QueueSnapshot) -> &Timing| queues.iter().map(move |it| (it.name, of(it)));
        let to = &mut to;

        let depth = gauges(|it| it.depth as f64);
        gauge(
            to,
            "workqueue_depth",
            "Objects that wait for a reconcile",
            depth,
        )?;
        let adds = counts(|it| &it.stats.adds);
        counter(
            to,
            "workqueue_adds",
            "Times that an object was enqueued",
            adds,
        )?;
        let retries = counts(|it| &it.stats.retries);
        let help = "Reconciles that are retried: after an error, or because an object had changed";
        counter(to, "workqueue_retries", help, retries)?;
        let waits = times(|it| &it.stats.waits);
        let help = "Time that objects waited for a reconcile";
        histogram(to, "workqueue_queue_duration_seconds", help, waits)?;
        let reconciles = times(|it| &it.stats.reconciles);
        histogram(
            to,
            "workqueue_work_duration_seconds",
            "Duration of one reconcile",
            reconciles,
        )?;
        let unfinished = gauges(|it| it.in_progress.iter().sum::<Duration>().as_secs_f64());
        let help = "Time that the reconciles in progress have taken so far, in total";
        gauge(to, "workqueue_unfinished_work_seconds", help, unfinished)?;
        let longest = gauges(|it| {
            let longest = it.in_progress.iter().max();
            longest.copied().unwrap_or_default().as_secs_f64()
        });
        let name = "workqueue_longest_running_processor_seconds";
        gauge(
            to,
            name,
            "Time that the longest reconcile in progress has taken so far",
            longest,
        )?;

        let errors = queues.iter().map(|it| (it.controller, &it.stats.errors));
        let help = "Reconciles that failed: rejected by the API server, timed out, or panicked";
        counter(to, "gamekeeper_reconcile_errors", help, errors)
    }
}

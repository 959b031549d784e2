//! Metrics of the queues, under the names of client-go.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tokio::time::Instant;

use super::{Queue, Requeue};
use crate::runtime::metrics::{Timing, Value, encode_family};

/// The histogram buckets of client-go, in seconds.
const BUCKETS: [f64; 12] =
    [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];

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
    pub(super) fn added(&mut self) {
        self.adds += 1;
    }

    /// Counts the start of a reconcile whose object became ready at `ready_at`.
    pub(super) fn started(&mut self, ready_at: Instant, now: Instant) {
        self.waits.observe(now.duration_since(ready_at));
    }

    /// Counts the end of a reconcile that started at `started_at`.
    pub(super) fn finished(&mut self, started_at: Instant, now: Instant, requeue: Requeue) {
        self.reconciles.observe(now.duration_since(started_at));
        self.retries += u64::from(matches!(requeue, Requeue::Retry(_) | Requeue::Conflict));
        self.errors += u64::from(matches!(requeue, Requeue::Retry(_)));
    }
}

struct QueueSnapshot {
    controller: &'static str,
    stats: QueueStats,
    depth: usize,
    in_progress: Vec<Duration>,
}

/// The queues of all controllers, with the controllers' names.
pub(crate) struct Queues(pub Vec<(&'static str, Arc<Queue>)>);

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queues")
    }
}

impl Queues {
    fn snapshots(&self) -> Vec<QueueSnapshot> {
        let snapshot = |(controller, queue): &(&'static str, Arc<Queue>)| {
            let state = queue.lock();
            let running = state.running.values();
            QueueSnapshot {
                controller,
                stats: state.stats.clone(),
                depth: state.waiting.len(),
                in_progress: running.map(|it| it.since.elapsed()).collect(),
            }
        };
        self.0.iter().map(snapshot).collect()
    }
}

impl Collector for Queues {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let to = &mut to;
        let queues = self.snapshots();
        let help = "Objects that wait for a reconcile";
        rows(to, &queues, "depth", help, |it| it.depth as f64)?;
        let help = "Times that an object was enqueued";
        rows(to, &queues, "adds", help, |it| it.stats.adds)?;
        let help = "Reconciles that are retried: after an error, or because an object had changed";
        rows(to, &queues, "retries", help, |it| it.stats.retries)?;
        let help = "Time that objects waited for a reconcile";
        let name = "queue_duration_seconds";
        rows(to, &queues, name, help, |it| it.stats.waits.clone())?;
        let help = "Duration of one reconcile";
        let name = "work_duration_seconds";
        rows(to, &queues, name, help, |it| it.stats.reconciles.clone())?;
        let help = "Time that the reconciles in progress have taken so far, in total";
        rows(to, &queues, "unfinished_work_seconds", help, |it| {
            it.in_progress.iter().sum::<Duration>().as_secs_f64()
        })?;
        let help = "Time that the longest reconcile in progress has taken so far";
        let name = "longest_running_processor_seconds";
        rows(to, &queues, name, help, |it| {
            let longest = it.in_progress.iter().max().copied();
            longest.unwrap_or_default().as_secs_f64()
        })?;
        let errors = queues.iter();
        let errors = errors.map(|it| ([("controller", it.controller)], it.stats.errors));
        let help = "Reconciles that failed: rejected by the API server, timed out, or panicked";
        encode_family(to, "gamekeeper_reconcile_errors", help, errors)
    }
}

/// Encodes a metric with one value for each queue.
fn rows<V: Value>(
    to: &mut DescriptorEncoder<'_>,
    queues: &[QueueSnapshot],
    name: &str,
    help: &str,
    value: impl Fn(&QueueSnapshot) -> V,
) -> fmt::Result {
    let rows = queues.iter();
    let rows = rows.map(|it| ([("name", it.controller)], value(it)));
    encode_family(to, &format!("workqueue_{name}"), help, rows)
}

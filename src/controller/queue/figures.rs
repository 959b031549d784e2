//! How long queues are, and how long objects wait in them, under the names that client-go gives them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tokio::time::Instant;

use super::{Next, Queue};
use crate::metrics::{Timing, counter, gauge, histogram};

/// Buckets of client-go.
const BUCKETS: [f64; 12] = [
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0,
];

/// What a queue counts.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    adds: u64,
    retries: u64,
    errors: u64,
    waits: Timing,
    looks: Timing,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            adds: 0,
            retries: 0,
            errors: 0,
            waits: Timing::new(&BUCKETS),
            looks: Timing::new(&BUCKETS),
        }
    }
}

impl Figures {
    /// An object begins to wait.
    pub(super) fn added(&mut self) {
        self.adds += 1;
    }

    /// A look begins at an object that has waited since then.
    pub(super) fn begun(&mut self, since: Instant, now: Instant) {
        self.waits.observe(now.duration_since(since));
    }

    /// A look ends that began then.
    pub(super) fn ended(&mut self, since: Instant, now: Instant, next: Next) {
        self.looks.observe(now.duration_since(since));
        self.retries += u64::from(matches!(next, Next::Retry(_) | Next::Again));
        self.errors += u64::from(matches!(next, Next::Retry(_)));
    }
}

/// A queue as it is at a scrape.
struct Shown {
    name: [(&'static str, &'static str); 1],
    controller: [(&'static str, &'static str); 1],
    figures: Figures,
    depth: usize,
    under_way: Vec<Duration>,
}

/// The queues of all controllers, by the controller's name.
pub struct Queues(pub Vec<(&'static str, Arc<Queue>)>);

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queues")
    }
}

impl Queues {
    fn shown(&self) -> Vec<Shown> {
        let show = |(name, queue): &(&'static str, Arc<Queue>)| {
            let state = queue.lock();
            let running = state.running.values();
            Shown {
                name: [("name", name)],
                controller: [("controller", name)],
                figures: state.figures.clone(),
                depth: state.waiting.len(),
                under_way: running.map(|look| look.since.elapsed()).collect(),
            }
        };
        self.0.iter().map(show).collect()
    }
}

impl Collector for Queues {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let queues = self.shown();
        let gauges = |of: fn(&Shown) -> f64| queues.iter().map(move |it| (it.name, of(it)));
        let counts = |of: fn(&Shown) -> &u64| queues.iter().map(move |it| (it.name, of(it)));
        let times = |of: fn(&Shown) -> &Timing| queues.iter().map(move |it| (it.name, of(it)));
        let to = &mut to;

        let depth = gauges(|it| it.depth as f64);
        gauge(to, "workqueue_depth", "Objects that wait for a look", depth)?;
        let adds = counts(|it| &it.figures.adds);
        counter(
            to,
            "workqueue_adds",
            "Times that an object began to wait",
            adds,
        )?;
        let retries = counts(|it| &it.figures.retries);
        let help = "Looks that are repeated: after an error, or because the world had moved on";
        counter(to, "workqueue_retries", help, retries)?;
        let waits = times(|it| &it.figures.waits);
        let help = "Time that objects waited for a look";
        histogram(to, "workqueue_queue_duration_seconds", help, waits)?;
        let looks = times(|it| &it.figures.looks);
        histogram(
            to,
            "workqueue_work_duration_seconds",
            "Time of one look",
            looks,
        )?;
        let unfinished = gauges(|it| it.under_way.iter().sum::<Duration>().as_secs_f64());
        let help = "Time that the looks under way have taken so far, all together";
        gauge(to, "workqueue_unfinished_work_seconds", help, unfinished)?;
        let longest = gauges(|it| {
            let longest = it.under_way.iter().max();
            longest.copied().unwrap_or_default().as_secs_f64()
        });
        let name = "workqueue_longest_running_processor_seconds";
        gauge(
            to,
            name,
            "Time that the longest look under way has taken so far",
            longest,
        )?;

        let errors = queues.iter().map(|it| (it.controller, &it.figures.errors));
        let help = "Looks that failed: refused, not answered, or broken down";
        counter(to, "gamekeeper_reconcile_errors", help, errors)
    }
}

//! How long something took, again and again.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

/// A histogram that also knows its longest and its shortest.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    bounds: &'static [f64],
    /// One count for each bound, and one for what is longer than all.
    counts: Box<[u64]>,
    sum: f64,
    least: f64,
    most: f64,
}

impl Timing {
    /// Nothing observed yet; `bounds` are the upper bounds of its buckets, in seconds.
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1].into(),
            sum: 0.0,
            least: f64::INFINITY,
            most: 0.0,
        }
    }

    pub(crate) fn observe(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < took);
        self.counts[bucket] += 1;
        self.sum += took;
        self.least = self.least.min(took);
        self.most = self.most.max(took);
    }

    /// The shortest, in seconds.
    pub(crate) fn least(&self) -> f64 {
        self.least
    }

    /// The longest, in seconds.
    pub(crate) fn most(&self) -> f64 {
        self.most
    }

    pub(super) fn encode(&self, mut to: MetricEncoder<'_>) -> fmt::Result {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(self.counts.iter().copied()).collect();
        let count = self.counts.iter().sum();
        to.encode_histogram::<NoLabelSet>(self.sum, count, &buckets, None)
    }
}

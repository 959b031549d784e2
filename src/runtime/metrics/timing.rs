//! Histograms of durations.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::Value;

/// A histogram of durations in seconds, which also records the minimum and maximum.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    /// The upper bounds of the buckets.
    bounds: &'static [f64],
    /// One count for each bound, and one for durations above the last bound.
    counts: Box<[u64]>,
    sum: f64,
    min: f64,
    max: f64,
}

impl Timing {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1].into(),
            sum: 0.0,
            min: f64::INFINITY,
            max: 0.0,
        }
    }

    pub(crate) fn observe(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < took);
        self.counts[bucket] += 1;
        self.sum += took;
        self.min = self.min.min(took);
        self.max = self.max.max(took);
    }

    pub(super) fn min(&self) -> f64 {
        self.min
    }

    pub(super) fn max(&self) -> f64 {
        self.max
    }
}

impl Value for Timing {
    const TYPE: MetricType = MetricType::Histogram;

    fn encode(&self, mut to: MetricEncoder<'_>) -> fmt::Result {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(self.counts.iter().copied()).collect();
        let count = self.counts.iter().sum();
        to.encode_histogram::<NoLabelSet>(self.sum, count, &buckets, None)
    }
}

//! Metric families: one value for each set of labels. Series can be removed by a condition on their labels.
//!
//! prometheus-client's own families remove only one series at a time, so all series of a deleted workload would have
//! to be listed. A family that has no series yet would also be missing from the page.

mod timing;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

pub(crate) use timing::Timing;

/// A value for each set of labels. Clones share the values.
#[derive(Clone, Debug)]
pub(crate) struct Family<L, V> {
    series: Arc<Mutex<BTreeMap<L, V>>>,
    /// The value of a new series.
    initial: V,
}

pub(crate) type Counts<L> = Family<L, u64>;
pub(crate) type Timings<L> = Family<L, Timing>;

impl<L: Ord + Clone, V: Clone> Family<L, V> {
    fn with_initial(initial: V) -> Self {
        Self { series: Arc::default(), initial }
    }

    /// Adds a series before anything is counted, so that Prometheus sees the first count as an increase.
    pub(crate) fn init(&self, labels: L) {
        self.change(labels, |_| {});
    }

    pub(crate) fn retain(&self, mut keep: impl FnMut(&L) -> bool) {
        self.lock().retain(|labels, _| keep(labels));
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// A copy of the series whose labels match.
    pub(crate) fn filtered(&self, matches: impl Fn(&L) -> bool) -> Self {
        let mut series = self.lock().clone();
        series.retain(|labels, _| matches(labels));
        Self { series: Arc::new(Mutex::new(series)), initial: self.initial.clone() }
    }

    fn change(&self, labels: L, change: impl FnOnce(&mut V)) {
        let mut series = self.lock();
        change(series.entry(labels).or_insert_with(|| self.initial.clone()));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<L, V>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Ord + Clone + EncodeLabelSet, V: Value + Clone> Family<L, V> {
    /// Encodes a copy of the series, so that counting never waits for a scrape.
    pub(crate) fn encode(
        &self,
        to: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
    ) -> fmt::Result {
        let series = self.lock().clone();
        encode_family(to, name, help, series)
    }
}

impl<L: Ord + Clone> Default for Counts<L> {
    fn default() -> Self {
        Self::with_initial(0)
    }
}

impl<L: Ord + Clone> Counts<L> {
    pub(crate) fn increment(&self, labels: L) {
        self.change(labels, |count| *count += 1);
    }
}

impl<L: Ord + Clone> Timings<L> {
    /// The bucket bounds are in seconds.
    pub(crate) fn with_buckets(bounds: &'static [f64]) -> Self {
        Self::with_initial(Timing::new(bounds))
    }

    pub(crate) fn observe(&self, labels: L, took: Duration) {
        self.change(labels, |timing| timing.observe(took));
    }
}

impl<L: Ord + Clone + EncodeLabelSet> Timings<L> {
    /// Encodes the histograms, and their maximum and minimum as gauges with `_max` and `_min` added to the name.
    pub(crate) fn encode_with_extremes(
        &self,
        to: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
    ) -> fmt::Result {
        let series = self.lock().clone();
        let gauge = |value: fn(&Timing) -> f64| {
            let rows = series.iter();
            rows.map(move |(labels, timing)| (labels.clone(), value(timing)))
        };
        let (max, min) = (format!("{help}: maximum"), format!("{help}: minimum"));
        encode_family(to, &format!("{name}_max"), &max, gauge(Timing::max))?;
        encode_family(to, &format!("{name}_min"), &min, gauge(Timing::min))?;
        encode_family(to, name, help, series)
    }
}

/// The value of a series; its type decides the type of the metric.
pub(crate) trait Value {
    const TYPE: MetricType;

    fn encode(&self, to: MetricEncoder<'_>) -> fmt::Result;
}

impl Value for f64 {
    const TYPE: MetricType = MetricType::Gauge;

    fn encode(&self, mut to: MetricEncoder<'_>) -> fmt::Result {
        to.encode_gauge(self)
    }
}

impl Value for u64 {
    const TYPE: MetricType = MetricType::Counter;

    fn encode(&self, mut to: MetricEncoder<'_>) -> fmt::Result {
        to.encode_counter::<NoLabelSet, _, u64>(self, None)
    }
}

/// Encodes a metric: a gauge for `f64`, a counter for `u64` (with `_total` added to the name), a histogram for
/// [`Timing`].
pub(crate) fn encode_family<L: EncodeLabelSet, V: Value>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (L, V)>,
) -> fmt::Result {
    let mut family = to.encode_descriptor(name, help, None, V::TYPE)?;
    for (labels, value) in series {
        value.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Encodes a metric without labels, if it has a value.
pub(crate) fn encode_one<V: Value>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: Option<V>,
) -> fmt::Result {
    let family = to.encode_descriptor(name, help, None, V::TYPE)?;
    value.map_or(Ok(()), |value| value.encode(family))
}

#[cfg(test)]
mod tests;

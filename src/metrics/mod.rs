//! What the figures of /metrics are made of: one value for each set of labels, which can be forgotten.
//!
//! Why not prometheus-client's own families: a workload that is gone could be forgotten there only by
//! naming each of its series, and a family that has counted nothing yet would not show that it exists.

mod timing;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

pub(crate) use timing::Timing;

/// A value for each set of labels, shared by the code that counts and the scrape.
pub(crate) struct Family<L, V> {
    rows: Arc<Mutex<BTreeMap<L, V>>>,
    new: fn() -> V,
}

/// How often something happened.
pub(crate) type Counts<L> = Family<L, u64>;
/// How long something took.
pub(crate) type Timings<L> = Family<L, Timing>;

impl<L, V> Clone for Family<L, V> {
    fn clone(&self) -> Self {
        Self {
            rows: Arc::clone(&self.rows),
            new: self.new,
        }
    }
}

impl<L, V> fmt::Debug for Family<L, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Family")
    }
}

impl<L: Ord, V> Family<L, V> {
    /// Nothing counted yet; `new` makes the value of a set of labels that is seen first.
    pub(crate) fn new(new: fn() -> V) -> Self {
        Self {
            rows: Arc::default(),
            new,
        }
    }

    /// Shows a series before anything is counted, so that Prometheus sees the first time as an increase.
    pub(crate) fn begin(&self, labels: L) {
        self.change(labels, |_| {});
    }

    /// Forgets the series whose labels are not to be kept.
    pub(crate) fn retain(&self, keep: impl Fn(&L) -> bool) {
        self.lock().retain(|labels, _| keep(labels));
    }

    fn change(&self, labels: L, change: impl FnOnce(&mut V)) {
        change(self.lock().entry(labels).or_insert_with(self.new));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<L, V>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Ord + Clone, V: Clone> Family<L, V> {
    /// The series as they are now. The scrape encodes this copy, so that counting never waits for it.
    fn rows(&self) -> Vec<(L, V)> {
        let rows = self.lock();
        let rows = rows.iter();
        rows.map(|(labels, value)| (labels.clone(), value.clone()))
            .collect()
    }

    /// A copy of the series with these labels.
    pub(crate) fn part(&self, is_of: impl Fn(&L) -> bool) -> Self {
        let rows = self.lock();
        let part = rows.iter().filter(|(labels, _)| is_of(labels));
        let part = part.map(|(labels, value)| (labels.clone(), value.clone()));
        Self {
            rows: Arc::new(Mutex::new(part.collect())),
            new: self.new,
        }
    }
}

impl<L: Ord> Default for Counts<L> {
    fn default() -> Self {
        Self::new(u64::default)
    }
}

impl<L: Ord> Counts<L> {
    pub(crate) fn add(&self, labels: L) {
        self.change(labels, |count| *count += 1);
    }
}

impl<L: Ord + Clone + EncodeLabelSet> Counts<L> {
    /// Shows them; `_total` is added to the name.
    pub(crate) fn encode(
        &self,
        to: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
    ) -> fmt::Result {
        let rows = self.rows();
        let rows = rows.iter().map(|(labels, count)| (labels.clone(), count));
        counter(to, name, help, rows)
    }
}

impl<L: Ord> Timings<L> {
    /// Counts something that took so long.
    pub(crate) fn observe(&self, labels: L, took: Duration) {
        self.change(labels, |timing| timing.observe(took));
    }
}

impl<L: Ord + Clone + EncodeLabelSet> Timings<L> {
    /// Shows them as histograms.
    pub(crate) fn encode(
        &self,
        to: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
    ) -> fmt::Result {
        let rows = self.rows();
        let rows = rows.iter().map(|(labels, timing)| (labels.clone(), timing));
        histogram(to, name, help, rows)
    }

    /// Shows the longest and the shortest, as gauges with `_max` and `_min` added to the name.
    pub(crate) fn encode_extremes(
        &self,
        to: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
    ) -> fmt::Result {
        let rows = self.rows();
        let most = rows
            .iter()
            .map(|(labels, timing)| (labels.clone(), timing.most()));
        gauge(
            to,
            &format!("{name}_max"),
            &format!("{help}: maximum"),
            most,
        )?;
        let least = rows
            .iter()
            .map(|(labels, timing)| (labels.clone(), timing.least()));
        gauge(
            to,
            &format!("{name}_min"),
            &format!("{help}: minimum"),
            least,
        )
    }
}

pub(crate) fn gauge<L: EncodeLabelSet>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (L, f64)>,
) -> fmt::Result {
    let mut family = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in rows {
        family.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

/// Shows counters; `_total` is added to the name.
pub(crate) fn counter<'a, L: EncodeLabelSet + 'a>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (L, &'a u64)>,
) -> fmt::Result {
    let mut family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, count) in rows {
        let mut row = family.encode_family(&labels)?;
        row.encode_counter::<NoLabelSet, _, u64>(count, None)?;
    }
    Ok(())
}

pub(crate) fn histogram<'a, L: EncodeLabelSet + 'a>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (L, &'a Timing)>,
) -> fmt::Result {
    let mut family = to.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (labels, timing) in rows {
        timing.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! Histograms from pages of metrics.

use std::collections::BTreeMap;

/// A cumulative histogram: for each bound in microseconds, the number of durations up to that bound.
#[derive(Clone, Debug, Default)]
pub struct Histogram(BTreeMap<u64, u64>);

impl Histogram {
    /// Reads a histogram in seconds from a page: the sum of the series with all of these labels.
    pub fn read(page: &str, name: &str, labels: &[(&str, &str)]) -> Self {
        let mut all = BTreeMap::new();
        let rows = page.lines().filter_map(|line| line.strip_prefix(name));
        let buckets = rows.filter_map(|row| row.strip_prefix("_bucket{")?.rsplit_once("} "));
        let selected = buckets.filter(|(series, _)| {
            let mut labels = labels.iter();
            labels.all(|(label, value)| series.contains(&format!("{label}=\"{value}\"")))
        });
        for (series, count) in selected {
            let bound = series.split_once("le=\"").map_or("", |(_, rest)| rest);
            let bound = bound.split('"').next().and_then(|it| it.parse().ok());
            let bound = bound.filter(|it: &f64| it.is_finite());
            let microseconds = bound.map_or(u64::MAX, |seconds| (seconds * 1e6) as u64);
            *all.entry(microseconds).or_default() += count.trim().parse().unwrap_or(0);
        }
        Self(all)
    }

    /// The increase since an earlier reading.
    pub fn since(&self, earlier: &Self) -> Self {
        let earlier_count = |bound| earlier.0.get(bound).copied().unwrap_or(0);
        let all = self.0.iter();
        Self(
            all.map(|(bound, count)| (*bound, count.saturating_sub(earlier_count(bound))))
                .collect(),
        )
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.0.values().copied().max().unwrap_or(0)
    }

    /// The share of durations up to this many microseconds, which must be the bound of a bucket.
    pub fn share_within(&self, microseconds: u64) -> f64 {
        let within = self.0.get(&microseconds).copied();
        within.map_or(f64::NAN, |it| it as f64 / self.count() as f64)
    }

    /// A quantile in milliseconds, interpolated linearly within a bucket; NaN if there are no durations.
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = self.count() as f64 * share;
        let mut lower = (0, 0);
        for (&bound, &count) in &self.0 {
            if count > 0 && count as f64 >= rank {
                let fraction = (rank - lower.1 as f64) / (count - lower.1) as f64;
                // The last bucket has no upper bound, so its lower bound is used.
                let bound = if bound == u64::MAX { lower.0 } else { bound };
                return (lower.0 as f64 + fraction * (bound - lower.0) as f64) / 1e3;
            }
            lower = (bound, count);
        }
        f64::NAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated_in_the_sum_of_the_selected_series() {
        let page = "# TYPE took histogram\n\
                    took_bucket{kind=\"a\",le=\"0.01\"} 40\n\
                    took_bucket{kind=\"b\",le=\"0.01\"} 10\n\
                    took_bucket{kind=\"a\",le=\"0.05\"} 90\n\
                    took_bucket{kind=\"b\",le=\"0.05\"} 10\n\
                    took_bucket{kind=\"a\",le=\"+Inf\"} 90\n\
                    took_bucket{kind=\"b\",le=\"+Inf\"} 10\n\
                    took_sum{kind=\"a\"} 1\n\
                    took_longer_bucket{kind=\"a\",le=\"0.01\"} 7\n";
        let both = Histogram::read(page, "took", &[]);
        assert_eq!(both.count(), 100);
        assert_eq!((both.quantile(0.5), both.quantile(0.75)), (10.0, 30.0));
        assert_eq!(both.share_within(10_000), 0.5);
        let b = Histogram::read(page, "took", &[("kind", "b")]);
        assert_eq!((b.count(), b.share_within(10_000)), (10, 1.0));
        let nothing = both.since(&both);
        assert_eq!(nothing.count(), 0);
        assert!(nothing.quantile(0.5).is_nan());
    }
}

//! Figures from the operator's /metrics, and the processor time of processes.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::case::Case;

use crate::histogram::Histogram;

/// The histogram of planning durations.
const PLANNING: &str = "gamekeeper_planning_duration_seconds";
/// Counts how often the operator has listed all objects of a kind.
const LISTS: &str = "gamekeeper_cache_lists_total";

/// Processor time used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// By the operator.
    pub operator: Duration,
    /// By kube-controller-manager.
    pub controllers: Duration,
    /// By kube-apiserver.
    pub server: Duration,
}

impl Times {
    /// Reads the processor time used up to now; zero for an operator that is not running.
    pub fn now(case: &Case) -> Result<Self> {
        let plane = case.plane();
        let operator = match case.operator.is_running() {
            true => case.operator.processor_time()?,
            false => Duration::ZERO,
        };
        Ok(Self {
            operator,
            controllers: plane.processor_time("kube-controller-manager")?,
            server: plane.processor_time("kube-apiserver")?,
        })
    }

    /// Processor time per second, if this was used in `time`.
    pub fn per(self, time: Duration) -> Self {
        let share = |used: Duration| used.div_f64(time.as_secs_f64());
        Self {
            operator: share(self.operator),
            controllers: share(self.controllers),
            server: share(self.server),
        }
    }

    /// The processor time used since an earlier reading.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            operator: self.operator.saturating_sub(earlier.operator),
            controllers: self.controllers.saturating_sub(earlier.controllers),
            server: self.server.saturating_sub(earlier.server),
        }
    }
}

/// The values read from a page of metrics.
#[derive(Clone, Debug, Default)]
pub struct Page {
    plans: Histogram,
    /// The number of lists started, summed over all kinds.
    pub lists: u64,
}

impl Page {
    /// Reads the operator's page.
    pub async fn read(case: &Case) -> Result<Self> {
        let (code, page) = case.operator.get("/metrics").await?;
        ensure!(code == 200, "/metrics returns {code}: {page}");
        Ok(Self::parse(&page))
    }

    fn parse(page: &str) -> Self {
        let lists = page.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (name, _) = series.split_once('{').unwrap_or((series, ""));
            (name == LISTS).then(|| value.parse::<f64>().unwrap_or_default() as u64)
        });
        Self { plans: Histogram::read(page, PLANNING, &[]), lists: lists.sum() }
    }

    /// The increase since an earlier page.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            plans: self.plans.since(&earlier.plans),
            lists: self.lists.saturating_sub(earlier.lists),
        }
    }

    /// The number of plans.
    pub fn plans(&self) -> u64 {
        self.plans.count()
    }

    /// The quantile `share` of the planning durations in milliseconds; NaN if there are no plans.
    pub fn planning_quantile(&self, share: f64) -> f64 {
        self.plans.quantile(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planning_times_are_read_from_the_buckets_of_all_kinds() {
        let page = format!(
            "# TYPE {PLANNING} histogram\n\
             {PLANNING}_bucket{{kind=\"GameDeployment\",le=\"0.01\"}} 40\n\
             {PLANNING}_bucket{{kind=\"GameStatefulSet\",le=\"0.01\"}} 10\n\
             {PLANNING}_bucket{{kind=\"GameDeployment\",le=\"0.05\"}} 90\n\
             {PLANNING}_bucket{{kind=\"GameStatefulSet\",le=\"0.05\"}} 10\n\
             {PLANNING}_bucket{{kind=\"GameDeployment\",le=\"+Inf\"}} 90\n\
             {PLANNING}_bucket{{kind=\"GameStatefulSet\",le=\"+Inf\"}} 10\n\
             {LISTS}{{kind=\"Pod\"}} 2\n\
             {LISTS}{{kind=\"Node\"}} 1\n"
        );
        let page = Page::parse(&page);
        assert_eq!((page.plans(), page.lists), (100, 3));
        assert_eq!(page.planning_quantile(0.5), 10.0);
        assert_eq!(page.planning_quantile(0.75), 30.0);
        let nothing = page.since(&page);
        assert_eq!((nothing.plans(), nothing.lists), (0, 0));
        assert!(nothing.planning_quantile(0.5).is_nan());
    }
}

//! What became of HookRuns and their measurements, under the names that boards made for bk-bcs ask
//! for. bk-bcs labels them by run too, which never ends: here it is by the run's owner.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};

use crate::api::names::{HookPoint, WorkloadKind};
use crate::api::{HookPhase, HookRun};
use crate::apply::{BUCKETS, Ended};
use crate::metrics::{Counts, Timing, Timings};

/// Durations and ends of HookRuns.
#[derive(Clone, Debug)]
pub struct HookMetrics {
    looks: Timings<Looked>,
    runs: Timings<Ran>,
    measurements: Timings<Measured>,
    ends: Counts<End>,
}

/// Whose runs these are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
pub struct Owner {
    /// Namespace.
    pub namespace: String,
    /// `KIND|NAME` of the owner as bk-bcs writes it; empty for runs that nobody owns.
    pub owner: String,
}

impl Owner {
    /// The owner of a run.
    pub fn of(run: &HookRun) -> Self {
        let owners = run.metadata.owner_references.as_deref();
        let owner = owners.and_then(<[_]>::first);
        Self {
            namespace: run.metadata.namespace.clone().unwrap_or_default(),
            owner: owner
                .map(|owner| format!("{}|{}", owner.kind, owner.name))
                .unwrap_or_default(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct Looked {
    #[prometheus(flatten)]
    of: Owner,
    status: Ended,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct Ran {
    #[prometheus(flatten)]
    of: Owner,
    action: &'static str,
    status: Ended,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct Measured {
    #[prometheus(flatten)]
    of: Owner,
    metric: String,
    phase: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct End {
    point: &'static str,
    phase: String,
}

impl Default for HookMetrics {
    fn default() -> Self {
        fn timings<L: Ord>() -> Timings<L> {
            Timings::new(|| Timing::new(&BUCKETS))
        }
        Self {
            looks: timings(),
            runs: timings(),
            measurements: timings(),
            ends: Counts::default(),
        }
    }
}

impl HookMetrics {
    /// Counts a look at a run.
    pub(super) fn looked(&self, run: &HookRun, well: bool, took: Duration) {
        let (of, status) = (Owner::of(run), Ended::well(well));
        self.looks.observe(Looked { of, status }, took);
    }

    /// Counts a run that ended after so long.
    pub(super) fn ended(&self, run: &HookRun, phase: HookPhase, took: Duration) {
        let ran = Ran {
            of: Owner::of(run),
            action: "executeHookRun",
            status: Ended::well(phase == HookPhase::Successful),
        };
        self.runs.observe(ran, took);
        let end = End {
            point: point(run).map_or("Manual", |(_, point)| point.as_str()),
            phase: phase.to_string(),
        };
        self.ends.add(end);
    }

    /// Counts a measurement. What nobody owns may name its metrics at will, so they are not told apart.
    pub(super) fn measured(&self, run: &HookRun, metric: &str, phase: HookPhase, took: Duration) {
        let of = Owner::of(run);
        let metric = if of.owner.is_empty() { "" } else { metric };
        let measured = Measured {
            of,
            metric: metric.to_owned(),
            phase: phase.to_string(),
        };
        self.measurements.observe(measured, took);
    }

    /// Forgets owners that are gone.
    pub fn retain(&self, is_there: impl Fn(&Owner) -> bool) {
        self.looks.retain(|it| is_there(&it.of));
        self.runs.retain(|it| is_there(&it.of));
        self.measurements.retain(|it| is_there(&it.of));
    }
}

/// The kind of workload that a run was made for, and the point; None when somebody else made it.
pub fn point(run: &HookRun) -> Option<(WorkloadKind, HookPoint)> {
    let mut kinds = WorkloadKind::ALL.into_iter();
    kinds.find_map(|kind| Some((kind, run.point(kind)?)))
}

impl Collector for HookMetrics {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let to = &mut to;
        let name = "bkbcs_hook_reconcile_duration_seconds";
        self.looks
            .encode(to, name, "Time of one look at a HookRun")?;
        let name = "bkbcs_hook_hookrun_exec_duration_seconds";
        let help = "Time from the start of a HookRun to its end";
        self.runs.encode(to, name, help)?;
        self.runs.encode_extremes(to, name, help)?;
        let name = "bkbcs_hook_metric_exec_duration_seconds";
        let help = "Time of one measurement of a HookRun";
        self.measurements.encode(to, name, help)?;
        self.measurements.encode_extremes(to, name, help)?;
        let help = "HookRuns that have ended";
        self.ends.encode(to, "gamekeeper_hook_runs_ended", help)
    }
}

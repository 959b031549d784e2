//! The table of `bench fleet`.

use std::fmt;
use std::time::Duration;

use super::restart::Restart;
use crate::scale::figures::Times;

/// The results.
pub struct Measured {
    /// The number of pods.
    pub pods: usize,
    /// The number of pods of each workload.
    pub per_workload: usize,
    /// The number of pods of another controller.
    pub foreign: usize,
    /// The creation of each tenth of the pods.
    pub tenths: Vec<Tenth>,
    /// Resident memory in bytes that the pods added.
    pub memory: u64,
    /// At rest.
    pub rest: Rest,
    /// An update of one workload.
    pub update: Update,
    /// The size of /metrics, and the time until it was read.
    pub page: (usize, Duration),
    /// Restarts after kill -9.
    pub restarts: Vec<Restart>,
    /// Takeovers by the standby, until it creates a pod.
    pub takeovers: Vec<Duration>,
}

/// The creation of a tenth of the pods.
pub struct Tenth {
    /// The number of pods.
    pub pods: usize,
    /// Until all are ready.
    pub took: Duration,
    /// Until the operator is at rest again.
    pub whole: Duration,
    /// Processor time meanwhile.
    pub times: Times,
    /// Processor time at rest afterwards, per second.
    pub rest: Times,
}

/// Processor time at rest, per second.
pub struct Rest {
    /// While the operator runs.
    pub with: Times,
    /// While it does not.
    pub without: Times,
}

/// An update in place of one workload.
pub struct Update {
    /// Until all pods are ready at the new image.
    pub took: Duration,
    /// Processor time until the operator is at rest.
    pub times: Times,
}

impl Tenth {
    /// Milliseconds of the operator's processor time for each pod, without what it takes at rest.
    fn per_pod(&self) -> f64 {
        let at_rest = self.rest.operator.as_secs_f64() * self.whole.as_secs_f64();
        (self.times.operator.as_secs_f64() - at_rest) * 1e3 / self.pods as f64
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths: Vec<f64> = self.tenths.iter().map(Tenth::per_pod).collect();
        let growth =
            tenths.last().zip(tenths.first()).map_or(f64::NAN, |(last, first)| last / first);
        let tenths: Vec<String> = tenths.iter().map(|it| format!("{it:.2}")).collect();
        let took: f64 = self.tenths.iter().map(|it| it.took.as_secs_f64()).sum();
        let share = |time: Duration| format!("{:.2} %", time.as_secs_f64() * 1e2);
        let watches = self.rest.with.server.saturating_sub(self.rest.without.server);
        let updated = self.per_workload as f64;
        let restarts = |pick: fn(&Restart) -> Duration| median(self.restarts.iter().map(pick));
        let rows = [
            ("created", format!("{:.0} pods/s", self.pods as f64 / took)),
            ("operator's CPU time per pod, by tenths", format!("{} ms", tenths.join(", "))),
            ("last tenth to first", format!("{growth:.2}")),
            (
                "resident memory per pod",
                format!("{:.2} kB", self.memory as f64 / self.pods as f64 / 1e3),
            ),
            ("operator at rest, share of a core", share(self.rest.with.operator)),
            ("kube-apiserver at rest, of which for our watches", {
                format!("{}, {}", share(self.rest.with.server), share(watches))
            }),
            (
                "an update in place of one workload",
                format!("{:.1} s", self.update.took.as_secs_f64()),
            ),
            (
                "operator's CPU time per updated pod",
                format!("{:.2} ms", self.update.times.operator.as_secs_f64() * 1e3 / updated),
            ),
            (
                "/metrics",
                format!("{} kB in {:.0} ms", self.page.0 / 1000, self.page.1.as_secs_f64() * 1e3),
            ),
            ("kill -9: until ready, until it acts", {
                format!("{}, {}", restarts(|it| it.ready), restarts(|it| it.acts))
            }),
            ("takeover by the standby: until it acts", median(self.takeovers.iter().copied())),
        ];
        let (pods, each) = (self.pods, self.per_workload);
        write!(f, "| {pods} pods in workloads of {each}")?;
        if self.foreign > 0 {
            write!(f, ", beside {} pods of another controller", self.foreign)?;
        }
        writeln!(f, " | |\n|---|---|")?;
        for (name, value) in rows {
            writeln!(f, "| {name} | {value} |")?;
        }
        Ok(())
    }
}

fn median(times: impl Iterator<Item = Duration>) -> String {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    format!("{:.1} s", median.as_secs_f64())
}

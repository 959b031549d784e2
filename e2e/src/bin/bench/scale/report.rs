//! The tables of `bench scale`.

use std::fmt;
use std::time::Duration;

use super::figures::{Page, Times};
use super::fleet::{Fleet, Phase};

/// The results of one fleet.
#[derive(Debug)]
pub struct Measured {
    /// The fleet.
    pub fleet: Fleet,
    /// The number of pods.
    pub pods: usize,
    /// The results of each phase.
    pub phases: Vec<PhaseMeasured>,
    /// Memory in bytes that the pods added to the operator; None without an operator.
    pub memory: Option<u64>,
    /// How often the operator has listed all objects of a kind since the first phase began.
    pub lists: u64,
}

/// The results of one phase.
#[derive(Debug)]
pub struct PhaseMeasured {
    /// The phase.
    pub phase: Phase,
    /// The steps: the first tenth of the pods, those between, and the last tenth.
    pub steps: Vec<Step>,
    /// How long it took until the status showed each pause.
    pub pauses: Vec<Duration>,
    /// The increase of the operator's metrics during the phase.
    pub page: Page,
}

/// The results of one step of a phase.
#[derive(Debug)]
pub struct Step {
    /// The number of pods in it.
    pub pods: usize,
    /// Time from the patch to the last pod.
    pub took: Duration,
    /// Processor time used until the operator was at rest.
    pub times: Times,
}

impl Step {
    /// Milliseconds of processor time per pod.
    fn per_pod(&self, pick: fn(&Times) -> Duration) -> f64 {
        pick(&self.times).as_secs_f64() * 1e3 / self.pods as f64
    }
}

impl PhaseMeasured {
    fn rate(&self) -> f64 {
        let took: f64 = self.steps.iter().map(|step| step.took.as_secs_f64()).sum();
        self.pods() / took
    }

    fn pods(&self) -> f64 {
        self.steps.iter().map(|step| step.pods as f64).sum()
    }

    /// Milliseconds of processor time per pod, over all steps.
    fn per_pod(&self, pick: fn(&Times) -> Duration) -> f64 {
        let times = self.steps.iter().map(|step| pick(&step.times));
        times.sum::<Duration>().as_secs_f64() * 1e3 / self.pods()
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let controller_time: fn(&Times) -> Duration = match self.fleet {
            Fleet::Native => |times| times.controllers,
            _ => |times| times.operator,
        };
        let controller = match self.fleet {
            Fleet::Native => "kube-controller-manager",
            _ => "operator",
        };
        writeln!(
            f,
            "| {}, {} pods | pods/s | {controller}, ms per pod: first tenth | between | last tenth | last to first | kube-controller-manager | kube-apiserver |",
            self.fleet.name(),
            self.pods
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|")?;
        for phase in &self.phases {
            let steps = phase.steps.iter().map(|step| step.per_pod(controller_time));
            let steps: Vec<f64> = steps.collect();
            let cells: Vec<String> = steps.iter().map(|step| format!("{step:.2}")).collect();
            let growth = steps.last().zip(steps.first()).map_or(f64::NAN, |(b, a)| b / a);
            writeln!(
                f,
                "| {} | {:.0} | {} | {growth:.2} | {:.2} | {:.2} |",
                phase.phase.name(),
                phase.rate(),
                cells.join(" | "),
                phase.per_pod(|times| times.controllers),
                phase.per_pod(|times| times.server),
            )?;
        }
        let Some(memory) = self.memory else {
            return Ok(());
        };
        writeln!(f)?;
        for phase in &self.phases {
            let page = &phase.page;
            write!(
                f,
                "{}: {} plans, p50 {:.1} ms, p99 {:.1} ms",
                phase.phase.name(),
                page.plans(),
                page.planning_quantile(0.5),
                page.planning_quantile(0.99)
            )?;
            if let Some(longest) = phase.pauses.iter().max() {
                let count = phase.pauses.len();
                write!(f, "; {count} pauses, observed after {longest:.2?} at most")?;
            }
            writeln!(f)?;
        }
        let per_pod = memory as f64 / self.pods as f64 / 1024.0;
        writeln!(
            f,
            "memory: {per_pod:.1} kB more per pod, garbage included; {} lists after the first ones",
            self.lists
        )
    }
}

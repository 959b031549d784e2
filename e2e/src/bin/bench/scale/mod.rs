//! `bench scale`: what ten thousand pods cost, and whether the last thousand cost more than the first.
//!
//! Each phase has three steps: to a tenth of the pods, to nine tenths, and to all of them. A step ends when the
//! operator is at rest again, so no step's work is counted in another. The operator's processor time is compared,
//! because it grows if a loop is quadratic, whatever else the machine does. `scale deployment`,
//! `hot-patch`, `set`, `many`, `native` and `foreign` measure one part each, because each takes minutes; a number
//! after the name sets the number of pods, and `foreign` measures twice that number.

pub mod figures;
mod fleet;
pub mod foreign;
mod pause;
mod report;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use e2e::case::Case;
use e2e::cluster::control_plane::ControlPlane;
use e2e::wait::eventually;

use self::figures::{Page, Times};
use self::fleet::{Fleet, Phase};
use self::pause::Pauses;
use self::report::{Measured, PhaseMeasured, Step};
use crate::pods::Pods;

/// The default number of pods.
pub const PODS: usize = 10_000;
/// The share of a core below which an operator is at rest.
const REST_SHARE: f64 = 0.05;
/// How long an operator must stay below that share.
const REST_DURATION: Duration = Duration::from_secs(2);
/// How long to wait until an operator is at rest. The garbage collector deletes the claims of thousands of pods long
/// after the pods, and each of these deletions is an event for the operator.
const LIMIT: Duration = Duration::from_secs(900);

/// A part of this benchmark.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// A fleet, and the phases that it goes through.
    Fleet(Fleet, &'static [Phase]),
    /// Pods that no GameDeployment or GameStatefulSet controls.
    Foreign,
}

impl Part {
    /// All parts, with their names.
    pub const ALL: [(&'static str, Part); 6] = [
        (
            "deployment",
            Part::Fleet(Fleet::Deployment, &[Phase::Create, Phase::Update, Phase::Delete]),
        ),
        (
            "hot-patch",
            Part::Fleet(Fleet::Deployment, &[Phase::Create, Phase::HotPatch, Phase::Delete]),
        ),
        ("set", Part::Fleet(Fleet::Set, &[Phase::Create, Phase::Update, Phase::Delete])),
        ("many", Part::Fleet(Fleet::Many, &[Phase::Create, Phase::Update, Phase::Delete])),
        ("native", Part::Fleet(Fleet::Native, &[Phase::Create, Phase::Delete])),
        ("foreign", Part::Foreign),
    ];

    /// Measures this part once, and returns its table.
    async fn measure(
        self,
        plane: &'static ControlPlane,
        name: &str,
        pods: usize,
    ) -> Result<String> {
        Ok(match self {
            Part::Fleet(fleet, phases) => {
                measure_fleet(plane, name, fleet, phases, pods).await?.to_string()
            }
            Part::Foreign => foreign::measure(plane, 2 * pods).await?.to_string(),
        })
    }
}

/// Measures one part, or all of them one after the other, and returns their tables.
pub async fn measure(
    plane: &'static ControlPlane,
    part: Option<&str>,
    pods: usize,
) -> Result<String> {
    let is_selected = |(name, _): &&(&str, Part)| part.is_none_or(|part| part == *name);
    let parts: Vec<_> = Part::ALL.iter().filter(is_selected).collect();
    if parts.is_empty() {
        bail!("scale has the parts {:?}", Part::ALL.map(|(name, _)| name));
    }
    let mut tables = Vec::new();
    for (name, part) in parts {
        tables.push(part.measure(plane, name, pods).await?);
    }
    Ok(tables.join("\n"))
}

/// Opens a namespace with an operator of its own, which gets these further arguments.
pub async fn open(
    plane: &'static ControlPlane,
    name: &str,
    args: &[&str],
) -> Result<(Case, PathBuf)> {
    let folder = std::env::temp_dir().join(format!("bench-{name}-{}", std::process::id()));
    let mut case = Case::prepare(plane, &format!("bench-{name}"), &folder).await?;
    case.operator.add_args(args.iter().map(|&arg| arg.to_owned()).collect());
    case.operator.start().await?;
    Ok((case, folder))
}

async fn measure_fleet(
    plane: &'static ControlPlane,
    name: &str,
    fleet: Fleet,
    phases: &[Phase],
    pods: usize,
) -> Result<Measured> {
    let (mut case, folder) = open(plane, name, &[]).await?;
    if fleet == Fleet::Native {
        case.operator.terminate().await?;
    }
    fleet.prepare(&mut case, pods).await?;
    let run =
        Run { pods: Pods::watch(plane.client(), &case.namespace), fleet, case: &case, size: pods };
    let measured = run.measure(phases).await?;
    if case.operator.is_running() {
        case.operator.terminate().await?;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(measured)
}

struct Run<'a> {
    case: &'a Case,
    fleet: Fleet,
    pods: Pods,
    size: usize,
}

impl Run<'_> {
    async fn measure(&self, phases: &[Phase]) -> Result<Measured> {
        until_at_rest(self.case).await?;
        let lists = self.page().await?.lists;
        let memory = self.case.operator.memory().ok();
        let mut measured = Measured {
            fleet: self.fleet,
            pods: self.size,
            phases: Vec::new(),
            memory: None,
            lists: 0,
        };
        for &phase in phases {
            measured.phases.push(self.phase(phase).await?);
            // Printed now, so that the results are not lost if a later phase fails.
            eprintln!("{measured}");
            if phase == Phase::Create {
                let now = self.case.operator.memory().ok();
                let grown = memory.zip(now);
                measured.memory = grown.map(|(before, now)| now.saturating_sub(before));
            }
        }
        measured.lists = self.page().await?.lists - lists;
        Ok(measured)
    }

    async fn phase(&self, phase: Phase) -> Result<PhaseMeasured> {
        let tenth = self.size / 10;
        let bounds = [(0, tenth), (tenth, self.size - tenth), (self.size - tenth, self.size)];
        let before = self.page().await?;
        let mut pauses = Pauses::default();
        let mut steps = Vec::new();
        for (from, to) in bounds {
            eprintln!("{}: {} from {from} to {to}", self.fleet.name(), phase.name());
            let is_middle = to - from > tenth;
            let (times, started) = (Times::now(self.case)?, Instant::now());
            self.fleet.start_step(self.case, phase, (from, to, self.size)).await?;
            let completed = self.pods.until(phase.name(), |pods| phase.is_at(to, self.size, pods));
            tokio::select! {
                result = completed => result?,
                Err(error) = pauses.measure(self, phase, (from, to)), if is_middle && self.fleet.is_single_game_workload() => {
                    return Err(error);
                }
            }
            let took = started.elapsed();
            until_at_rest(self.case).await?;
            steps.push(Step { pods: to - from, took, times: Times::now(self.case)?.since(times) });
        }
        Ok(PhaseMeasured {
            phase,
            steps,
            pauses: pauses.delays,
            page: self.page().await?.since(&before),
        })
    }

    async fn page(&self) -> Result<Page> {
        match self.case.operator.is_running() {
            true => Page::read(self.case).await,
            false => Ok(Page::default()),
        }
    }
}

/// Waits until the operator is at rest, or kube-controller-manager if no operator is running.
pub async fn until_at_rest(case: &Case) -> Result<()> {
    let processor_time = |times: Times| match case.operator.is_running() {
        true => times.operator,
        false => times.controllers,
    };
    let mut last_busy = (Instant::now(), processor_time(Times::now(case)?));
    eventually("at rest", LIMIT, async || {
        let used = processor_time(Times::now(case)?).saturating_sub(last_busy.1);
        if used.as_secs_f64() > REST_SHARE * REST_DURATION.as_secs_f64() {
            last_busy = (Instant::now(), processor_time(Times::now(case)?));
        }
        anyhow::ensure!(last_busy.0.elapsed() > REST_DURATION, "{used:?} within {REST_DURATION:?}");
        Ok(())
    })
    .await
}

//! Plays a history.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use judge::Violation;
use tokio::time::{Instant, sleep_until};

use super::history::History;
use super::moment::Moment;
use super::settle::settle;
use super::workload::Kind;
use crate::case::{Case, evidence};
use crate::cluster::control_plane::ControlPlane;
use crate::faults::clock::Clock;
use crate::faults::{FaultProxy, Tally};
use crate::workload::view::View;

/// Replicas at the end.
const REPLICAS: i64 = 3;

/// What became of a history.
#[derive(Debug)]
pub struct Ended {
    /// The history.
    pub history: History,
    /// Faults that the proxy played.
    pub faults: Tally,
    /// Writes of the operator that took effect.
    pub writes: u64,
    /// kill -9.
    pub kills: u64,
    /// Jumps of the clock.
    pub jumps: u64,
    /// What the judge found.
    pub violations: Vec<Violation>,
    /// What was missing when all should have settled.
    pub unsettled: Option<String>,
    /// How long settling took.
    pub settled_after: Duration,
    /// Why it could not be played to its end.
    pub broken: Option<String>,
}

impl Ended {
    /// Whether all is as it must be.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty() && self.unsettled.is_none() && self.broken.is_none()
    }
}

/// Plays a history in a namespace of its own. `folder` keeps what is worth reading if it ends badly.
pub async fn play(plane: &'static ControlPlane, history: History, folder: &Path) -> Ended {
    let mut ended = Ended {
        faults: Tally::default(),
        writes: 0,
        kills: 0,
        jumps: 0,
        violations: Vec::new(),
        unsettled: None,
        settled_after: Duration::ZERO,
        broken: None,
        history,
    };
    if let Err(error) = try_play(plane, &mut ended, folder).await {
        ended.broken = Some(format!("{error:#}"));
    }
    ended
}

async fn try_play(plane: &'static ControlPlane, ended: &mut Ended, folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    let name = format!("history-{}", ended.history.seed);
    let mut case = Case::prepare(plane, &name, folder).await?;
    let played = in_case(&mut case, ended).await;
    let judged = judge(&mut case, ended).await;
    let outcome = played.and(judged);
    if let Err(error) = &outcome {
        ended.broken = Some(format!("{error:#}"));
    }
    match ended.is_good() {
        true => std::fs::remove_dir_all(folder)?,
        false => {
            let told = ended.to_string();
            std::fs::write(folder.join("history.txt"), &told)?;
            evidence::collect(&case, &told).await;
        }
    }
    plane.audit.forget(&case.namespace);
    plane
        .delete(&format!("/api/v1/namespaces/{}", case.namespace))
        .await?;
    outcome
}

/// Everything but the judgement.
async fn in_case(case: &mut Case, ended: &mut Ended) -> Result<()> {
    let history = ended.history.clone();
    if history.kind == Kind::Set {
        case.is_about_a_set();
    }
    let proxy = case.plane().fault_proxy().await?;
    case.operator.go_through(&proxy)?;
    case.operator.elect_no_more();
    let clock = match history.has_jumps() {
        true => Some(Clock::new(case.folder())?),
        false => None,
    };
    if let Some(clock) = &clock {
        case.operator.go_by(clock);
    }
    case.call_witness().await?;
    case.operator.start().await?;
    Moment::Hook(history.says).happen(case).await?;
    case.create(&history.workload.hook_template(&case.hooks))
        .await?;
    case.create(&history.workload.game.clone().into()).await?;
    let up = |view: &View| view.counts() == [history.replicas; 5];
    case.until("all pods are up", up).await?;

    let disturbed = disturb(case, &proxy, clock.as_ref(), ended).await;
    proxy.heal();
    ended.faults = proxy.tally();
    disturbed?;
    if let Some(clock) = &clock {
        clock.jump(0)?;
    }
    let begun = Instant::now();
    ended.unsettled = settle(case, REPLICAS).await?;
    ended.settled_after = begun.elapsed();
    ensure!(
        case.operator.has_survived()?,
        "the operator ended by itself"
    );
    Ok(())
}

/// Lets the moments happen while the proxy plays its script.
async fn disturb(
    case: &mut Case,
    proxy: &FaultProxy,
    clock: Option<&Clock>,
    ended: &mut Ended,
) -> Result<()> {
    proxy.play(ended.history.script.clone());
    let begun = Instant::now();
    for (at, moment) in ended.history.moments.clone() {
        sleep_until(begun + at).await;
        match moment {
            Moment::Kill => {
                case.kill_operator().await?;
                case.operator.launch().await?;
                ended.kills += 1;
            }
            Moment::Clock(seconds) => {
                clock
                    .context("a history with jumps has a clock")?
                    .jump(seconds)?;
                ended.jumps += 1;
            }
            moment => moment.happen(case).await?,
        }
    }
    sleep_until(begun + ended.history.length()).await;
    Ok(())
}

async fn judge(case: &mut Case, ended: &mut Ended) -> Result<()> {
    ended.violations = case.judged().await?;
    let events = case.events()?;
    let made = events.iter().filter(|event| event.succeeded());
    ended.writes = made.count() as u64;
    let log = std::fs::read_to_string(case.operator.log())?;
    ensure!(!log.contains("panicked at"), "the operator panicked");
    ensure!(
        ended.writes > 0,
        "the API server knows of no write of the operator's account"
    );
    Ok(())
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.history.seed;
        writeln!(f, "{}", self.history)?;
        for violation in &self.violations {
            writeln!(f, "violation: {violation}")?;
        }
        if let Some(missing) = &self.unsettled {
            writeln!(f, "not settled: {missing}")?;
        }
        if let Some(error) = &self.broken {
            writeln!(f, "not played to its end: {error}")?;
        }
        write!(f, "again: make campaign SEED={seed} COUNT=1")
    }
}

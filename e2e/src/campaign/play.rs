//! Plays a history.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use judge::Violation;
use tokio::time::{Instant, sleep_until};

use super::history::History;
use super::settle::settle;
use super::stimulus::Stimulus;
use super::workload::Kind;
use crate::case::{Case, evidence};
use crate::cluster::control_plane::ControlPlane;
use crate::faults::clock::Clock;
use crate::faults::{FaultProxy, Tally};
use crate::workload::view::View;

/// Replicas at the end.
const REPLICAS: i64 = 3;

/// The outcome of a history.
#[derive(Debug)]
pub struct Outcome {
    /// The history.
    pub history: History,
    /// Faults that the proxy injected.
    pub faults: Tally,
    /// Writes of the operator that took effect.
    pub writes: u64,
    /// How often the operator was killed.
    pub kills: u64,
    /// How often the operator's clock jumped.
    pub jumps: u64,
    /// What the judge found.
    pub violations: Vec<Violation>,
    /// The state of the workload, if it did not settle in time.
    pub unsettled: Option<String>,
    /// How long settling took.
    pub settled_after: Duration,
    /// Why the history was aborted.
    pub aborted: Option<String>,
}

impl Outcome {
    /// Whether the history passed.
    pub fn passed(&self) -> bool {
        self.violations.is_empty() && self.unsettled.is_none() && self.aborted.is_none()
    }
}

/// Plays a history in a namespace of its own. If it fails, its files are kept in `folder`.
pub async fn play(plane: &'static ControlPlane, history: History, folder: &Path) -> Outcome {
    let mut outcome = Outcome {
        faults: Tally::default(),
        writes: 0,
        kills: 0,
        jumps: 0,
        violations: Vec::new(),
        unsettled: None,
        settled_after: Duration::ZERO,
        aborted: None,
        history,
    };
    if let Err(error) = try_play(plane, &mut outcome, folder).await {
        outcome.aborted = Some(format!("{error:#}"));
    }
    outcome
}

async fn try_play(
    plane: &'static ControlPlane,
    outcome: &mut Outcome,
    folder: &Path,
) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    let name = format!("history-{}", outcome.history.seed);
    let mut case = Case::prepare(plane, &name, folder).await?;
    let played = play_in_case(&mut case, outcome).await;
    let judged = judge(&mut case, outcome).await;
    let result = played.and(judged);
    if let Err(error) = &result {
        outcome.aborted = Some(format!("{error:#}"));
    }
    match outcome.passed() {
        true => std::fs::remove_dir_all(folder)?,
        false => {
            let report = outcome.to_string();
            std::fs::write(folder.join("history.txt"), &report)?;
            evidence::collect(&case, &report).await;
        }
    }
    plane.audit.forget(&case.namespace);
    plane.delete(&format!("/api/v1/namespaces/{}", case.namespace)).await?;
    result
}

/// Plays the history, without judging it.
async fn play_in_case(case: &mut Case, outcome: &mut Outcome) -> Result<()> {
    let history = outcome.history.clone();
    if history.kind == Kind::Set {
        case.use_stateful_set();
    }
    let proxy = case.plane().fault_proxy().await?;
    case.operator.use_proxy(&proxy)?;
    case.operator.disable_leader_election();
    let clock = match history.has_jumps() {
        true => Some(Clock::new(case.folder())?),
        false => None,
    };
    if let Some(clock) = &clock {
        case.operator.use_clock(clock);
    }
    case.start_witness().await?;
    case.operator.start().await?;
    Stimulus::Answer(history.answer).apply(case).await?;
    case.create(&history.workload.hook_template(&case.hooks)).await?;
    case.create(&history.workload.game.clone().into()).await?;
    let are_up = |view: &View| view.counts() == [history.replicas; 5];
    case.until("all pods are up", are_up).await?;

    let disturbed = disturb(case, &proxy, clock.as_ref(), outcome).await;
    proxy.heal();
    outcome.faults = proxy.tally();
    disturbed?;
    if let Some(clock) = &clock {
        clock.jump(0)?;
    }
    let started = Instant::now();
    outcome.unsettled = settle(case, REPLICAS).await?;
    outcome.settled_after = started.elapsed();
    // An operator that was launched at the end does not handle signals yet.
    case.operator.until_ready().await?;
    Ok(())
}

/// Applies the stimuli while the proxy plays its script.
async fn disturb(
    case: &mut Case,
    proxy: &FaultProxy,
    clock: Option<&Clock>,
    outcome: &mut Outcome,
) -> Result<()> {
    proxy.play(outcome.history.script.clone());
    let started = Instant::now();
    for (at, stimulus) in outcome.history.stimuli.clone() {
        sleep_until(started + at).await;
        match stimulus {
            Stimulus::Kill => {
                case.kill_operator().await?;
                case.operator.launch().await?;
                outcome.kills += 1;
            }
            Stimulus::Clock(seconds) => {
                clock.context("the history has jumps, but no clock")?.jump(seconds)?;
                outcome.jumps += 1;
            }
            stimulus => stimulus.apply(case).await?,
        }
    }
    sleep_until(started + outcome.history.length()).await;
    Ok(())
}

async fn judge(case: &mut Case, outcome: &mut Outcome) -> Result<()> {
    outcome.violations = case.violations().await?;
    let events = case.events()?;
    let writes = events.iter().filter(|event| event.succeeded());
    outcome.writes = writes.count() as u64;
    let log = std::fs::read_to_string(case.operator.log())?;
    ensure!(!log.contains("panicked at"), "the operator panicked");
    ensure!(outcome.writes > 0, "the audit log contains no write by the operator's account");
    Ok(())
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.history.seed;
        writeln!(f, "{}", self.history)?;
        for violation in &self.violations {
            writeln!(f, "violation: {violation}")?;
        }
        if let Some(missing) = &self.unsettled {
            writeln!(f, "not settled: {missing}")?;
        }
        if let Some(error) = &self.aborted {
            writeln!(f, "aborted: {error}")?;
        }
        write!(f, "to reproduce: make campaign SEED={seed} COUNT=1")
    }
}

//! `make bench`: how fast 1,000 pods are created, updated in place and deleted, and how many writes that takes;
//! how 10,000 HookRuns perform, what guards cost, how soon the standby takes over, what sidecars cost, and what one
//! tenant can cost another.
//! `bench deployments`, `sets`, `hooks`, `guard`, `leader` and `tenants` each measure a part of this; a number after
//! the name sets the number of rounds, HookRuns, pods, takeovers or rollouts. `tenants all_at_once` and the like measure
//! a single attack.
//! `bench sidecars` measures SidecarSets: `sidecars own` for pods of workloads, `sidecars inject` for pods of
//! other controllers; a number after the name sets the number of pods.
//! `bench view` measures the page of `kubectl game view` in Chromium; a number after the name sets the number of pods.
//! `bench fleet` measures what 20,000 pods of many workloads cost, also at rest, and how soon they are in the operator's hands
//! after it was killed; a number after the name sets the number of pods.
//! `bench scale` measures what 10,000 pods cost. It takes an hour, so `make bench` does not include it. `scale set`
//! and the like measure a part of that; a number after the name sets the number of pods.
//!
//! Machines are noisy, so no figure here is absolute: in each round the operator, a native Deployment or
//! StatefulSet, and a bare client that makes only the unavoidable writes do the same work, one after the other, on
//! the same cluster. The table shows medians over the rounds, and medians of the rounds' ratios. Only takeovers have
//! a limit, because the durations of a lease are the same on every machine; if a takeover exceeds it, the benchmark
//! ends with an error.

mod bare;
mod fleet;
mod guard;
mod histogram;
mod hooks;
mod leader;
mod pods;
mod report;
mod scale;
mod sidecars;
mod subject;
mod tenants;
mod view;

use anyhow::{Result, bail};
use e2e::cluster::control_plane::ControlPlane;

use report::{Report, Round};
use subject::Subject;

/// The number of pods of each subject.
const PODS: usize = 1000;
/// The number of pods that may be unavailable during an update.
const MAX_UNAVAILABLE: usize = 100;
/// The default number of rounds.
const ROUNDS: usize = 3;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1).peekable();
    let mut word = || args.next_if(|arg| arg.parse::<usize>().is_err());
    let (part, subpart) = (word(), word());
    let number = args.next().and_then(|text| text.parse().ok());
    let plane: &'static ControlPlane = Box::leak(Box::new(ControlPlane::start().await?));
    let outcome = tokio::select! {
        outcome = run(plane, part.as_deref(), subpart.as_deref(), number) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    plane.stop().await?;
    let (table, within_limits) = outcome?;
    println!("{table}");
    within_limits
}

/// Measures a part, or everything. Returns the tables, and an error if a limit was exceeded.
async fn run(
    plane: &'static ControlPlane,
    part: Option<&str>,
    subpart: Option<&str>,
    number: Option<usize>,
) -> Result<(String, Result<()>)> {
    let rounds = number.unwrap_or(ROUNDS);
    let deployments = async || measure_rounds(plane, &Subject::DEPLOYMENTS, rounds).await;
    let sets = async || measure_rounds(plane, &Subject::SETS, rounds).await;
    let table = match part {
        Some("deployments") => deployments().await?.to_string(),
        Some("sets") => sets().await?.to_string(),
        Some("hooks") => {
            let runs = number.unwrap_or(hooks::RUNS);
            hooks::measure(plane, runs).await?.to_string()
        }
        Some("guard") => {
            let pods = number.unwrap_or(guard::PODS);
            guard::measure(plane, pods).await?.to_string()
        }
        Some("leader") => {
            let runs = number.unwrap_or(leader::RUNS);
            let leader = leader::measure(plane, runs).await?;
            return Ok((leader.to_string(), leader.check_limits()));
        }
        Some("tenants") => {
            let rollouts = number.unwrap_or(tenants::ROLLOUTS);
            tenants::measure(subpart, rollouts).await?.to_string()
        }
        Some("scale") => {
            let pods = number.unwrap_or(scale::PODS);
            scale::measure(plane, subpart, pods).await?
        }
        Some("fleet") => {
            let pods = number.unwrap_or(fleet::PODS);
            fleet::measure(plane, subpart, pods).await?.to_string()
        }
        Some("view") => view::measure(plane, number.unwrap_or(view::PODS)).await?.to_string(),
        Some("sidecars") => sidecars::measure(plane, subpart, number).await?,
        Some(part) => {
            bail!(
                "{part} is not one of deployments, sets, hooks, guard, leader, tenants, sidecars, scale, fleet, view"
            )
        }
        None => {
            let (deployments, sets) = (deployments().await?, sets().await?);
            eprintln!("{} HookRuns", hooks::RUNS);
            let hooks = hooks::measure(plane, hooks::RUNS).await?;
            let guard = guard::measure(plane, guard::PODS).await?;
            eprintln!("{} takeovers", 2 * leader::RUNS);
            let leader = leader::measure(plane, leader::RUNS).await?;
            let sidecars = sidecars::measure(plane, None, None).await?;
            let tenants = tenants::measure(None, tenants::ROLLOUTS).await?;
            let table =
                format!("{deployments}\n{sets}\n{hooks}\n{guard}\n{leader}\n{sidecars}\n{tenants}");
            return Ok((table, leader.check_limits()));
        }
    };
    Ok((table, Ok(())))
}

/// Measures each subject once per round.
async fn measure_rounds(
    plane: &'static ControlPlane,
    subjects: &'static [Subject],
    rounds: usize,
) -> Result<Report> {
    let mut report = Report { subjects, rounds: Vec::new() };
    for number in 1..=rounds {
        let mut round = Round::default();
        for &subject in subjects {
            eprintln!("round {number} of {rounds}: {}", subject.name());
            round.push((subject, subject.measure(plane, number).await?));
        }
        report.rounds.push(round);
    }
    Ok(report)
}

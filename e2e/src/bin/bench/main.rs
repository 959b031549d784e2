//! `make bench`: how fast 1,000 pods come, change in place and go, and how many writes that takes;
//! and how 10,000 HookRuns do. `bench hooks` measures the second alone.
//!
//! Machines are noisy, so nothing here is an absolute figure: in each round the operator, a native
//! Deployment or StatefulSet, and a bare client, which makes only the writes that nobody can do
//! without, do the same work one after the other on the same cluster. The table shows medians over the rounds, and
//! medians of the rounds' ratios.

mod bare;
mod hooks;
mod pods;
mod report;
mod subject;

use anyhow::Result;
use e2e::control_plane::ControlPlane;

use report::{Report, Round};
use subject::Subject;

/// Pods of each subject.
const PODS: usize = 1000;
/// Pods that may be away during an update.
const MAX_UNAVAILABLE: usize = 100;
/// Rounds, unless the command line asks for another number.
const ROUNDS: usize = 3;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1).peekable();
    let hooks_alone = args.next_if(|arg| arg == "hooks").is_some();
    let number = args.next().and_then(|text| text.parse().ok());
    let plane: &'static ControlPlane = Box::leak(Box::new(ControlPlane::start().await?));
    let outcome = tokio::select! {
        outcome = run(plane, hooks_alone, number) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    plane.stop().await?;
    println!("{}", outcome?);
    Ok(())
}

/// All of it; `number` is that of the rounds, or that of the HookRuns where they are measured alone.
async fn run(
    plane: &'static ControlPlane,
    hooks_alone: bool,
    number: Option<usize>,
) -> Result<String> {
    if hooks_alone {
        let runs = number.unwrap_or(hooks::RUNS);
        return Ok(hooks::measure(plane, runs).await?.to_string());
    }
    let report = pods(plane, number.unwrap_or(ROUNDS)).await?;
    eprintln!("{} HookRuns", hooks::RUNS);
    let hooks = hooks::measure(plane, hooks::RUNS).await?;
    Ok(format!("{report}\n{hooks}"))
}

async fn pods(plane: &'static ControlPlane, rounds: usize) -> Result<Report> {
    let mut report = Report::default();
    for number in 1..=rounds {
        let mut round = Round::default();
        for subject in Subject::ALL {
            eprintln!("round {number} of {rounds}: {}", subject.name());
            round.push((subject, subject.measure(plane, number).await?));
        }
        report.rounds.push(round);
    }
    Ok(report)
}

//! `make bench`: how fast 1,000 pods come, change in place and go, and how many writes that takes.
//!
//! Machines are noisy, so nothing here is an absolute figure: in each round the operator, a native
//! Deployment or StatefulSet, and a bare client, which makes only the writes that nobody can do
//! without, do the same work one after the other on the same cluster. The table shows medians over the rounds, and
//! medians of the rounds' ratios.

mod bare;
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
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let plane: &'static ControlPlane = Box::leak(Box::new(ControlPlane::start().await?));
    let outcome = tokio::select! {
        outcome = run(plane, rounds.unwrap_or(ROUNDS)) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    plane.stop().await?;
    println!("{}", outcome?);
    Ok(())
}

async fn run(plane: &'static ControlPlane, rounds: usize) -> Result<Report> {
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

//! `make soak HOURS=2`: does anything grow in an operator that works for hours on a fleet of constant size?
//!
//! Two replicas of the chart's operator manage 2,000 pods in four namespaces. In each round, every workload is changed
//! once: a rollout with canary steps and hooks, an update of sidecars, scaling in and out, or its deletion and another
//! workload in its place. At the end of a round the fleet has the size that it had before, and the operator is
//! measured. The leader is killed or terminated several times in the first and the last quarter. Between them, the same
//! two processes run, and their figures must not grow ([`growth`]).
//!
//! Usage: `soak [HOURS]`, 2 by default; a fraction is allowed. Ends with an error if something grew, or if a round did
//! not settle.

mod figures;
mod fleet;
mod replicas;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::cluster::control_plane::ControlPlane;

use figures::{Sample, growth};
use fleet::Fleet;
use replicas::Replicas;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let hours = std::env::args().nth(1).map(|text| text.parse::<f64>());
    let hours = hours.transpose().context("usage: soak [HOURS]")?;
    let time = Duration::from_secs_f64(hours.unwrap_or(2.0) * 3600.0);
    let plane = ControlPlane::empty("soak").await?;
    let samples = tokio::select! {
        samples = soak(&plane, time) => samples,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    plane.stop().await?;
    let grown = growth(&samples?)?;
    for line in &grown {
        eprintln!("{line}");
    }
    Ok(match grown.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Changes and measures the fleet until the time is over.
async fn soak(plane: &ControlPlane, time: Duration) -> Result<Vec<Sample>> {
    let folder = std::env::temp_dir().join(format!("soak-{}", std::process::id()));
    let mut replicas = Replicas::install(plane, &folder).await?;
    let mut fleet = Fleet::create(plane).await?;
    fleet.until_settled().await?;
    let start = Instant::now();
    let mut samples = Vec::new();
    println!("{}", Sample::HEADER);
    while start.elapsed() < time {
        let round = samples.len();
        let middle = time / 4..time / 4 * 3;
        if round % 3 == 2 && !middle.contains(&start.elapsed()) {
            replicas.change_leader(round).await?;
        }
        let changed = Instant::now();
        fleet.change(round).await?;
        let settled_after = changed.elapsed();
        let sample = replicas.sample(start.elapsed(), settled_after).await?;
        println!("{sample}");
        samples.push(sample);
    }
    replicas.terminate().await?;
    std::fs::remove_dir_all(&folder)?;
    Ok(samples)
}

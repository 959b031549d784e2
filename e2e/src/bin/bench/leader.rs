//! How soon the standby is at work when the leader goes: from kill -9 or SIGTERM to the first pod that
//! it makes for a game that was scaled meanwhile.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use e2e::case::Case;
use e2e::control_plane::ControlPlane;
use e2e::manifest::Game;
use e2e::takeover::{End, takeover};

/// Takeovers of each sort, unless the command line asks for another number.
pub const RUNS: usize = 20;

/// What was measured, the shortest first.
pub struct Measured {
    killed: Vec<Duration>,
    terminated: Vec<Duration>,
}

/// Measures takeovers of each sort.
pub async fn measure(plane: &'static ControlPlane, runs: usize) -> Result<Measured> {
    Ok(Measured {
        killed: series(plane, "bench-killed", End::Killed, runs).await?,
        terminated: series(plane, "bench-terminated", End::Terminated, runs).await?,
    })
}

async fn series(
    plane: &'static ControlPlane,
    name: &str,
    end: End,
    runs: usize,
) -> Result<Vec<Duration>> {
    let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    let mut case = Case::open(plane, name, &folder).await?;
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    let mut standby = case.another_operator("standby").await?;
    standby.start().await?;
    let mut times = Vec::new();
    for run in 0..runs {
        // One pod more, one pod less: each time there is something to do.
        let replicas = if run % 2 == 0 { 2 } else { 1 };
        times.push(takeover(&mut case, &mut standby, end, replicas).await?);
    }
    standby.terminate().await?;
    case.close().await?;
    std::fs::remove_dir_all(&folder)?;
    times.sort();
    Ok(times)
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.killed.len();
        writeln!(f, "| takeover, {runs} runs each | median | worst |")?;
        writeln!(f, "|---|---|---|")?;
        let series = [("kill -9", &self.killed), ("SIGTERM", &self.terminated)];
        for (name, times) in series {
            let at = |index: usize| times.get(index).map_or(0.0, Duration::as_secs_f64);
            let (median, worst) = (at(times.len() / 2), at(times.len().saturating_sub(1)));
            writeln!(f, "| {name} | {median:.2} s | {worst:.2} s |")?;
        }
        Ok(())
    }
}

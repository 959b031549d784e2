//! How soon the standby takes over when the leader exits. The leader is stopped by kill -9 or SIGTERM, and a workload
//! is scaled right after that. The time is measured from the signal to the standby's first write to a pod.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::cluster::control_plane::ControlPlane;
use e2e::takeover::{Exit, takeover};
use e2e::workload::manifest::Game;

/// The default number of takeovers of each kind.
pub const RUNS: usize = 20;

/// The longest allowed takeover after kill -9: the lease duration of fifteen seconds, plus two.
const KILLED_LIMIT: Duration = Duration::from_secs(17);
/// The longest allowed takeover after SIGTERM, when the lease is released.
const TERMINATED_LIMIT: Duration = Duration::from_secs(2);

/// The measured times, in ascending order.
pub struct Measured {
    killed: Vec<Duration>,
    terminated: Vec<Duration>,
}

/// Measures this number of takeovers of each kind.
pub async fn measure(plane: &'static ControlPlane, runs: usize) -> Result<Measured> {
    Ok(Measured {
        killed: series(plane, "bench-killed", Exit::Killed, runs).await?,
        terminated: series(plane, "bench-terminated", Exit::Terminated, runs).await?,
    })
}

async fn series(
    plane: &'static ControlPlane,
    name: &str,
    exit: Exit,
    runs: usize,
) -> Result<Vec<Duration>> {
    let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    let mut case = Case::open(plane, name, &folder).await?;
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    let mut standby = case.prepare_operator("standby").await?;
    standby.start().await?;
    let mut times = Vec::new();
    for run in 0..runs {
        // One pod more, then one fewer, so there is something to do each time.
        let replicas = if run % 2 == 0 { 2 } else { 1 };
        times.push(takeover(&mut case, &mut standby, exit, replicas).await?);
    }
    standby.terminate().await?;
    case.close().await?;
    std::fs::remove_dir_all(&folder)?;
    times.sort();
    Ok(times)
}

impl Measured {
    /// Fails if the longest takeover of a kind exceeded its limit.
    pub fn check_limits(&self) -> Result<()> {
        for (name, times, limit) in [
            ("kill -9", &self.killed, KILLED_LIMIT),
            ("SIGTERM", &self.terminated, TERMINATED_LIMIT),
        ] {
            let worst = times.last().copied().unwrap_or_default();
            ensure!(
                worst <= limit,
                "a takeover after {name} lasted {worst:.2?}, more than {limit:?}"
            );
        }
        Ok(())
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.killed.len();
        writeln!(f, "| takeover, {runs} runs each | median | worst |")?;
        writeln!(f, "|---|---|---|")?;
        let series = [("kill -9", &self.killed), ("SIGTERM", &self.terminated)];
        for (name, times) in series {
            let seconds_at = |index: usize| times.get(index).map_or(0.0, Duration::as_secs_f64);
            let (median, worst) =
                (seconds_at(times.len() / 2), seconds_at(times.len().saturating_sub(1)));
            writeln!(f, "| {name} | {median:.2} s | {worst:.2} s |")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_takeover_that_lasts_too_long_is_an_error() {
        let measured = |killed, terminated| Measured {
            killed: vec![Duration::from_secs(1), Duration::from_millis(killed)],
            terminated: vec![Duration::from_millis(terminated)],
        };
        assert!(measured(17_000, 2_000).check_limits().is_ok());
        assert!(measured(17_001, 1_000).check_limits().is_err());
        assert!(measured(15_000, 2_001).check_limits().is_err());
    }
}

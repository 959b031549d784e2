//! Waits for conditions instead of for fixed times.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::time::{Instant, sleep, timeout_at};

/// How long to wait for what does happen. It only ends a test that would wait forever: how fast something is depends on the
/// machine, and is measured by benchmarks.
pub const LIMIT: Duration = Duration::from_secs(300);
/// How often a condition is checked.
const POLL: Duration = Duration::from_millis(100);
/// How often it is checked after some seconds. Eight tests that read a workload with its pods and HookRuns ten times a second
/// would be the largest load of the API server.
const SLOW_POLL: Duration = Duration::from_millis(300);
/// How long checks are frequent.
const FREQUENT: Duration = Duration::from_secs(2);

/// Waits until a probe succeeds, and returns its result. After the limit, returns the probe's last error.
pub async fn eventually<T>(
    description: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let start = Instant::now();
    let deadline = start + limit;
    let mut last = anyhow!("the first check did not complete");
    loop {
        match timeout_at(deadline, probe()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => last = error,
            Err(_) => {}
        };
        let pause = if start.elapsed() < FREQUENT { POLL } else { SLOW_POLL };
        if Instant::now() + pause >= deadline {
            return Err(last).with_context(|| format!("not within {limit:?}: {description}"));
        }
        sleep(pause).await;
    }
}

/// Checks that a probe succeeds throughout this time.
pub async fn consistently(
    description: &str,
    time: Duration,
    mut probe: impl AsyncFnMut() -> Result<()>,
) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < time {
        let elapsed = start.elapsed();
        probe().await.with_context(|| format!("no longer after {elapsed:?}: {description}"))?;
        sleep(POLL).await;
    }
    Ok(())
}

//! Resources that a process uses.

use std::time::Duration;

use anyhow::{Context, Result};

/// The CPU time of a process.
pub fn processor_time(id: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The second field is the program's name in parentheses, which may contain spaces.
    let (_, rest) = stat.rsplit_once(')').context("unexpected format of /proc/PID/stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|ticks| ticks.parse::<u64>().ok());
    let (user, system) = ticks(11).zip(ticks(12)).context("unexpected format of /proc/PID/stat")?;
    // A tick is 1/100 s on every Linux machine.
    Ok(Duration::from_millis((user + system) * 10))
}

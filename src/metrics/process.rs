//! Metrics of the process, under the names that all Prometheus clients use.

use std::fmt;
use std::time::{Duration, SystemTime};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::runtime::metrics::encode_one;

#[derive(Debug)]
pub(super) struct Process {
    /// The time since 1970.
    started_at: Duration,
}

impl Process {
    /// The metrics of a process that starts now.
    pub(super) fn starting() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self { started_at: now.unwrap_or_default() }
    }
}

impl Collector for Process {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let name = "process_cpu_seconds";
        let help = "CPU time used";
        let mut family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        if let Some(seconds) = processor_seconds() {
            family.encode_counter::<NoLabelSet, _, u64>(&seconds, None)?;
        }
        let name = "process_resident_memory_bytes";
        encode_one(&mut to, name, "Memory in use", resident_bytes())?;
        let help = "Open files and connections";
        encode_one(&mut to, "process_open_fds", help, open_files())?;
        let name = "process_start_time_seconds";
        let help = "Start time of the process, in seconds since 1970";
        encode_one(&mut to, name, help, Some(self.started_at.as_secs_f64()))
    }
}

fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name in parentheses, and may contain spaces.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    // Linux reports these times in hundredths of a second on every architecture.
    Some((user + system) / 100.0)
}

fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024.0)
}

fn open_files() -> Option<f64> {
    let files = std::fs::read_dir("/proc/self/fd").ok()?;
    Some(files.count() as f64)
}

//! What is measured after each round, and whether it grew.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::operator::Operator;

/// How many samples of the same two processes are needed to compare their ends.
const LEAST: usize = 6;

/// A page of an operator's metrics.
pub struct Page(String);

impl Page {
    /// Reads the page.
    pub async fn read(operator: &Operator) -> Result<Self> {
        let (code, page) = operator.get("/metrics").await?;
        ensure!(code == 200, "/metrics returns {code}: {page}");
        Ok(Self(page))
    }

    /// Whether this replica leads.
    pub fn is_leader(&self) -> bool {
        self.sum("gamekeeper_leader") == 1
    }

    /// Objects that wait to be reconciled, in all queues.
    pub fn queued(&self) -> u64 {
        self.sum("workqueue_depth")
    }

    /// Requests to the API server since the process started.
    pub fn requests(&self) -> u64 {
        self.sum("rest_client_requests_total")
    }

    /// Open files and connections.
    pub fn descriptors(&self) -> u64 {
        self.sum("process_open_fds")
    }

    /// Series on the page.
    pub fn series(&self) -> u64 {
        self.samples().count() as u64
    }

    fn samples(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.0.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.rsplit_once(' '))
    }

    fn sum(&self, name: &str) -> u64 {
        let is_of_name = |series: &str| series.split('{').next() == Some(name);
        let values = self
            .samples()
            .filter_map(|(series, value)| is_of_name(series).then(|| value.parse::<f64>().ok())?);
        values.sum::<f64>() as u64
    }
}

/// The figures after a round. Each pair is of the leader and of the standby.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The time since the start.
    pub at: Duration,
    /// How long it took until the changes of the round were carried out.
    pub settled_after: Duration,
    /// Process ids.
    pub processes: [u32; 2],
    /// Resident memory in bytes.
    pub memory: [u64; 2],
    /// Open files and connections.
    pub descriptors: [u64; 2],
    /// Threads.
    pub threads: [u64; 2],
    /// Series of metrics.
    pub series: [u64; 2],
    /// Requests of all processes so far.
    pub requests: u64,
}

impl Sample {
    /// The head of the table of samples.
    pub const HEADER: &str = "| minute | settled after, s | memory, MB | descriptors | threads | series | requests |\n\
        |---|---|---|---|---|---|---|";
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pair = |[leader, standby]: [u64; 2]| format!("{leader}, {standby}");
        write!(
            f,
            "| {:.1} | {:.1} | {} | {} | {} | {} | {} |",
            self.at.as_secs_f64() / 60.0,
            self.settled_after.as_secs_f64(),
            pair(self.memory.map(|bytes| bytes / 1_000_000)),
            pair(self.descriptors),
            pair(self.threads),
            pair(self.series),
            self.requests,
        )
    }
}

/// What grew while the same two processes ran the longest: a line for each figure whose lowest value in the last third
/// of these samples is above the highest one in the first third, by more than an allocator's reuse of memory explains.
/// Fails if there are too few samples.
pub fn growth(samples: &[Sample]) -> Result<Vec<String>> {
    let steady = samples
        .chunk_by(|a, b| a.processes == b.processes)
        .max_by_key(|chunk| chunk.len())
        .context("no samples")?;
    ensure!(
        steady.len() >= LEAST,
        "only {} rounds with the same processes; {LEAST} are needed",
        steady.len()
    );
    let third = steady.len() / 3;
    let (first, last) = (&steady[..third], &steady[steady.len() - third..]);
    type Pick = fn(&Sample) -> [u64; 2];
    let figures: [(&str, Pick, u64); 4] = [
        ("memory", |it| it.memory, 4_000_000),
        ("descriptors", |it| it.descriptors, 8),
        ("threads", |it| it.threads, 2),
        ("series", |it| it.series, 0),
    ];
    let mut grown = Vec::new();
    for (name, pick, slack) in figures {
        for (index, replica) in ["leader", "standby"].into_iter().enumerate() {
            let before = first.iter().map(|it| pick(it)[index]).max().unwrap_or(0);
            let after = last.iter().map(|it| pick(it)[index]).min().unwrap_or(0);
            if after > before + before / 20 + slack {
                grown.push(format!("the {replica}'s {name} grew from {before} to {after}"));
            }
        }
    }
    Ok(grown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(memory: impl Fn(u64) -> u64) -> Vec<Sample> {
        let sample = |round| Sample {
            processes: [1, 2],
            memory: [memory(round), 50_000_000],
            ..Sample::default()
        };
        (0..12).map(sample).collect()
    }

    #[test]
    fn steady_growth_is_found_and_a_peak_is_not() {
        let grown = growth(&samples(|round| 50_000_000 + round * 2_000_000)).expect("enough");
        assert_eq!(grown, ["the leader's memory grew from 56000000 to 66000000"]);
        let peak = samples(|round| if round == 10 { 90_000_000 } else { 50_000_000 });
        assert!(growth(&peak).expect("enough").is_empty());
    }

    #[test]
    fn samples_of_different_processes_are_not_compared() {
        let mut samples = samples(|round| 50_000_000 + round * 2_000_000);
        samples[6].processes = [3, 1];
        assert!(growth(&samples).expect("the first six").is_empty());
        samples[5].processes = [3, 1];
        assert!(growth(&samples[..8]).is_err());
    }

    #[test]
    fn values_are_read_by_the_whole_name() {
        let page = Page(
            "# TYPE workqueue_depth gauge\nworkqueue_depth{name=\"a\"} 2\nworkqueue_depth{name=\"b\"} 1\n\
             workqueue_depth_max 9\nprocess_open_fds 30\n"
                .to_owned(),
        );
        assert_eq!((page.queued(), page.descriptors(), page.series()), (3, 30, 4));
    }
}

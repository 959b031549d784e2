//! `gamekeeper try`: runs a template from the command line, without a cluster, so that its author sees
//! what it measures before a pod depends on it.
//!
//! The calls, conditions and limits are those of the operator. What only a cluster has (Secrets,
//! pods, Jobs) ends in an error that says so; an argument's value can be given instead.

mod file;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::sleep;

pub use file::FileError;

use crate::provider::{Call, HttpOptions, Probe, ProbeError};
use gamekeeper_core::api::{HookPhase, HookRun, HookRunSpec, HookRunStatus};
use gamekeeper_core::plan::hook_run::{
    Measured, Outcome, Rules, assess, is_under_way, next_number,
};

/// The wait when nothing is due: until a call ends, or the user interrupts.
const MAX_WAIT: Duration = Duration::from_secs(3_600);

/// Flags of `gamekeeper try`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// A file with a HookTemplate or HookRun; - reads standard input.
    pub file: PathBuf,
    /// A value for an argument: NAME=VALUE. May be repeated.
    #[arg(long = "arg", value_name = "NAME=VALUE", value_parser = named_value)]
    pub args: Vec<(String, String)>,
    /// Name of the one to run, when the file has several.
    #[arg(long)]
    pub name: Option<String>,
    /// Let hooks call link-local and cloud metadata addresses.
    #[arg(long, env = "GAMEKEEPER_HOOK_ALLOW_LINK_LOCAL")]
    pub hook_allow_link_local: bool,
}

fn named_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("write NAME=VALUE, for example PodIP=127.0.0.1")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Why nothing could be tried.
#[derive(Debug, thiserror::Error)]
pub enum TryError {
    /// The file does not say what to do.
    #[error(transparent)]
    File(#[from] FileError),
    /// Measurements cannot be made.
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

/// The exit code that tells how a run ended; 2 also stands for one that could not begin.
pub fn exit_code(phase: HookPhase) -> u8 {
    match phase {
        HookPhase::Successful => 0,
        HookPhase::Failed => 1,
        HookPhase::Inconclusive => 3,
        HookPhase::Error | HookPhase::Pending | HookPhase::Running => 2,
    }
}

/// Runs a template once, and says each thing as it happens. An interrupt terminates the run.
///
/// # Errors
/// When there is nothing that could be run.
pub async fn run(options: &Options, say: impl Fn(String)) -> Result<HookRunStatus, TryError> {
    let spec = file::read(options)?;
    let http = HttpOptions {
        allow_link_local: options.hook_allow_link_local,
        // The machine is that of the user who tries it.
        allow_loopback: true,
    };
    let probe = Probe::new(http, None)?;
    Ok(TryRun::new(spec, probe, say).run_to_end().await)
}

/// A run in progress.
struct TryRun<S> {
    run: Arc<HookRun>,
    probe: Probe,
    say: S,
    status: HookRunStatus,
    begun: (Timestamp, Instant),
    running: BTreeSet<usize>,
    calls: JoinSet<(Call, Timestamp, Outcome)>,
}

impl<S: Fn(String)> TryRun<S> {
    fn new(spec: HookRunSpec, probe: Probe, say: S) -> Self {
        let begun = (Timestamp::now(), Instant::now());
        let mut run = HookRun::new("try", spec);
        // What servers know repeated calls by; no other try has it.
        run.metadata.uid = Some(format!("try-{}-{}", std::process::id(), begun.0));
        TryRun {
            run: Arc::new(run),
            probe,
            say,
            status: HookRunStatus::default(),
            begun,
            running: BTreeSet::new(),
            calls: JoinSet::new(),
        }
    }

    /// The time, which no step of the wall clock disturbs.
    fn now(&self) -> Timestamp {
        let passed = self.begun.1.elapsed();
        self.begun.0.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    async fn run_to_end(mut self) -> HookRunStatus {
        let mut measured = Vec::new();
        let rules = Rules::of(&self.run.spec);
        loop {
            let now = self.now();
            let spec = &self.run.spec;
            let next = assess(spec, &rules, &self.status, &measured, &self.running, now);
            self.status = next.status;
            if self.status.phase.is_completed() {
                return self.status;
            }
            for metric in next.start {
                self.start(metric, now);
            }
            let wait = next.wake.map_or(MAX_WAIT, |wake| {
                Duration::try_from(wake.duration_since(now)).unwrap_or_default()
            });
            measured = tokio::select! {
                Some(Ok(ended)) = self.calls.join_next() => vec![self.ended(ended)],
                () = sleep(wait) => Vec::new(),
                _ = tokio::signal::ctrl_c() => {
                    Arc::make_mut(&mut self.run).spec.terminate = true;
                    Vec::new()
                }
            };
        }
    }

    fn start(&mut self, metric: usize, now: Timestamp) {
        let of = &self.run.spec.metrics[metric];
        let call = Call {
            run: Arc::clone(&self.run),
            metric,
            number: next_number(&self.status, of),
            resumed: is_under_way(&self.status, of),
        };
        let probe = self.probe.clone();
        self.running.insert(metric);
        self.calls.spawn(async move {
            let outcome = probe.measure(&call).await;
            (call, now, outcome)
        });
    }

    fn ended(&mut self, (call, started, outcome): (Call, Timestamp, Outcome)) -> Measured {
        self.running.remove(&call.metric);
        let name = &call.run.spec.metrics[call.metric].name;
        let value = outcome.value.as_deref().unwrap_or_default();
        let message = outcome.message.as_deref().unwrap_or_default();
        let shown = if message.is_empty() { value } else { message };
        let line = format!("{name} {}: {} {shown}", call.number, outcome.phase);
        (self.say)(line.trim_end().to_owned());
        Measured {
            metric: call.metric,
            started,
            finished: self.now(),
            outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_an_exit_code_of_its_own() {
        use HookPhase::{Error, Failed, Inconclusive, Successful};
        let codes = [Successful, Failed, Error, Inconclusive].map(exit_code);
        assert_eq!(codes, [0, 1, 2, 3]);
    }
}

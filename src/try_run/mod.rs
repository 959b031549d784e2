//! `gamekeeper try`: runs a HookTemplate from the command line, without a cluster, so that its author sees the
//! measurements before a pod depends on them.
//!
//! Calls, conditions and limits are those of the operator. Metrics that need a cluster (Secrets, pods, Jobs) end in
//! an error; for an argument from a Secret, the user can set a value instead. Commands of exec metrics run on this
//! machine, if the user allows that.

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

use crate::provider::{Call, Commands, HttpOptions, Probe, ProbeError};
use gamekeeper_core::api::{HookPhase, HookRun, HookRunSpec, HookRunStatus};
use gamekeeper_core::hook_run::{Measured, Outcome, Rules, assess, job_in_progress, next_number};

/// The wait if nothing is due.
const IDLE_WAIT: Duration = Duration::from_secs(3_600);

/// Flags of `gamekeeper try`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// A file with a HookTemplate or HookRun; - reads standard input.
    pub file: PathBuf,
    /// A value for an argument: NAME=VALUE. May be repeated.
    #[arg(long = "arg", value_name = "NAME=VALUE", value_parser = named_value)]
    pub args: Vec<(String, String)>,
    /// Name of the HookTemplate or HookRun to run, when the file has several.
    #[arg(long)]
    pub name: Option<String>,
    /// Let hooks call link-local and cloud metadata addresses.
    #[arg(long, env = "GAMEKEEPER_HOOK_ALLOW_LINK_LOCAL")]
    pub hook_allow_link_local: bool,
    /// Run the commands of exec metrics on this machine, instead of in a container.
    #[arg(long)]
    pub exec_locally: bool,
}

/// The message of an exec metric without --exec-locally. Commands are not run by default, because the file may come
/// from another user.
const NO_COMMANDS: &str = "the command was not run: with --exec-locally it is run on this machine, instead of in a container";

fn named_value(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').ok_or("write NAME=VALUE, for example PodIP=127.0.0.1")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Why a template cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum TryError {
    /// The file is invalid.
    #[error(transparent)]
    File(#[from] FileError),
    /// The providers could not be started.
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

/// The exit code of a phase. Code 2 also means that the run could not start.
pub fn exit_code(phase: HookPhase) -> u8 {
    match phase {
        HookPhase::Successful => 0,
        HookPhase::Failed => 1,
        HookPhase::Inconclusive => 3,
        HookPhase::Error | HookPhase::Pending | HookPhase::Running => 2,
    }
}

/// Runs a template once, and prints each measurement. An interrupt terminates the run.
///
/// # Errors
/// Fails if the file or the options are invalid, or if the providers cannot be started.
pub async fn run(options: &Options, print: impl Fn(String)) -> Result<HookRunStatus, TryError> {
    let spec = file::read(options)?;
    let http = HttpOptions {
        allow_link_local: options.hook_allow_link_local,
        // `gamekeeper try` runs on the user's own machine.
        allow_loopback: true,
    };
    let commands = match options.exec_locally {
        true => Commands::Here,
        false => Commands::Nowhere(NO_COMMANDS),
    };
    let probe = Probe::new(http, None)?.with_commands(commands);
    Ok(TryRun::new(spec, probe, print).run_to_end().await)
}

/// A run in progress.
struct TryRun<P> {
    run: Arc<HookRun>,
    probe: Probe,
    print: P,
    status: HookRunStatus,
    started: (Timestamp, Instant),
    running: BTreeSet<usize>,
    calls: JoinSet<(Call, Timestamp, Outcome)>,
}

impl<P: Fn(String)> TryRun<P> {
    fn new(spec: HookRunSpec, probe: Probe, print: P) -> Self {
        let started = (Timestamp::now(), Instant::now());
        let mut run = HookRun::new("try", spec);
        // Unique, because servers recognize repeated calls by the uid.
        run.metadata.uid = Some(format!("try-{}-{}", std::process::id(), started.0));
        TryRun {
            run: Arc::new(run),
            probe,
            print,
            status: HookRunStatus::default(),
            started,
            running: BTreeSet::new(),
            calls: JoinSet::new(),
        }
    }

    /// The current time, independent of changes of the wall clock.
    fn now(&self) -> Timestamp {
        let (timestamp, instant) = &self.started;
        timestamp.checked_add(instant.elapsed()).unwrap_or(Timestamp::MAX)
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
            let wait = next.wake.map_or(IDLE_WAIT, |wake| {
                Duration::try_from(wake.duration_since(now)).unwrap_or_default()
            });
            measured = tokio::select! {
                Some(Ok(ended)) = self.calls.join_next() => vec![self.finish(ended)],
                () = sleep(wait) => Vec::new(),
                _ = tokio::signal::ctrl_c() => {
                    Arc::make_mut(&mut self.run).spec.terminate = true;
                    Vec::new()
                }
            };
        }
    }

    fn start(&mut self, metric: usize, now: Timestamp) {
        let definition = &self.run.spec.metrics[metric];
        let call = Call {
            run: Arc::clone(&self.run),
            metric,
            number: next_number(&self.status, definition),
            job: job_in_progress(&self.status, definition).cloned(),
        };
        let probe = self.probe.clone();
        self.running.insert(metric);
        self.calls.spawn(async move {
            let outcome = probe.measure(&call).await;
            (call, now, outcome)
        });
    }

    fn finish(&mut self, (call, started, outcome): (Call, Timestamp, Outcome)) -> Measured {
        self.running.remove(&call.metric);
        let name = &call.run.spec.metrics[call.metric].name;
        let value = outcome.value.as_deref().unwrap_or_default();
        let message = outcome.message.as_deref().unwrap_or_default();
        let detail = if message.is_empty() { value } else { message };
        let line = format!("{name} {}: {} {detail}", call.number, outcome.phase);
        (self.print)(line.trim_end().to_owned());
        Measured { metric: call.metric, started, finished: self.now(), outcome }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_completed_phase_has_its_own_exit_code() {
        use HookPhase::{Error, Failed, Inconclusive, Successful};
        let codes = [Successful, Failed, Error, Inconclusive].map(exit_code);
        assert_eq!(codes, [0, 1, 2, 3]);
    }
}

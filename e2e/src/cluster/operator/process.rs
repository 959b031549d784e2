//! The process of an operator, and a supervisor that restarts the process when the operator has lost its lease, as
//! Kubernetes would.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::sleep;

pub(super) struct Running {
    pub(super) process: Process,
    pub(super) supervisor: JoinHandle<()>,
    pub(super) port: u16,
    /// The port of the operator's webhook, if the operator has the arguments of a Deployment.
    pub(super) webhook_port: u16,
}

/// The current process; None after it was stopped on purpose.
pub(super) type Process = Arc<Mutex<Option<Child>>>;

pub(super) fn with_child<T>(process: &Process, f: impl FnOnce(&mut Option<Child>) -> T) -> T {
    f(&mut process.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The exit status, if the process has exited; None after it was stopped on purpose.
pub(super) fn try_wait(process: &Process) -> Option<std::io::Result<Option<ExitStatus>>> {
    with_child(process, |child| child.as_mut().map(Child::try_wait))
}

impl Running {
    /// Takes the process, so it is no longer restarted.
    pub(super) fn end(self) -> Result<Child> {
        with_child(&self.process, Option::take).context("the operator has exited")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Aborting the task drops the process, which kills it.
        self.supervisor.abort();
    }
}

/// Restarts the operator when it has exited because it lost its lease. Every operator loses its lease if the
/// machine stalls for ten seconds. If the operator exits for another reason, the test sees the exit.
pub(super) async fn supervise(mut command: Command, process: Process, log: PathBuf) {
    loop {
        sleep(Duration::from_millis(200)).await;
        let status = match try_wait(&process) {
            Some(Ok(None)) => continue,
            Some(Ok(Some(status))) => status,
            Some(Err(_)) | None => return,
        };
        if !has_lost_its_lease(status, &last_line(&log)) {
            return;
        }
        let Ok(next) = command.spawn() else { return };
        with_child(&process, |child| *child = Some(next));
    }
}

pub(super) fn last_line(log: &Path) -> String {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    log.lines().last().unwrap_or_default().to_owned()
}

pub(super) fn has_lost_its_lease(status: ExitStatus, message: &str) -> bool {
    status.code() == Some(1) && message.contains("lost the lease")
}

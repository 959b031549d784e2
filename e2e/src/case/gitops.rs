//! A GitOps tool that sends the manifest of a workload again every few seconds, whatever has become of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::process::command::{go_command, run_unchecked};

/// How often the manifest is sent.
const INTERVAL: Duration = Duration::from_secs(3);

/// How the manifest is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `kubectl replace`: the annotations and fields of others are dropped.
    Replace,
    /// `kubectl apply --server-side --force-conflicts`.
    ServerSide,
}

/// Sends one manifest.
#[derive(Clone)]
pub(super) struct Sender {
    pub kubectl: PathBuf,
    pub kubeconfig: PathBuf,
    /// Where the manifest is written for kubectl.
    pub file: PathBuf,
    pub style: Style,
}

impl Sender {
    async fn send(&self, first: bool, manifest: &Value) -> Result<()> {
        std::fs::write(&self.file, manifest.to_string())?;
        let args: &[&str] = match self.style {
            Style::Replace if first => &["create", "-f"],
            Style::Replace => &["replace", "-f"],
            Style::ServerSide => &["apply", "--server-side", "--force-conflicts", "-f"],
        };
        let mut command = go_command(&self.kubectl);
        command.args(args).arg(&self.file).env("KUBECONFIG", &self.kubeconfig);
        let sent = run_unchecked(&mut command).await?;
        // The operator has written at the same time: the tool sends the manifest again.
        let is_conflict = sent.stderr.contains("the object has been modified");
        ensure!(sent.code == 0 || is_conflict, "kubectl {args:?}: {}", sent.stderr);
        Ok(())
    }
}

/// The tool, with the manifest as it is in Git. It stops when dropped.
pub struct GitOps {
    sender: Sender,
    manifest: Arc<Mutex<Value>>,
    task: JoinHandle<Result<()>>,
}

impl GitOps {
    /// Creates the workload, and sends its manifest from then on.
    pub(super) async fn start(sender: Sender, manifest: Value) -> Result<Self> {
        sender.send(true, &manifest).await?;
        let manifest = Arc::new(Mutex::new(manifest));
        let task = tokio::spawn(keep(sender.clone(), Arc::clone(&manifest)));
        Ok(Self { sender, manifest, task })
    }

    /// Changes a field in Git.
    pub(super) async fn commit(&self, path: &str, value: Value) -> Result<()> {
        self.ensure_running()?;
        let mut manifest = self.manifest.lock().await;
        *manifest.pointer_mut(path).with_context(|| format!("the manifest has no {path}"))? = value;
        self.sender.send(false, &manifest).await
    }

    /// Runs `work` between two syncs.
    pub(super) async fn between<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.ensure_running()?;
        let _manifest = self.manifest.lock().await;
        work.await
    }

    /// Fails if the tool has stopped because a request failed.
    pub(super) fn ensure_running(&self) -> Result<()> {
        ensure!(
            !self.task.is_finished(),
            "the GitOps tool has stopped; its error is in the output"
        );
        Ok(())
    }
}

impl Drop for GitOps {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep(sender: Sender, manifest: Arc<Mutex<Value>>) -> Result<()> {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let manifest = manifest.lock().await;
        if let Err(error) = sender.send(false, &manifest).await {
            eprintln!("GitOps: {error:#}");
            return Err(error);
        }
    }
}

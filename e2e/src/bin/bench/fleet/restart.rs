//! How soon a large fleet is in the operator's hands again.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::cluster::operator::Operator;
use e2e::wait::eventually;
use serde_json::json;

use super::Fleet;

/// The number of restarts and takeovers.
const RUNS: usize = 3;
/// How long a restart may take.
const LIMIT: Duration = Duration::from_secs(300);

/// The times of one restart after kill -9, from the kill.
pub struct Restart {
    /// Until the operator is ready.
    pub ready: Duration,
    /// Until the first pod is created.
    pub acts: Duration,
}

impl Fleet {
    /// Kills the operator while a workload is scaled out, and starts it again.
    pub(super) async fn restarts(&mut self) -> Result<Vec<Restart>> {
        let mut restarts = Vec::new();
        for run in 1..=RUNS {
            eprintln!("restart {run} of {RUNS}");
            let killed = Instant::now();
            self.case.operator.kill().await?;
            self.case.operator.launch().await?;
            self.scale_out().await?;
            let ready = async {
                until_ready(&self.case.operator).await?;
                Ok(killed.elapsed())
            };
            let (ready, acts) = tokio::try_join!(ready, self.until_created(killed))?;
            eprintln!("ready after {ready:.1?}, acted after {acts:.1?}");
            self.size += 1;
            restarts.push(Restart { ready, acts });
        }
        Ok(restarts)
    }

    /// Kills the leader while a workload is scaled out and a standby waits. Returns the times until the standby creates the
    /// pod.
    pub(super) async fn takeovers(&mut self) -> Result<Vec<Duration>> {
        let mut standby = self.case.prepare_operator("standby").await?;
        standby.add_args(vec![super::ROOM_IN_NAMESPACE.to_owned()]);
        let mut times = Vec::new();
        for run in 1..=RUNS {
            eprintln!("takeover {run} of {RUNS}");
            standby.launch().await?;
            until_ready(&standby).await?;
            let killed = Instant::now();
            self.case.operator.kill().await?;
            self.scale_out().await?;
            times.push(self.until_created(killed).await?);
            self.size += 1;
            std::mem::swap(&mut self.case.operator, &mut standby);
        }
        Ok(times)
    }

    /// Gives the first workload one more pod.
    async fn scale_out(&self) -> Result<()> {
        let path = self.path(0);
        let replicas = self.case.plane().get(&path).await?["spec"]["replicas"].as_u64();
        let more = replicas.unwrap_or_default() + 1;
        let scale = json!([{"op": "replace", "path": "/spec/replicas", "value": more}]);
        self.case.plane().patch(&path, &scale).await?;
        Ok(())
    }

    async fn until_created(&self, killed: Instant) -> Result<Duration> {
        self.pods.until("a pod is created", |pods| pods.len() > self.size).await?;
        Ok(killed.elapsed())
    }
}

async fn until_ready(operator: &Operator) -> Result<()> {
    eventually("ready", LIMIT, async || {
        let (code, body) = operator.get("/readyz").await?;
        ensure!(code == 200, "{code}: {body}");
        Ok(())
    })
    .await
}

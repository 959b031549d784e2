//! How long it takes until the status shows a pause that is set in the middle of a phase.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::wait::eventually;
use serde_json::{Value, json};

use super::Run;
use super::fleet::Phase;

/// The number of pauses in one phase.
const PAUSES: usize = 5;
/// How long it may take until the status shows a pause.
const LIMIT: Duration = Duration::from_secs(60);

/// The measured pauses.
#[derive(Debug, Default)]
pub struct Pauses {
    /// How long it took until the status showed each pause.
    pub delays: Vec<Duration>,
}

impl Pauses {
    /// Pauses and resumes the workload several times during a phase. Returns only if there is an error. A pause stops
    /// only updates. In other phases, it is enough that status.observedGeneration has reached the generation of
    /// the pause.
    pub async fn measure(
        &mut self,
        run: &Run<'_>,
        phase: Phase,
        (from, to): (usize, usize),
    ) -> Result<std::convert::Infallible> {
        for number in 1..=PAUSES {
            let target = from + (to - from) * number / (PAUSES + 1);
            let has_reached =
                |pods: &crate::pods::PodStates| phase.progress(run.size, pods) >= target;
            run.pods.until("far enough for a pause", has_reached).await?;
            let started = Instant::now();
            let generation = set_paused(run, true).await?;
            eventually("the status shows the pause", LIMIT, async || {
                let workload = run.case.plane().get(&run.case.path()).await?;
                let status = &workload["status"];
                let is_observed = status["observedGeneration"].as_i64() >= Some(generation);
                let is_update = matches!(phase, Phase::Update | Phase::HotPatch);
                ensure!(is_observed && (!is_update || is_paused(status)), "{status}");
                Ok(())
            })
            .await?;
            self.delays.push(started.elapsed());
            set_paused(run, false).await?;
        }
        std::future::pending().await
    }
}

/// Pauses or resumes the workload, and returns its new generation.
async fn set_paused(run: &Run<'_>, paused: bool) -> Result<i64> {
    let field = json!({"op": "add", "path": "/spec/updateStrategy/paused", "value": paused});
    let path = run.case.path();
    let response = run.case.plane().patch(&path, &json!([field])).await?;
    Ok(response["metadata"]["generation"].as_i64().unwrap_or_default())
}

fn is_paused(status: &Value) -> bool {
    let conditions = status["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions
        .any(|condition| condition["type"] == "Progressing" && condition["reason"] == "Paused")
}

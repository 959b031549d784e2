//! After the faults: acts as a user would until the workload has settled.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use super::stimulus::{HookAnswer, Stimulus};
use crate::case::Case;
use crate::workload::view::View;

/// How long a workload may take to settle. When a template has been refused, the operator tries again half a minute
/// later.
const LIMIT: Duration = Duration::from_secs(100);
/// How often the workload is read.
const POLL: Duration = Duration::from_millis(300);
/// The minimum time between two actions of the user, because each makes the operator plan again.
const ACTION_INTERVAL: Duration = Duration::from_secs(3);

/// Makes hooks answer yes, sets replicas and, if necessary, a good image. Then resumes pauses and retries
/// failed hooks until the workload has settled. Returns the workload's state if that takes too long.
pub async fn settle(case: &Case, replicas: i64) -> Result<Option<String>> {
    Stimulus::Answer(HookAnswer::Yes).apply(case).await?;
    Stimulus::Scale(replicas).apply(case).await?;
    let view = case.view().await?;
    let image = view.text("/spec/template/spec/containers/0/image");
    if ["nope", "neverready"].iter().any(|bad| image.ends_with(bad)) {
        Stimulus::Image("v1".to_owned()).apply(case).await?;
    }
    let started = Instant::now();
    let mut last_action: Option<Instant> = None;
    loop {
        let view = case.view().await?;
        if view.is_settled(replicas) {
            return Ok(None);
        }
        if started.elapsed() > LIMIT {
            return Ok(Some(view.summary()));
        }
        if last_action.is_none_or(|at| at.elapsed() >= ACTION_INTERVAL) {
            let needed = [
                (view.is_paused(), Stimulus::Pause(false)),
                (has_failed_hooks(&view), Stimulus::Retry),
            ];
            for (_, stimulus) in needed.iter().filter(|(is_needed, _)| *is_needed) {
                stimulus.apply(case).await?;
                last_action = Some(Instant::now());
            }
        }
        sleep(POLL).await;
    }
}

/// Whether the hook of a pod has failed. Hooks of steps do not count, because a resume skips them.
fn has_failed_hooks(view: &View) -> bool {
    let mut runs = view.runs.iter().filter(|run| run.point() != "Step");
    runs.any(|run| matches!(run.phase(), "Failed" | "Error" | "Inconclusive"))
}

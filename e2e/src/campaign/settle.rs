//! After the faults: what a user would do until all is as wanted, and whether it comes to that.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use super::moment::{Moment, Says};
use crate::case::Case;
use crate::workload::view::View;

/// How long it may take. An operator that was refused a template asks again after half a minute.
const LIMIT: Duration = Duration::from_secs(100);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(300);
/// How long a user waits at least to see what came of a resume or a retry: each one makes the operator
/// plan again.
const PATIENCE: Duration = Duration::from_secs(3);

/// Lets hooks say yes and the workload have so many replicas of a good image; resumes what pauses and
/// retries what failed, until nothing is left to do. What is missing, if that takes too long.
pub async fn settle(case: &Case, replicas: i64) -> Result<Option<String>> {
    Moment::Hook(Says::Yes).happen(case).await?;
    Moment::Scale(replicas).happen(case).await?;
    let image = case.view().await?;
    let image = image.text("/spec/template/spec/containers/0/image");
    if ["nope", "neverready"]
        .iter()
        .any(|bad| image.ends_with(bad))
    {
        Moment::Image("v1".to_owned()).happen(case).await?;
    }
    let begun = Instant::now();
    let mut acted: Option<Instant> = None;
    loop {
        let view = case.view().await?;
        if view.is_settled(replicas) {
            return Ok(None);
        }
        if begun.elapsed() > LIMIT {
            return Ok(Some(view.summary()));
        }
        if acted.is_none_or(|acted| acted.elapsed() >= PATIENCE) {
            let needed = [
                (view.is_paused(), Moment::Pause(false)),
                (has_failed_hooks(&view), Moment::Retry),
            ];
            for (_, moment) in needed.iter().filter(|(is_needed, _)| *is_needed) {
                moment.happen(case).await?;
                acted = Some(Instant::now());
            }
        }
        sleep(LOOK).await;
    }
}

/// Whether the hook of a pod ended badly. That of a step is left by a resume.
fn has_failed_hooks(view: &View) -> bool {
    let mut runs = view.runs.iter().filter(|run| run.point() != "Step");
    runs.any(|run| matches!(run.phase(), "Failed" | "Error" | "Inconclusive"))
}

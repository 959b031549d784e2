//! After the faults: what a user would do until all is as wanted, and whether it comes to that.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use super::moment::{Moment, Says};
use crate::case::Case;
use crate::view::View;

/// How long it may take. An operator that was refused a template asks again after half a minute.
const LIMIT: Duration = Duration::from_secs(100);
/// How often a user looks.
const LOOK: Duration = Duration::from_millis(500);

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
    loop {
        let view = case.view().await?;
        if view.is_settled(replicas) {
            return Ok(None);
        }
        if begun.elapsed() > LIMIT {
            return Ok(Some(view.summary()));
        }
        if view.is_paused() {
            Moment::Pause(false).happen(case).await?;
        }
        if has_failed_hooks(&view) {
            Moment::Retry.happen(case).await?;
        }
        sleep(LOOK).await;
    }
}

fn has_failed_hooks(view: &View) -> bool {
    let phases = view.runs.iter().map(|run| run.phase());
    phases
        .into_iter()
        .any(|phase| matches!(phase, "Failed" | "Error" | "Inconclusive"))
}

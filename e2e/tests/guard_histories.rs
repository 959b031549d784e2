//! Two histories of guarded matches (`make guard-campaign` plays a hundred): one as it is, and one whose policy is removed
//! while it is played, which shows that matches that are ended are found.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::campaign::guard::{Actor, Deed, History, Played, Stage, Variant, play_until};
use e2e::case::Case;

e2e::tests![
    no_match_is_ended_in_a_history,
    without_the_policy_matches_are_ended_and_counted,
];

/// One of the histories in which a client deletes all pods after two seconds, and none the workload.
fn history(number: usize) -> Result<History> {
    let is_late = |at: &Duration| *at > Duration::from_secs(2);
    let deletes_all = |(at, deed): &(Duration, Deed)| {
        is_late(at) && matches!(deed, Deed::Other(Actor::DeleteAll, _))
    };
    let deletes_workload = |(_, deed): &(Duration, Deed)| {
        matches!(
            deed,
            Deed::Other(Actor::DeleteWorkload(_) | Actor::DeleteNamespace, _)
        )
    };
    let histories = (0..100).map(History::of);
    let mut found = histories.filter(|history| {
        let mut deeds = history.deeds.iter();
        deeds.any(deletes_all) && !history.deeds.iter().any(deletes_workload)
    });
    found.nth(number).context("no such history")
}

async fn played(case: &mut Case, removes_policy: bool) -> Result<Played> {
    case.operator.terminate().await?;
    let folder = case.folder();
    let name = format!("stage-{}", case.namespace);
    let stage = Stage::install(case.plane(), &name, &folder.join("system")).await?;
    let meanwhile = async {
        match removes_policy {
            true => stage.remove_policy().await,
            false => Ok(()),
        }
    };
    // Histories with the same seed would share a namespace.
    let history = history(usize::from(removes_policy))?;
    let folder = folder.join("history");
    let played = play_until(&stage, &history, Variant::Guarded, &folder, meanwhile).await?;
    if !removes_policy {
        stage.remove_policy().await?;
    }
    Ok(played)
}

async fn no_match_is_ended_in_a_history(case: &mut Case) -> Result<()> {
    let played = played(case, false).await?;
    ensure!(played.passed(), "{played}");
    ensure!(played.record.matches > 0 && played.record.refused > 0);
    Ok(())
}

async fn without_the_policy_matches_are_ended_and_counted(case: &mut Case) -> Result<()> {
    let played = played(case, true).await?;
    // Which of the clients is the first one to end a match is a matter of time.
    let ended: u64 = played.record.ended.values().sum();
    ensure!(ended > 0, "{played}");
    Ok(())
}

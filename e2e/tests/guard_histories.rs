//! Two histories of guarded matches (`make guard-campaign` plays a hundred): one with the policy, and one during
//! which the policy is removed, which shows that ended matches are detected.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::campaign::guard::{Actor, History, Played, Stage, Stimulus, Variant, play_until};
use e2e::case::Case;

/// The history with this number among those in which a client deletes all pods after the first two seconds, and no
/// client deletes the workload or the namespace.
fn history(number: usize) -> Result<History> {
    let is_late = |at: &Duration| *at > Duration::from_secs(2);
    let deletes_all = |(at, stimulus): &(Duration, Stimulus)| {
        is_late(at) && matches!(stimulus, Stimulus::Other(Actor::DeleteAll, _))
    };
    let deletes_workload = |(_, stimulus): &(Duration, Stimulus)| {
        matches!(stimulus, Stimulus::Other(Actor::DeleteWorkload(_) | Actor::DeleteNamespace, _))
    };
    let histories = (0..100).map(History::from_seed);
    let mut matching = histories.filter(|history| {
        let mut stimuli = history.stimuli.iter();
        stimuli.any(deletes_all) && !history.stimuli.iter().any(deletes_workload)
    });
    matching.nth(number).context("no such history")
}

/// What happens to the policy while a history is played.
#[derive(PartialEq)]
enum Policy {
    Stays,
    IsRemoved,
}

async fn play(case: &mut Case, policy: Policy) -> Result<Played> {
    case.operator.terminate().await?;
    let folder = case.folder();
    let name = format!("stage-{}", case.namespace);
    let stage = Stage::install(case.plane(), &name, &folder.join("system")).await?;
    let policy_change = async {
        match policy {
            Policy::IsRemoved => stage.remove_policy().await,
            Policy::Stays => Ok(()),
        }
    };
    // Histories with the same seed would share a namespace.
    let history = history(match policy {
        Policy::Stays => 0,
        Policy::IsRemoved => 1,
    })?;
    let folder = folder.join("history");
    let played = play_until(&stage, &history, Variant::Guarded, &folder, policy_change).await?;
    if policy == Policy::Stays {
        stage.remove_policy().await?;
    }
    Ok(played)
}

#[e2e::test]
async fn with_the_policy_no_match_is_ended(case: &mut Case) -> Result<()> {
    let played = play(case, Policy::Stays).await?;
    ensure!(played.passed(), "{played}");
    ensure!(played.record.matches > 0 && played.record.refused > 0);
    Ok(())
}

#[e2e::test]
async fn without_the_policy_matches_are_ended_and_counted(case: &mut Case) -> Result<()> {
    let played = play(case, Policy::IsRemoved).await?;
    // Which client is the first to end a match depends on timing.
    let ended: u64 = played.record.ended.values().sum();
    ensure!(ended > 0, "{played}");
    Ok(())
}

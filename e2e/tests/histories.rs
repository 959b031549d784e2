//! Some histories of the campaign (`make campaign` plays hundreds), always the same ones.

use anyhow::{Result, ensure};
use e2e::campaign::{History, Kind, play};
use e2e::case::Case;

e2e::tests![
    a_canary_in_place_loses_no_match_in_a_world_that_lies_late,
    a_recreated_game_loses_no_match_in_a_world_that_lies_late,
    a_stateful_game_loses_no_match_in_a_world_that_lies_late,
];

/// Histories of each kind.
const HISTORIES: usize = 7;

async fn a_canary_in_place_loses_no_match_in_a_world_that_lies_late(case: &mut Case) -> Result<()> {
    play_histories(case, Kind::Canary).await
}

async fn a_recreated_game_loses_no_match_in_a_world_that_lies_late(case: &mut Case) -> Result<()> {
    play_histories(case, Kind::Rolling).await
}

async fn a_stateful_game_loses_no_match_in_a_world_that_lies_late(case: &mut Case) -> Result<()> {
    play_histories(case, Kind::Set).await
}

/// Each in a namespace of its own, beside that of the case.
async fn play_histories(case: &mut Case, kind: Kind) -> Result<()> {
    case.operator.terminate().await?;
    let histories = (0..).map(History::of).filter(|it| it.kind == kind);
    for history in histories.take(HISTORIES) {
        let folder = case.folder().join(history.seed.to_string());
        let ended = play(case.plane(), history, &folder).await;
        ensure!(ended.is_good(), "{ended}");
    }
    Ok(())
}

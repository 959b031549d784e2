//! Some histories of the campaign (`make campaign` plays hundreds). The seeds are fixed.

use anyhow::{Result, ensure};
use e2e::campaign::{History, Kind, play};
use e2e::case::Case;

/// The number of histories of each kind.
const HISTORIES: usize = 7;

#[e2e::test]
async fn an_in_place_canary_survives_faults(case: &mut Case) -> Result<()> {
    play_histories(case, Kind::Canary).await
}

#[e2e::test]
async fn a_rolling_update_survives_faults(case: &mut Case) -> Result<()> {
    play_histories(case, Kind::Rolling).await
}

#[e2e::test]
async fn a_stateful_set_survives_faults(case: &mut Case) -> Result<()> {
    play_histories(case, Kind::Set).await
}

/// Plays histories, each in a namespace of its own.
async fn play_histories(case: &mut Case, kind: Kind) -> Result<()> {
    case.operator.terminate().await?;
    let histories = (0..).map(History::from_seed).filter(|it| it.kind == kind);
    for history in histories.take(HISTORIES) {
        let folder = case.folder().join(history.seed.to_string());
        let outcome = play(case.plane(), history, &folder).await;
        ensure!(outcome.passed(), "{outcome}");
    }
    Ok(())
}

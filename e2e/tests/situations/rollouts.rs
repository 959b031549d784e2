//! Pauses, refusals, and rollouts that wait for nothing.

use anyhow::Result;
use e2e::case::Case;
use e2e::workload::manifest::Game;
use serde_json::json;

use super::{Situation, play};

#[e2e::test]
async fn pauses(case: &mut Case) -> Result<()> {
    let paused = |game: Game| game.set("/spec/updateStrategy/paused", true);
    let canary = |pause: serde_json::Value| {
        Game::in_place(2).steps(json!([{"partition": 1}, {"pause": pause}]))
    };
    let unpaused = || canary(json!({})).set("/spec/updateStrategy/paused", false);
    play(
        case,
        vec![
            Situation::by_change(
                "paused-by-a-user",
                Game::in_place(2),
                paused(Game::in_place(2)).image("game:v2"),
            )
            .expect("Paused", &["paused", "kubectl game resume"], 2)
            .recovers(),
            Situation::by_update("pause-step", canary(json!({})))
                .expect("PausedByCanaryPauseStep", &["canary step 1", "kubectl game resume"], 2)
                .recovers(),
            Situation::by_update("timed-pause", canary(json!({"duration": 300})))
                .expect("PausedByCanaryPauseStep", &["canary step 1", "kubectl game resume"], 3)
                .recovers(),
            Situation::by_typing("paused-at-rest", Game::in_place(1), &["kubectl game pause NAME"])
                .expect("", &["resume"], 0),
            Situation::by_change("pause-by-apply", unpaused(), unpaused().image("game:v2")).expect(
                "PausedByCanaryPauseStep",
                &["canary step 1"],
                2,
            ),
        ],
    )
    .await
}

#[e2e::test]
async fn refusals(case: &mut Case) -> Result<()> {
    let mounts = json!([{"name": "missing", "mountPath": "/data"}]);
    let range = |range: &str| {
        Game::rolling(2)
            .set("/metadata/annotations/tkex.bkbcs.tencent.com~1gamedeployment-index-on", "true")
            .set("/metadata/annotations/tkex.bkbcs.tencent.com~1gamedeployment-index-range", range)
    };
    let two = r#"{"podStartIndex": 0, "podEndIndex": 2}"#;
    let bad =
        || Game::rolling(2).set("/spec/template/spec/containers/0/volumeMounts", mounts.clone());
    play(
        case,
        vec![
            Situation::at_once("refused-first-template", bad()).expect(
                "FailedCreate",
                &["missing", "kubectl describe"],
                2,
            ),
            Situation::by_change("refused-template", Game::rolling(2), bad())
                .expect("TemplateRefused", &["missing", "kubectl game undo"], 2)
                .recovers(),
            Situation::by_change(
                "not-in-place",
                Game::in_place(1),
                Game::in_place(1).set("/spec/template/spec/hostname", "other"),
            )
            .expect("NotInPlace", &["hostname", "kubectl game undo"], 2)
            .recovers(),
            Situation::by_change(
                "no-more-indexes",
                range(two),
                range(two).set("/spec/replicas", 3),
            )
            .expect("PodIndexExhausted", &["index", "kubectl describe"], 2),
            Situation::by_change(
                "hot-patch-that-restarts",
                Game::hot_patch(2).annotated("stage.gamekeeper/hot-patch", "restart"),
                Game::hot_patch(2)
                    .annotated("stage.gamekeeper/hot-patch", "restart")
                    .image("game:v2"),
            )
            .expect("HotPatchNotSupported", &["restarted", "kubectl game undo"], 2),
        ],
    )
    .await
}

#[e2e::test]
async fn rollouts_that_go_on(case: &mut Case) -> Result<()> {
    let slow = |game: Game| game.annotated("stage.gamekeeper/ready-seconds", "20");
    play(
        case,
        vec![
            Situation::by_change(
                "partition",
                Game::in_place(2).partition(1),
                Game::in_place(2).partition(1).image("game:v2"),
            )
            .expect("", &["partition holds back 1"], 0),
            Situation::by_change(
                "on-delete",
                Game::rolling(2).updated_by("OnDelete"),
                Game::rolling(2).updated_by("OnDelete").image("game:v2"),
            )
            .expect("", &["OnDelete"], 0),
            Situation::at_once("complete", Game::rolling(1)).expect("", &["rollout complete"], 0),
            Situation::at_once(
                "in-batches",
                slow(Game::rolling(3)).set("/spec/scaleStrategy/createBatch", 1),
            )
            .expect("CreatingInBatches", &["0 of 3 pods are available"], 3),
            Situation::at_once("starting", slow(Game::rolling(1))).expect(
                "PodsUnavailable",
                &["0 of 1 pods are available"],
                3,
            ),
        ],
    )
    .await?;
    // Nobody plans for a workload whose operator is gone.
    case.kill_operator().await?;
    play(
        case,
        vec![
            Situation::by_typing(
                "complete",
                Game::rolling(1),
                &["kubectl game set image NAME game=game:v2"],
            )
            .expect("", &["has not observed"], 3),
        ],
    )
    .await
}

//! Pods that do not start, run or end.

use anyhow::Result;
use e2e::case::Case;
use e2e::workload::manifest::Game;
use serde_json::json;

use super::{Situation, play, until_complete};

const POD: &str = "/spec/template/spec";

fn with(field: &str, value: impl Into<serde_json::Value>) -> Game {
    Game::rolling(1).set(&format!("{POD}/{field}"), value)
}

#[e2e::test]
async fn pods_that_do_not_start(case: &mut Case) -> Result<()> {
    let claim = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]);
    let unbound = json!([{
        "metadata": {"name": "data"},
        "spec": {"storageClassName": "nobody", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    let requests = json!({"requests": {"cpu": "4000"}});
    let image = "cannot get its image game:nope";
    let update = |game: Game| game.max_unavailable(1);
    play(
        case,
        vec![
            Situation::at_once("image-typo", Game::rolling(2).image("game:nope")).expect(
                "ImageNotPulled",
                &[image, "0 of 2"],
                3,
            ),
            Situation::by_change(
                "image-typo-in-update",
                update(Game::rolling(2)),
                update(Game::rolling(2)).image("game:nope"),
            )
            .expect("ImageNotPulled", &[image, "kubectl game undo"], 3)
            .recovers(),
            Situation::by_change(
                "image-typo-in-place",
                update(Game::in_place(2)),
                update(Game::in_place(2)).image("game:nope"),
            )
            .expect("ImageNotPulled", &[image, "kubectl game undo"], 3),
            Situation::by_change(
                "image-typo-in-set",
                Game::ordered(2),
                Game::ordered(2).image("game:nope"),
            )
            .expect("ImageNotPulled", &[image, "image-typo-in-set-1"], 3)
            .recovers(),
            Situation::at_once("no-room", with("containers/0/resources", requests)).expect(
                "PodUnschedulable",
                &["cannot be scheduled", "Insufficient cpu"],
                3,
            ),
            Situation::at_once("no-such-node", with("nodeSelector", json!({"zone": "moon"})))
                .expect("PodUnschedulable", &["cannot be scheduled"], 3),
            Situation::at_once(
                "gated",
                with("schedulingGates", json!([{"name": "example.com/wait"}])),
            )
            .expect("PodUnschedulable", &["schedulingGates are removed"], 3),
            Situation::at_once("no-scheduler", with("schedulerName", "nobody")).expect(
                "PodUnschedulable",
                &["not been seen by any scheduler"],
                3,
            ),
            Situation::at_once("no-claim", with("volumes", claim)).expect(
                "ClaimNotBound",
                &["waits for its volume claim"],
                3,
            ),
            Situation::at_once(
                "unbound-claim",
                Game::ordered(1).set("/spec/volumeClaimTemplates", unbound),
            )
            .expect("ClaimNotBound", &["waits for its volume claim"], 3),
            Situation::at_once(
                "slow-start",
                Game::rolling(1).annotated("stage.gamekeeper/start-seconds", "100"),
            )
            .expect("ContainerNotStarted", &["has not started container game"], 3),
            Situation::at_once(
                "deadline",
                Game::rolling(1).image("game:nope").set("/spec/progressDeadlineSeconds", 2),
            )
            .expect(
                "ImageNotPulled",
                &["within 2 s (spec.progressDeadlineSeconds)", image],
                2,
            ),
            Situation::by_change(
                "deadline-in-update",
                Game::rolling(1).set("/spec/progressDeadlineSeconds", 4),
                Game::rolling(1).set("/spec/progressDeadlineSeconds", 4).image("game:nope"),
            )
            .expect("ImageNotPulled", &["within 4 s", "kubectl game undo"], 2)
            .recovers(),
        ],
    )
    .await
}

#[e2e::test]
async fn pods_that_start_and_do_not_work(case: &mut Case) -> Result<()> {
    let keeps_ending = "keeps ending, last with exit code";
    let probe = json!({"httpGet": {"port": 8080}});
    let gates =
        json!([{"conditionType": "InPlaceUpdateReady"}, {"conditionType": "example.com/lb"}]);
    play(
        case,
        vec![
            Situation::at_once("crash", Game::rolling(1).image("game:crash")).expect(
                "ContainerCrashing",
                &[keeps_ending, "kubectl logs"],
                3,
            ),
            Situation::by_change(
                "crash-in-update",
                Game::rolling(1),
                Game::rolling(1).image("game:crash"),
            )
            .expect("ContainerCrashing", &[keeps_ending, "kubectl game undo"], 3)
            .recovers(),
            Situation::by_change(
                "crash-of-a-canary",
                Game::in_place(2).steps(json!([{"partition": 1}, {"pause": {}}])),
                Game::in_place(2)
                    .steps(json!([{"partition": 1}, {"pause": {}}]))
                    .image("game:crash"),
            )
            .expect("ContainerCrashing", &[keeps_ending, "kubectl game undo"], 3)
            .recovers(),
            Situation::at_once(
                "never-ready",
                with("containers/0/readinessProbe", probe).image("game:neverready"),
            )
            .expect("ProbeNotSuccessful", &["readiness probe has not succeeded"], 3),
            Situation::at_once("foreign-gate", with("readinessGates", gates)).expect(
                "ReadinessGateClosed",
                &["readiness gate example.com/lb"],
                3,
            ),
        ],
    )
    .await?;
    // What crashed was never stable, so it is not what an undo returns to.
    let history = case.game(&["history", "gd/crash-in-update"]).await?;
    let crashed = history.stdout.lines().find(|line| line.contains("game:crash"));
    anyhow::ensure!(crashed.is_some_and(|it| !it.contains("stable")), "{}", history.stdout);
    let undone = case.game(&["undo", "gd/crash-in-update"]).await?;
    anyhow::ensure!(undone.stderr.contains("an undo is not undone"), "{undone:?}");
    until_complete(case, "gd/crash-in-update").await
}

#[e2e::test]
async fn pods_that_do_not_end(case: &mut Case) -> Result<()> {
    let kept =
        || Game::rolling(1).set("/spec/template/metadata/finalizers", json!(["example.com/keep"]));
    play(
        case,
        vec![
            Situation::by_typing("finalizer", kept(), &["kubectl delete pod POD --wait=false"])
                .expect("PodHeldByFinalizer", &["finalizer example.com/keep keeps it"], 3),
        ],
    )
    .await?;
    let none = r#"-p={"metadata":{"finalizers":null}}"#;
    for pod in case.list("pods").await? {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        case.kubectl(&["patch", "pod", name, "--type=merge", none]).await?;
    }
    until_complete(case, "gd/finalizer").await
}

//! Adoption and release of pods, deletion of workloads, and names of maximum length.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::faults::{Script, WatchFault};
use e2e::random::Random;
use e2e::servers::hook_server::Answer;
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template, retrying_hook_template};
use e2e::workload::view::View;
use judge::object::{controller, text};
use serde_json::{Value, json};

#[e2e::test]
async fn matching_orphans_are_adopted(case: &mut Case) -> Result<()> {
    let orphan = |name: &str, app: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
        })
    };
    case.apply(orphan("ours-abcde", GAME)).await?;
    case.apply(orphan("theirs", "other")).await?;
    // If the operator observed the workload before the orphans, it would create three pods first.
    case.eventually("the operator has observed the orphans", async || {
        let (_, page) = case.operator.get("/metrics").await?;
        let cached = "gamekeeper_cached_objects{kind=\"Pod\"} 2";
        ensure!(page.contains(cached), "{page}");
        Ok(())
    })
    .await?;
    let paused = "/spec/updateStrategy/paused";
    case.apply(Game::rolling(3).set(paused, true)).await?;
    let view = case
        .until("the orphan is adopted as one of three pods", |view| {
            view.pods.len() == 3 && view.pod_names().contains(&"ours-abcde")
        })
        .await?;
    view.ensure(!view.pod_names().contains(&"theirs"))?;
    // The orphan has no known revision, so it is updated like an old pod.
    case.resume().await?;
    let view = case.until_settled(3).await?;
    view.ensure(!view.pod_names().contains(&"ours-abcde"))
}

#[e2e::test]
async fn an_orphaned_pod_is_adopted_and_not_replaced(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2)).await?;
    let before = case.until_settled(2).await?;
    let pod = format!("pods/{}", before.pod_names()[0]);
    let orphan = json!([{"op": "remove", "path": "/metadata/ownerReferences"}]);
    case.patch(&pod, orphan).await?;
    case.eventually("the pod is adopted", async || {
        let owners = case.get(&pod).await?["metadata"]["ownerReferences"].take();
        ensure!(owners[0]["name"] == GAME, "{owners}");
        Ok(())
    })
    .await?;
    case.until_settled(2).await?;
    let creations = case
        .writes()?
        .sum(|kind| kind.verb == "create" && kind.resource == "pods" && kind.code == 201);
    ensure!(creations == 2, "{creations} pods were created");
    Ok(())
}

#[e2e::test]
async fn a_pod_that_no_longer_matches_is_released(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2)).await?;
    let before = case.until_settled(2).await?;
    let name = before.pod_names()[0].to_owned();
    case.kubectl(&["label", "pod", &name, "app=debug", "--overwrite"]).await?;
    let replaced = |view: &View| view.pods.len() == 2 && !view.pod_names().contains(&name.as_str());
    case.until("the pod is replaced", replaced).await?;
    case.until_settled(2).await?;
    let released = case.get(&format!("pods/{name}")).await?;
    ensure!(released["metadata"]["ownerReferences"].is_null(), "{released}");
    ensure!(released["metadata"]["deletionTimestamp"].is_null(), "{released}");
    Ok(())
}

#[e2e::test]
async fn two_workloads_do_not_share_pods(case: &mut Case) -> Result<()> {
    // One selector matches the pods of both workloads, the other only those of its own workload.
    let wide = Game::in_place(2).set("/spec/selector/matchLabels", json!({"team": "a"}));
    let wide = wide.set("/spec/template/metadata/labels", json!({"team": "a", "app": GAME}));
    let narrow = Game::in_place(2).named("narrow").set("/spec/template/metadata/labels/team", "a");
    case.apply(wide).await?;
    case.apply(narrow).await?;
    let settled = |view: &View| view.counts() == [2; 5] && view.is_observed();
    case.until("the workload has two pods", settled).await?;
    case.until_of("narrow", "the workload has two pods", settled).await?;
    case.consistently("the workload has two pods", 2, settled).await?;
    ensure!(case.list("pods").await?.len() == 4, "expected four pods");
    Ok(())
}

fn long_name(length: usize) -> String {
    "a-name-as-long-as-names-of-game-servers-may-be-so-that-it-is-cut-nowhere"[..length].to_owned()
}

#[e2e::test]
async fn names_of_52_characters_work(case: &mut Case) -> Result<()> {
    let name = long_name(52);
    let template = format!("{}-{}", long_name(60), "t".repeat(190));
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(retrying_hook_template(&template, &case.hooks.url("/"))).await?;
    let game = Game::in_place(2).max_unavailable(1).pre_delete(&template).named(&name);
    case.apply(game).await?;
    let is_full = |view: &View| view.counts() == [2; 5] && view.is_observed();
    case.until_of(&name, "the workload has two pods", is_full).await?;
    let resource = format!("gamedeployment/{name}");
    let image = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "game:v2"}]);
    case.patch(&resource, image).await?;
    case.until_of(&name, "a hook runs", |view| view.phases("PreDelete") == ["Running"]).await?;
    case.hooks.answer("/", Answer::Json(json!({"age": 45})));
    case.until_of(&name, "all pods are updated", |view| {
        is_full(view) && view.ready_with("game:v2") == 2
    })
    .await?;
    case.kubectl(&["scale", "--replicas=1", &resource]).await?;
    case.until_of(&name, "one pod is left", |view| view.counts() == [1; 5]).await?;
    Ok(())
}

#[e2e::test]
async fn names_of_53_characters_are_refused(case: &mut Case) -> Result<()> {
    let game = Game::in_place(1).named(&long_name(53)).to_string();
    let error = case.refused(&["apply", "-f", "-"], &game).await?;
    ensure!(error.contains("52"), "{error}");
    Ok(())
}

#[e2e::test]
async fn the_selector_cannot_change(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    let other = Game::in_place(1)
        .set("/spec/selector/matchLabels/app", "other")
        .set("/spec/template/metadata/labels/app", "other")
        .to_string();
    let error = case.refused(&["apply", "-f", "-"], &other).await?;
    ensure!(error.contains("spec.selector"), "{error}");
    case.until_settled(1).await?;
    Ok(())
}

#[e2e::test]
async fn deleting_the_workload_deletes_its_pods(case: &mut Case) -> Result<()> {
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::in_place(3).pre_delete("test")).await?;
    case.until_settled(3).await?;
    case.kubectl(&["delete", "gamedeployment", GAME]).await?;
    until_nothing_is_left(case).await
}

async fn until_nothing_is_left(case: &Case) -> Result<()> {
    case.eventually("nothing is left", async || {
        for resource in ["pods", "controllerrevisions", "hookruns"] {
            let left = case.list(resource).await?;
            ensure!(left.is_empty(), "{} {resource} are left", left.len());
        }
        Ok(())
    })
    .await
}

#[e2e::test]
async fn an_orphaning_deletion_keeps_the_pods(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2)).await?;
    case.until_settled(2).await?;
    let uids = async || -> Result<Vec<Value>> {
        let pods = case.list("pods").await?;
        Ok(pods.into_iter().map(|pod| pod["metadata"]["uid"].clone()).collect())
    };
    let before = uids().await?;
    case.kubectl(&["delete", "gamedeployment", GAME, "--cascade=orphan"]).await?;
    case.apply(Game::in_place(2)).await?;
    case.until_settled(2).await?;
    ensure!(uids().await? == before, "the pods were replaced");
    Ok(())
}

#[e2e::test]
async fn a_game_deployment_can_be_deleted_during_an_update(case: &mut Case) -> Result<()> {
    delete_during_update(case, Game::in_place(8)).await
}

#[e2e::test]
async fn a_game_stateful_set_can_be_deleted_during_an_update(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let set = Game::parallel(8).updated_by("InplaceUpdate");
    delete_during_update(case, set).await
}

/// Deletes a workload at a random time during an update, with each propagation policy. The operator observes the
/// deletion up to four seconds late.
///
/// The judge finds each action that starts for the workload more than three seconds after its deletion. Within that
/// time it cannot tell an action from one whose proof or request was already in flight, and only checks it against the
/// workload's last version. So an operator that acts on its cache alone is found only if its watch is late.
async fn delete_during_update(case: &mut Case, game: Game) -> Result<()> {
    let (mut random, seed) = Random::seeded();
    println!("E2E_SEED={seed}");
    let proxy = case.restart_behind_proxy().await?;
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    let game = game.max_unavailable(3).pre_inplace("test");
    for cascade in ["background", "foreground", "orphan"] {
        case.apply(game.clone()).await?;
        case.until_settled(8).await?;
        case.set_image("game:v2").await?;
        tokio::time::sleep(random.between(0, 2_000)).await;
        let lag = WatchFault::Lag(random.between(2_000, 10_000));
        let late = Script::default().watching("gamedeployments", lag, 0.0, 60.0).watching(
            "gamestatefulsets",
            lag,
            0.0,
            60.0,
        );
        proxy.play(late);
        let cascade_flag = format!("--cascade={cascade}");
        case.kubectl(&["delete", &case.workload(), &cascade_flag]).await?;
        if cascade == "orphan" {
            let pods = case.list("pods").await?;
            ensure!(pods.len() == 8, "{} pods are left", pods.len());
            case.kubectl(&["delete", "pods,controllerrevisions,hookruns", "--all"]).await?;
        }
        until_nothing_is_left(case).await?;
        proxy.heal();
    }
    ensure_created_once(case, "controllerrevisions")
}

/// Checks that the operator created no object again that was deleted with its owner.
fn ensure_created_once(case: &Case, resource: &str) -> Result<()> {
    let mut created = BTreeSet::new();
    for event in case.events()? {
        let is_creation = event.verb == "create" && event.resource() == resource;
        let new = event.response_object.as_ref();
        let Some(new) = new.filter(|_| is_creation && event.succeeded()) else {
            continue;
        };
        let (name, owner) = (text(new, "/metadata/name"), controller(new));
        let is_first = created.insert((name.to_owned(), owner.map(str::to_owned)));
        ensure!(is_first, "{name} was created again at {}", event.received);
    }
    ensure!(!created.is_empty(), "no {resource} were created");
    Ok(())
}

#[e2e::test]
async fn an_orphaned_run_is_recreated(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(retrying_hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::in_place(1).pre_inplace("test")).await?;
    case.until_settled(1).await?;
    case.set_image("game:v2").await?;
    let running = |view: &View| view.phases("PreInplace") == ["Running"];
    let before = case.until("the hook runs", running).await?;
    // Orphans the run, as an orphaning deletion of the workload would.
    let run = format!("hookrun/{}", before.runs[0].name());
    let orphan = json!([{"op": "remove", "path": "/metadata/ownerReferences"}]);
    case.patch(&run, orphan).await?;
    case.until("another run is Running", |view| {
        running(view) && view.runs[0].uid() != before.runs[0].uid()
    })
    .await?;
    case.hooks.answer("/", Answer::Json(json!({"age": 45})));
    case.until_settled(1).await?;
    Ok(())
}

#[e2e::test]
async fn a_namespace_can_be_deleted(case: &mut Case) -> Result<()> {
    // The operator's permissions for its lease are deleted with this namespace.
    case.operator.terminate().await?;
    case.operator.disable_leader_election();
    case.operator.start().await?;
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(retrying_hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::in_place(3).pre_delete("test")).await?;
    case.until_settled(3).await?;
    case.scale(2).await?;
    case.until("a hook runs", |view| view.runs.len() == 1).await?;
    let namespace = case.namespace.clone();
    case.kubectl(&["delete", "namespace", &namespace, "--wait=true", "--timeout=300s"]).await?;
    Ok(())
}

//! Other tools: the actions of Argo CD, what syncs do to fields that others write, and kustomize. Argo CD's health checks run in
//! the tests of kstatus.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::addons::argo_cd::{SERVER, actions, ensure_health, folder, health, patch};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::servers::hook_server::Answer;
use e2e::workload::manifest::{Game, hook_template};
use e2e::workload::view::View;
use serde_json::{Value, json};

use crate::sidecars;

async fn get(case: &Case, name: &str) -> Result<Value> {
    let printed = case.kubectl(&["get", name, "-o=json"]).await?;
    Ok(serde_json::from_str(&printed)?)
}

async fn offered(case: &Case, name: &str) -> Result<Vec<String>> {
    actions(&get(case, name).await?).await
}

/// Runs an action as Argo CD does, which must be offered.
async fn act(case: &Case, name: &str, action: &str) -> Result<()> {
    let object = get(case, name).await?;
    let offered = actions(&object).await?;
    ensure!(offered.iter().any(|it| it == action), "{action} is not in {offered:?}");
    let patch = format!("-p={}", patch(&object, action).await?);
    let manager = format!("--field-manager={SERVER}");
    case.kubectl(&["patch", name, "--type=merge", &manager, &patch]).await?;
    Ok(())
}

fn is_paused_at(view: &View, step: i64) -> bool {
    view.step() == step && view.is_paused() && !view.pause_reasons().is_empty()
}

#[e2e::test]
async fn the_actions_steer_a_rollout(case: &mut Case) -> Result<()> {
    case.hooks.answer("/drained", Answer::Json(json!({"age": 45})));
    case.apply(hook_template("drained", &case.hooks.url("/drained"))).await?;
    let steps = json!([{"partition": 1}, {"pause": {}}, {"pause": {"duration": 600}}]);
    // Git has `paused`, so an apply of false would not resume the rollout.
    let game = Game::in_place(2).pre_delete("drained").steps(steps);
    case.apply(game.set("/spec/updateStrategy/paused", false)).await?;
    case.until_settled(2).await?;
    let name = case.workload();
    ensure!(offered(case, &name).await? == ["pause"]);

    case.set_image("game:v2").await?;
    case.until("paused at step 1", |view| is_paused_at(view, 1)).await?;
    let object = get(case, &name).await?;
    ensure_health(&object, &["Suspended"]).await?;
    let health = health(&object).await?;
    ensure!(health["message"].to_string().contains("canary step 1"), "{health}");
    ensure!(offered(case, &name).await? == ["promote", "promote-full", "resume", "undo"]);
    act(case, &name, "undo").await?;
    let view = case.until_settled(2).await?;
    view.ensure(
        view.ready_with("game:v1") == 2
            && view.text("/spec/template/spec/containers/0/image") == "game:v1",
    )?;

    case.set_image("game:v2").await?;
    case.until("paused at step 1 again", |view| is_paused_at(view, 1)).await?;
    act(case, &name, "promote").await?;

    case.until("paused at step 2", |view| is_paused_at(view, 2)).await?;
    ensure!(offered(case, &name).await? == ["pause", "promote", "promote-full", "resume", "undo"]);
    act(case, &name, "pause").await?;
    case.until("paused by the user", |view| view.is_paused() && view.pause_reasons().is_empty())
        .await?;
    let object = get(case, &name).await?;
    ensure!(actions(&object).await? == ["resume", "undo"]);
    for action in ["promote", "promote-full"] {
        ensure!(patch(&object, action).await.is_err(), "{action}");
    }
    act(case, &name, "resume").await?;
    case.until("paused at step 2 again", |view| is_paused_at(view, 2)).await?;
    act(case, &name, "promote-full").await?;
    case.until_settled(2).await?;

    case.hooks.answer("/drained", Answer::Json(json!({"age": 5})));
    case.scale(1).await?;
    case.until("the hook has failed", |view| !view.hook_conditions("preDelete").is_empty()).await?;
    ensure!(offered(case, &name).await? == ["pause", "retry"]);
    case.hooks.answer("/drained", Answer::Json(json!({"age": 45})));
    act(case, &name, "retry").await?;
    case.until_settled(1).await?;
    Ok(())
}

#[e2e::test]
async fn the_actions_pause_and_resume_a_sidecar_set(case: &mut Case) -> Result<()> {
    let name = format!("sidecarsets/{}", sidecars::name(case));
    let set = |image: &str| {
        let container = json!([{"name": "log", "image": image}]);
        sidecars::set(case, container)
    };
    case.apply(set("log:1.0")).await?;
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    ensure!(offered(case, &name).await? == ["pause"]);
    act(case, &name, "pause").await?;
    case.apply(set("log:2.0")).await?;
    case.eventually("the set is suspended", async || {
        ensure_health(&get(case, &name).await?, &["Suspended"]).await
    })
    .await?;
    act(case, &name, "resume").await?;
    case.eventually("the set is healthy", async || {
        ensure_health(&get(case, &name).await?, &["Healthy"]).await
    })
    .await?;
    sidecars::remove(case).await
}

/// A workload at the pause of a canary, whose manifest has none of the fields that others write.
async fn pause_a_canary(case: &Case) -> Result<Game> {
    let game = Game::in_place(3).max_unavailable(2);
    let game = game.steps(json!([{"partition": 2}, {"pause": {}}])).without("replicas");
    case.apply(&game).await?;
    case.scale(3).await?;
    case.until_settled(3).await?;
    let game = game.image("game:v2");
    case.apply(&game).await?;
    case.until("paused at step 1", |view| {
        is_paused_at(view, 1) && view.counts() == [3, 1, 1, 3, 3]
    })
    .await?;
    Ok(game)
}

#[e2e::test]
async fn a_sync_leaves_alone_what_git_does_not_have(case: &mut Case) -> Result<()> {
    let game = pause_a_canary(case).await?;
    case.apply(&game).await?;
    case.server_side_apply(&game).await?;
    case.until_planned(&case.workload()).await?;
    let stays = |view: &View| is_paused_at(view, 1) && view.counts() == [3, 1, 1, 3, 3];
    case.consistently("the canary stays at its pause", 2, stays).await
}

/// What docs/gitops.md says about fields that a manifest contains although others write them.
#[e2e::test]
async fn a_sync_sets_what_git_has_and_the_operator_answers(case: &mut Case) -> Result<()> {
    let manifest = Game::rolling(2);
    case.apply(&manifest).await?;
    let before = case.until_settled(2).await?;
    // Replicas come back with each sync.
    case.scale(3).await?;
    case.until_settled(3).await?;
    case.apply(&manifest).await?;
    case.until_settled(2).await?;
    // `retry` is set back, and so differs from Git again.
    let retry = manifest.clone().set("/spec/preDeleteUpdateStrategy/retry", true);
    for _ in 0..2 {
        case.apply(&retry).await?;
        case.until("retry is set back", |view| {
            view.game["spec"]["preDeleteUpdateStrategy"]["retry"] == false && view.is_settled(2)
        })
        .await?;
    }
    // A name is removed from podsToDelete once its pod is gone. The next sync brings it back, which replaces no pod.
    let pod = before.pod_names()[0].to_owned();
    let listed = manifest.clone().set("/spec/scaleStrategy/podsToDelete", json!([pod]));
    case.apply(&listed).await?;
    let replaced = case
        .until("the pod is replaced", |view| {
            view.is_settled(2)
                && !view.pod_names().contains(&&*pod)
                && view.game["spec"]["scaleStrategy"]["podsToDelete"] == json!([])
        })
        .await?;
    case.apply(&listed).await?;
    let view = case
        .until("the name is removed again", |view| {
            view.is_settled(2) && view.game["spec"]["scaleStrategy"]["podsToDelete"] == json!([])
        })
        .await?;
    view.ensure(view.pod_names() == replaced.pod_names())?;
    // A replacement ends a user's pause, an apply does not.
    case.replace("/spec/updateStrategy", json!({"type": "RollingUpdate", "paused": true})).await?;
    case.apply(&manifest).await?;
    let view = case.view().await?;
    view.ensure(view.is_paused())?;
    case.kubectl_with(&["replace", "-f=-"], &manifest.to_string()).await?;
    let view = case.view().await?;
    view.ensure(!view.is_paused())?;
    // A manifest from which `replicas` was removed means the default. The replacement has dropped what kubectl remembers of
    // the last apply.
    case.apply(&manifest).await?;
    case.apply(manifest.without("replicas")).await?;
    case.until_settled(1).await?;
    Ok(())
}

/// The operator would set `paused` to true again, but the user is faster, or it has given up.
#[e2e::test]
async fn a_user_resumes_while_paused_is_false_because_of_a_sync(case: &mut Case) -> Result<()> {
    let steps = json!([{"partition": 2}, {"pause": {}}, {"partition": 1}, {"pause": {}}]);
    let game = Game::in_place(3).steps(steps).set("/spec/updateStrategy/paused", false);
    case.server_side_apply(&game).await?;
    case.until_settled(3).await?;
    let game = game.image("game:v2");
    let name = case.workload();
    for step in [1, 3] {
        case.server_side_apply(&game).await?;
        case.until("paused", |view| is_paused_at(view, step)).await?;
        case.operator.freeze().await?;
        case.server_side_apply(&game).await?;
        let view = case.view().await?;
        view.ensure(!view.is_paused())?;
        if step == 1 {
            let resumed = case.game(&["resume", &name]).await?;
            ensure!(resumed.code == 0, "{resumed:?}");
        } else {
            act(case, &name, "resume").await?;
        }
        case.operator.thaw().await?;
    }
    let view = case.until_settled(3).await?;
    view.ensure(view.ready_with("game:v2") == 3)
}

/// `Replace=true` also removes the operator's annotations.
#[e2e::test]
async fn a_replacement_does_not_end_a_pause(case: &mut Case) -> Result<()> {
    let game = pause_a_canary(case).await?.set("/spec/replicas", 3);
    case.kubectl_with(&["replace", "-f=-"], &game.to_string()).await?;
    let stays = |view: &View| is_paused_at(view, 1) && view.counts() == [3, 1, 1, 3, 3];
    case.until("paused again", stays).await?;
    case.consistently("the canary stays at its pause", 2, stays).await?;
    // Without replicas, a replacement means the default.
    let without = game.without("replicas");
    case.kubectl_with(&["replace", "-f=-"], &without.to_string()).await?;
    case.until("one pod is left", |view| view.counts()[4] == 1).await?;
    Ok(())
}

/// Runs health_test.yaml and action_test.yaml of each kind, as Argo CD's own tests do.
#[e2e::test]
async fn the_scripts_pass_the_tests_of_argo_cd(_: &mut Case) -> Result<()> {
    let read = |path: &Path| -> Result<Value> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Ok(serde_yaml_ng::from_str(&text)?)
    };
    let mut checked = 0;
    for kind in ["GameDeployment", "GameStatefulSet", "HookRun", "SidecarSet", "Cluster"] {
        let folder = folder().join(kind);
        for test in list(&read(&folder.join("health_test.yaml"))?["tests"])? {
            let object = read(&folder.join(path(&test["inputPath"])?))?;
            let found = health(&object).await?;
            ensure!(found == test["healthStatus"], "{kind}: {found} instead of {test:#}");
            checked += 1;
        }
        let folder = folder.join("actions");
        if !folder.join("action_test.yaml").exists() || kind == "GameStatefulSet" {
            continue;
        }
        let tests = read(&folder.join("action_test.yaml"))?;
        for test in list(&tests["discoveryTests"])? {
            let found = actions(&read(&folder.join(path(&test["inputPath"])?))?).await?;
            let all = list(&test["result"])?.into_iter();
            let expected = all.filter(|it| it["disabled"] == false);
            let mut expected: Vec<Value> = expected.map(|it| it["name"].clone()).collect();
            expected.sort_by_key(ToString::to_string);
            ensure!(json!(found) == json!(expected), "{kind}: {found:?} instead of {test:#}");
            checked += 1;
        }
        for test in list(&tests["actionTests"])? {
            let mut object = read(&folder.join(path(&test["inputPath"])?))?;
            let change = patch(&object, path(&test["action"])?).await?;
            merge(&mut object, change);
            let expected = read(&folder.join(path(&test["expectedOutputPath"])?))?;
            ensure!(object == expected, "{kind}: {object:#} instead of {test:#}");
            checked += 1;
        }
    }
    ensure!(checked > 20, "{checked}");
    Ok(())
}

/// kustomize renames objects, and what refers to them.
#[e2e::test]
async fn kustomize_changes_names_replicas_and_images(case: &mut Case) -> Result<()> {
    let folder = repository().join("release/kustomize");
    case.kubectl(&["apply", "-k", &folder.to_string_lossy()]).await?;
    let view = case.until_of("test-plaza", "settled", |view| view.is_settled(2)).await?;
    view.ensure(view.ready_with("nginx:1.29") == 2)?;
    let hook = "/spec/preDeleteUpdateStrategy/hook/templateName";
    view.ensure(view.text(hook) == "test-plaza-is-empty")?;
    let settings = view.text("/spec/template/spec/containers/0/envFrom/0/configMapRef/name");
    case.kubectl(&["get", "configmap", settings]).await?;
    Ok(())
}

fn list(value: &Value) -> Result<Vec<Value>> {
    value.as_array().cloned().context("no list")
}

fn path(value: &Value) -> Result<&str> {
    value.as_str().context("no text")
}

/// Applies a merge patch.
fn merge(object: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *object = patch;
        return;
    };
    for (key, value) in patch {
        match value {
            Value::Null => drop(object.as_object_mut().and_then(|it| it.remove(&key))),
            value => merge(&mut object[key], value),
        }
    }
}

//! Sidecars of running pods are updated in place: after the same hook and within the same limits as the game.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::faults::{Script, WatchFault};
use e2e::servers::hook_server::Answer;
use e2e::workload::manifest::{Game, hook_template, retrying_hook_template};
use e2e::workload::view::{Pod, View};
use judge::Event;
use judge::object::{restarts, text};
use serde_json::{Value, json};

use crate::sidecars::{
    condition, label, log, name, read, remove, set, until_injecting, until_shown,
};

/// Creates a set with this update strategy, and pods that have its containers.
async fn create_set_and_pods(
    case: &Case,
    game: Game,
    strategy: Value,
    replicas: i64,
) -> Result<View> {
    let mut set = set(case, log());
    set["spec"]["updateStrategy"] = strategy;
    case.apply(set).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    case.apply(game).await?;
    let view = case.until_settled(replicas).await?;
    until_shown(case, [replicas, replicas, replicas, 0]).await?;
    Ok(view)
}

/// Changes the set's image, as a user does.
pub(crate) async fn set_image(case: &Case, image: &str) -> Result<()> {
    let image = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": image}]);
    case.patch(&format!("sidecarset/{}", name(case)), image).await?;
    Ok(())
}

pub(crate) async fn set_strategy(case: &Case, strategy: Value) -> Result<()> {
    let strategy = json!([{"op": "replace", "path": "/spec/updateStrategy", "value": strategy}]);
    case.patch(&format!("sidecarset/{}", name(case)), strategy).await?;
    Ok(())
}

/// The image of a pod's container.
pub(crate) fn image<'p>(pod: &'p Value, container: &str) -> &'p str {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut found = containers.filter(|it| it["name"] == container);
    found.next().map_or("", |it| text(it, "/image"))
}

/// The number of pods whose sidecar has this image in its spec.
pub(crate) fn count(view: &View, sidecar: &str) -> usize {
    let pods = view.pods.iter();
    pods.filter(|pod| image(&pod.0, "log") == sidecar).count()
}

pub(crate) fn uids(view: &View) -> Vec<&str> {
    let mut uids: Vec<&str> = view.pods.iter().map(Pod::uid).collect();
    uids.sort_unstable();
    uids
}

#[e2e::test]
async fn a_changed_image_reaches_running_pods_after_their_hook(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 12})));
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    let game = Game::in_place(3).pre_inplace("test");
    let before = create_set_and_pods(case, game, json!({}), 3).await?;
    set_image(case, "log:1.1").await?;
    case.until("a pod's hook has failed", |view| {
        view.runs.iter().any(|run| run.phase() == "Failed")
    })
    .await?;
    case.consistently("no sidecar is updated", 2, |view| count(view, "log:1.0") == 3).await?;
    case.hooks.answer("/", Answer::Json(json!({"age": 45})));
    // The failed hook is run again when another pod has had its turn.
    let shown = until_shown(case, [3, 3, 3, 0]).await?;
    ensure!(condition(&shown, "Progressing").1 == "Complete", "{shown:#}");
    let after = case
        .until("the sidecars have been restarted", |view| {
            view.is_settled(3) && view.pods.iter().all(|pod| restarts(&pod.0) == 1)
        })
        .await?;
    after.ensure(count(&after, "log:1.1") == 3 && uids(&after) == uids(&before))?;
    after.ensure(after.pods.iter().all(|pod| image(&pod.0, "game") == "game:v1"))?;
    let table = case.kubectl(&["get", "sidecarset", "-o", "wide", &name(case)]).await?;
    ensure!(
        table.contains("UPDATED_READY") && table.contains(text(&shown, "/status/latestRevision")),
        "{table}"
    );
    remove(case).await
}

/// The image and the number of restarts of a pod's native sidecar, as its kubelet reports them.
fn native_sidecar(pod: &Pod) -> (&str, &Value) {
    let status = &pod.0["status"]["initContainerStatuses"][0];
    (text(status, "/image"), &status["restartCount"])
}

/// The uids of the pods and the IDs of their game containers. An ID changes only when its container is restarted.
fn game_container_ids(view: &View) -> Vec<(&str, &str)> {
    let pods = view.pods.iter();
    let mut containers: Vec<_> = pods
        .map(|pod| {
            let id = "/status/containerStatuses/0/containerID";
            (pod.uid(), text(&pod.0, id))
        })
        .collect();
    containers.sort_unstable();
    containers
}

#[e2e::test]
async fn a_native_sidecar_is_updated_in_place_after_the_hook(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 12})));
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    let mut set = set(case, json!([]));
    let mesh = json!({"name": "mesh", "image": "mesh:1.0", "restartPolicy": "Always"});
    set["spec"]["initContainers"] = json!([mesh]);
    case.apply(set).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    case.apply(Game::in_place(2).pre_inplace("test")).await?;
    let before = case.until_settled(2).await?;
    until_shown(case, [2, 2, 2, 0]).await?;
    for pod in &before.pods {
        let spec = &pod.0["spec"];
        let [init, containers] = ["initContainers", "containers"].map(|it| &spec[it]);
        let length = |list: &Value| list.as_array().map_or(0, Vec::len);
        before.ensure(length(init) == 1 && length(containers) == 1)?;
        before.ensure(init[0]["name"] == "mesh" && init[0]["restartPolicy"] == "Always")?;
    }

    let image = json!([{
        "op": "replace", "path": "/spec/initContainers/0/image", "value": "mesh:1.1",
    }]);
    case.patch(&format!("sidecarset/{}", name(case)), image).await?;
    case.until("a pod's hook has failed", |view| {
        view.runs.iter().any(|run| run.phase() == "Failed")
    })
    .await?;
    case.consistently("no sidecar is updated", 2, |view| {
        view.pods.iter().all(|pod| native_sidecar(pod).0 == "mesh:1.0")
    })
    .await?;
    case.hooks.answer("/", Answer::Json(json!({"age": 45})));
    until_shown(case, [2, 2, 2, 0]).await?;
    let after = case
        .until("the sidecars have been restarted", |view| {
            let is_new = |pod: &Pod| native_sidecar(pod) == ("mesh:1.1", &json!(1));
            view.is_settled(2) && view.pods.iter().all(is_new)
        })
        .await?;
    after.ensure(game_container_ids(&after) == game_container_ids(&before))?;
    after.ensure(after.pods.iter().all(|pod| restarts(&pod.0) == 0))?;
    remove(case).await
}

#[e2e::test]
async fn a_bad_image_stops_the_update_until_it_is_reverted(case: &mut Case) -> Result<()> {
    let game = Game::in_place(4).max_unavailable(3);
    create_set_and_pods(case, game, json!({"maxUnavailable": 2}), 4).await?;
    set_image(case, "log:2-neverready").await?;
    case.until("two pods have the bad image", |view| count(view, "log:2-neverready") == 2).await?;
    case.consistently("the other pods keep the good image", 3, |view| count(view, "log:1.0") == 2)
        .await?;
    until_shown(case, [4, 2, 2, 0]).await?;
    set_image(case, "log:1.0").await?;
    until_shown(case, [4, 4, 4, 0]).await?;
    case.until_settled(4).await?;
    remove(case).await
}

#[e2e::test]
async fn the_game_and_its_sidecar_are_updated_together(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 12})));
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    let game = Game::in_place(1).pre_inplace("test").max_unavailable(1);
    let before = create_set_and_pods(case, game, json!({}), 1).await?;
    case.set_image("game:v2").await?;
    set_image(case, "log:1.1").await?;
    case.until("the hook has run for both changes", |view| {
        let mut runs = view.runs.iter();
        runs.any(|run| {
            let target =
                text(&run.0, "/metadata/annotations/gamekeeper.tkex.tencent.com~1target-revision");
            target.contains('+') && run.phase() == "Failed"
        })
    })
    .await?;
    case.hooks.answer("/", Answer::Json(json!({"age": 45})));
    let retry =
        json!([{"op": "add", "path": "/spec/preInplaceUpdateStrategy/retry", "value": true}]);
    case.patch(&case.workload(), retry).await?;
    let after = case.until_settled(1).await?;
    let pod = &after.pods[0].0;
    after.ensure((image(pod, "game"), image(pod, "log")) == ("game:v2", "log:1.1"))?;
    after.ensure(uids(&after) == uids(&before))?;
    // One patch of the spec made both changes.
    let generation = |view: &View| view.pods[0].0["metadata"]["generation"].as_i64();
    let generations = generation(&after).zip(generation(&before));
    after.ensure(generations.is_some_and(|(after, before)| after == before + 1))?;
    until_shown(case, [1, 1, 1, 0]).await?;
    remove(case).await
}

#[e2e::test]
async fn the_partition_and_a_pause_hold_pods_back(case: &mut Case) -> Result<()> {
    let strategy = json!({"partition": 2, "maxUnavailable": 3});
    create_set_and_pods(case, Game::in_place(3).max_unavailable(3), strategy, 3).await?;
    set_image(case, "log:1.1").await?;
    let shown = until_shown(case, [3, 1, 3, 0]).await?;
    case.consistently("two pods are held back", 2, |view| count(view, "log:1.0") == 2).await?;
    ensure!(condition(&shown, "Progressing").1 == "HeldBack", "{shown:#}");
    // Without a partition, only the pause holds the two pods back.
    set_strategy(case, json!({"paused": true, "maxUnavailable": 3})).await?;
    case.eventually("the set reports that it is paused", async || {
        let shown = read(case).await?;
        ensure!(condition(&shown, "Progressing").1 == "Paused", "{shown:#}");
        Ok(())
    })
    .await?;
    case.consistently("two pods are held back", 2, |view| count(view, "log:1.0") == 2).await?;
    set_strategy(case, json!({"maxUnavailable": 3})).await?;
    until_shown(case, [3, 3, 3, 0]).await?;
    case.until_settled(3).await?;
    remove(case).await
}

/// Waits until the set reports that it waits for workloads, with this message.
async fn until_waiting(case: &Case, message: &str) -> Result<()> {
    case.eventually("the set names the workload that it waits for", async || {
        let shown = read(case).await?;
        let (status, reason, found) = condition(&shown, "Progressing");
        let is_waiting = (&*status, &*reason) == ("False", "WaitsForWorkload");
        ensure!(is_waiting && found.contains(message), "{shown:#}");
        Ok(())
    })
    .await
}

#[e2e::test]
async fn the_set_waits_for_a_paused_workload(case: &mut Case) -> Result<()> {
    create_set_and_pods(case, Game::in_place(2), json!({}), 2).await?;
    case.replace("/spec/updateStrategy/paused", true).await?;
    case.until("the pause is observed", View::is_observed).await?;
    set_image(case, "log:1.1").await?;
    let message = format!("/{} is paused", e2e::workload::GAME);
    until_waiting(case, &message).await?;
    let is_pod_write = |event: &Event| event.resource() == "pods";
    let before = case.events()?.iter().filter(|it| is_pod_write(it)).count();
    // 40 s is longer than an unused token is kept.
    case.consistently("the sidecars are not updated", 40, |view| count(view, "log:1.0") == 2)
        .await?;
    until_waiting(case, &message).await?;
    let after = case.events()?.iter().filter(|it| is_pod_write(it)).count();
    ensure!(before == after, "{} writes to pods", after - before);
    case.replace("/spec/updateStrategy/paused", false).await?;
    until_shown(case, [2, 2, 2, 0]).await?;
    remove(case).await
}

#[e2e::test]
async fn sidecars_are_not_updated_at_a_canary_step(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 12})));
    case.apply(retrying_hook_template("test", &case.hooks.url("/"))).await?;
    let steps = json!([{"partition": 1}, {"hook": {"templateName": "test"}}]);
    create_set_and_pods(case, Game::in_place(2).steps(steps), json!({}), 2).await?;
    case.set_image("game:v2").await?;
    case.until("the hook of the step runs", |view| {
        view.runs.iter().any(|run| run.phase() == "Running")
    })
    .await?;
    set_image(case, "log:1.1").await?;
    let message = format!("/{} is at a canary step", e2e::workload::GAME);
    until_waiting(case, &message).await?;
    case.consistently("the sidecars are not updated", 3, |view| count(view, "log:1.0") == 2)
        .await?;
    case.hooks.answer("/", Answer::Json(json!({"age": 45})));
    until_shown(case, [2, 2, 2, 0]).await?;
    case.until_settled(2).await?;
    remove(case).await
}

#[e2e::test]
async fn a_hook_may_measure_for_longer_than_an_unused_token_is_kept(case: &mut Case) -> Result<()> {
    let mut template = hook_template("test", &case.hooks.url("/"));
    template["spec"]["metrics"][0]["count"] = json!(2);
    template["spec"]["metrics"][0]["interval"] = json!("40s");
    case.apply(template).await?;
    let game = Game::in_place(2).pre_inplace("test").max_unavailable(1);
    create_set_and_pods(case, game, json!({}), 2).await?;
    set_image(case, "log:1.1").await?;
    case.until("the sidecar of one pod is updated", |view| count(view, "log:1.1") == 1).await?;
    until_shown(case, [2, 2, 2, 0]).await?;
    case.until_settled(2).await?;
    let events = case.events()?.into_iter();
    let hooks =
        events.filter(|it| it.verb == "create" && it.resource() == "hookruns" && it.succeeded());
    let hooks = hooks.count();
    ensure!(hooks == 2, "{hooks} hooks for two pods");
    remove(case).await
}

#[e2e::test]
async fn a_change_that_is_not_possible_in_place_is_reported(case: &mut Case) -> Result<()> {
    create_set_and_pods(case, Game::in_place(2), json!({}), 2).await?;
    let env = json!([{
        "op": "add", "path": "/spec/containers/0/env", "value": [{"name": "LEVEL", "value": "debug"}],
    }]);
    case.patch(&format!("sidecarset/{}", name(case)), env).await?;
    let shown = until_shown(case, [2, 0, 2, 0]).await?;
    let (status, reason, message) = condition(&shown, "Progressing");
    ensure!((&*status, &*reason) == ("False", "NotInPlace"), "{shown:#}");
    ensure!(message.contains("recreate"), "{message}");
    case.scale(3).await?;
    case.until_settled(3).await?;
    until_shown(case, [3, 1, 3, 0]).await?;
    remove(case).await
}

/// A Deployment whose pods the set selects.
fn deployment(replicas: i64) -> Value {
    let labels = json!({"app": e2e::workload::GAME});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
            },
        },
    })
}

#[e2e::test]
async fn pods_of_other_controllers_are_updated_one_at_a_time(case: &mut Case) -> Result<()> {
    let installed = e2e::addons::webhook::Webhook::install(case, "2160h").await?;
    installed.until_called(case).await?;
    label(case, "=enabled").await?;
    case.apply(set(case, log())).await?;
    until_injecting(case, "log").await?;
    case.apply(deployment(3)).await?;
    until_shown(case, [3, 3, 3, 0]).await?;
    set_image(case, "log:2-neverready").await?;
    until_shown(case, [3, 1, 2, 0]).await?;
    set_image(case, "log:1.1").await?;
    until_shown(case, [3, 3, 3, 0]).await?;
    for pod in case.list("pods").await? {
        let log = image(&pod, "log");
        ensure!(log == "log:1.1", "{pod:#}");
    }
    case.kubectl(&["delete", "deployment", "web"]).await.context("delete")?;
    remove(case).await?;
    installed.remove(case).await
}

/// The number of pods whose sidecar does not run the image in the spec yet.
fn count_restarting(pods: &[Value]) -> usize {
    let is_restarting = |pod: &&Value| {
        let statuses = pod["status"]["containerStatuses"].as_array();
        let mut statuses = statuses.into_iter().flatten();
        let log = statuses.find(|it| it["name"] == "log");
        log.is_none_or(|it| !text(it, "/image").ends_with(image(pod, "log")))
    };
    pods.iter().filter(is_restarting).count()
}

#[e2e::test]
async fn a_slow_pull_in_a_pod_of_another_controller_holds_the_others_back(
    case: &mut Case,
) -> Result<()> {
    let installed = e2e::addons::webhook::Webhook::install(case, "2160h").await?;
    installed.until_called(case).await?;
    label(case, "=enabled").await?;
    case.apply(set(case, log())).await?;
    until_injecting(case, "log").await?;
    case.apply(deployment(3)).await?;
    until_shown(case, [3, 3, 3, 0]).await?;
    set_image(case, "log:1.1-slow5").await?;
    // While the kubelet pulls an image, it reports the old container as ready, but the new generation as observed.
    let mut max_restarting = 0;
    case.eventually("the sidecars have been updated", async || {
        let pods = case.list("pods").await?;
        max_restarting = max_restarting.max(count_restarting(&pods));
        let is_new = |pod: &Value| image(pod, "log") == "log:1.1-slow5" && restarts(pod) == 1;
        ensure!(pods.iter().all(is_new), "{pods:#?}");
        Ok(())
    })
    .await?;
    ensure!(max_restarting == 1, "{max_restarting} sidecars were being restarted at the same time");
    until_shown(case, [3, 3, 3, 0]).await?;
    case.kubectl(&["delete", "deployment", "web"]).await?;
    remove(case).await?;
    installed.remove(case).await
}

#[e2e::test]
async fn a_changed_pod_of_another_controller_is_not_overwritten(case: &mut Case) -> Result<()> {
    let proxy = case.plane().fault_proxy().await?;
    case.operator.use_proxy(&proxy)?;
    let installed = e2e::addons::webhook::Webhook::install(case, "2160h").await?;
    installed.until_called(case).await?;
    label(case, "=enabled").await?;
    case.apply(set(case, log())).await?;
    until_injecting(case, "log").await?;
    case.apply(deployment(1)).await?;
    until_shown(case, [1, 1, 1, 0]).await?;

    // The operator does not observe that a user changes the same image.
    let lag = WatchFault::Lag(Duration::from_secs(300));
    proxy.play(Script::default().watching("pods", lag, 0.0, 300.0));
    let pods = case.list("pods").await?;
    let pod = &pods[0];
    let containers = json!([{"name": "log", "image": "log:by-user"}]);
    let patch = format!("-p={}", json!({"spec": {"containers": containers}}));
    case.kubectl(&["patch", "pod", text(pod, "/metadata/name"), &patch]).await?;
    // Otherwise, a late write of the kubelet could also conflict with the patch that the operator makes once it has
    // observed the user's change.
    let changed = case
        .eventually("the kubelet has made the user's change", async || {
            let pod = case.list("pods").await?.swap_remove(0);
            ensure!(restarts(&pod) == 1, "{pod:#}");
            Ok(pod)
        })
        .await?;
    set_image(case, "log:1.1").await?;
    case.eventually("the operator's patch is refused", async || {
        let patches = patches_of_sidecars(case)?;
        ensure!(patches.iter().any(|it| it.code() == 409), "{patches:#?}");
        Ok(())
    })
    .await?;
    let kept = &case.list("pods").await?[0];
    ensure!(image(kept, "log") == "log:by-user", "{kept:#}");

    proxy.heal();
    until_shown(case, [1, 1, 1, 0]).await?;
    let updated = &case.list("pods").await?[0];
    ensure!(image(updated, "log") == "log:1.1", "{updated:#}");
    for patch in patches_of_sidecars(case)? {
        let sent = patch.request_object.as_ref().context("no body")?;
        let version = |object| text(object, "/metadata/resourceVersion").parse::<u64>();
        let is_same = text(sent, "/metadata/uid") == text(pod, "/metadata/uid");
        ensure!(is_same, "the patch does not name this pod: {sent:#}");
        let is_newer = version(sent)? >= version(&changed)?;
        ensure!(patch.succeeded() == is_newer, "{}: {sent:#}", patch.code());
    }
    case.kubectl(&["delete", "deployment", "web"]).await?;
    remove(case).await?;
    installed.remove(case).await
}

/// The operator's patches of pods that change the image of the sidecar.
fn patches_of_sidecars(case: &Case) -> Result<Vec<Event>> {
    let mut events = case.events()?;
    events.retain(|event| {
        let sent = event.request_object.as_ref();
        let containers = sent.map(|it| &it["spec"]["containers"]);
        event.resource() == "pods"
            && containers.is_some_and(Value::is_array)
            && event.verb == "patch"
    });
    Ok(events)
}

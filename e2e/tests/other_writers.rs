//! Policies, webhooks and other clients refuse or change what the operator writes. It says so, goes on with what does not
//! depend on it, and never writes without end.

use anyhow::{Result, ensure};
use e2e::addons::interference::{Interference, REFUSED, Requests};
use e2e::case::Case;
use e2e::wait::consistently;
use e2e::workload::manifest::{Game, hook_template};
use e2e::workload::view::View;
use judge::Event;
use serde_json::{Value, json};
use std::time::Duration;

use crate::sidecar_updates::set_image;
use crate::sidecars::{condition, log, name, read, set, until_shown};

/// What the conditions say about objects that are not stored as asked.
const CHANGED: &str = "a policy or webhook of the cluster changes what is created";

/// The operator's requests that stored, changed or deleted objects of a resource so far.
fn writes(case: &Case, resource: &str) -> Result<usize> {
    let is_write = |event: &&Event| {
        let object = event.object_ref.as_ref().map(|it| it.resource.as_str());
        object == Some(resource) && !event.uri.contains("dryRun") && event.code() < 300
    };
    Ok(case.events()?.iter().filter(is_write).count())
}

fn has_message(view: &View, type_: &str, words: &str) -> bool {
    let conditions = view.game["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|it| {
        let message = it["message"].as_str().unwrap_or_default();
        it["type"] == type_ && it["status"] == "True" && message.contains(words)
    })
}

async fn patch(case: &Case, name: &str, change: Value) -> Result<()> {
    let (workload, change) = (format!("gamedeployment/{name}"), change.to_string());
    case.kubectl(&["patch", &workload, "--type=merge", "-p", &change]).await?;
    Ok(())
}

/// A GameDeployment with a label and a hook of its own.
fn game(base: Game, name: &str) -> Game {
    base.named(name).pre_delete("test").set("/spec/template/metadata/labels/role", "lobby")
}

#[e2e::test]
async fn objects_that_are_stored_otherwise_are_not_created_without_end(
    case: &mut Case,
) -> Result<()> {
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    let set = |path: &str, value: &str| {
        format!("[JSONPatch{{op: 'replace', path: '{path}', value: {value}}}]")
    };
    let remove = |path: &str| format!("[JSONPatch{{op: 'remove', path: '{path}'}}]");
    let labels = "{'a': 'b'}";
    let (pods, runs) =
        (("", "pods", &["CREATE"][..]), ("tkex.tencent.com", "hookruns", &["CREATE"][..]));
    let revisions = ("apps", "controllerrevisions", &["CREATE"][..]);
    let rows: [(Requests, String, &str); 6] = [
        (pods, set("/metadata/labels/app", "'mesh'"), "FailedScale"),
        (pods, remove("/metadata/labels/controller-revision-hash"), "FailedScale"),
        (pods, remove("/metadata/ownerReferences"), "FailedScale"),
        (revisions, set("/data", "{'spec': {}}"), "FailedUpdate"),
        (runs, set("/metadata/labels", labels), "FailedScale"),
        (runs, set("/spec/metrics/0/successCondition", "'true'"), "FailedScale"),
    ];
    for (number, (requests, patches, type_)) in rows.into_iter().enumerate() {
        let name = &format!("stored-{number}");
        let resource = requests.1;
        let game = game(Game::rolling(3), name);
        // No pod is created that is not as it should be: it might have players before it can be deleted.
        let max_writes = if resource == "pods" { 0 } else { 4 };
        // A hook starts when a pod is to be deleted.
        if resource == "hookruns" {
            case.apply(game.clone()).await?;
            case.until_of(name, "settled", |view| view.is_settled(3)).await?;
        }
        let policy = Interference::change(case, requests, &patches).await?;
        let before = writes(case, resource)?;
        match resource {
            "hookruns" => patch(case, name, json!({"spec": {"replicas": 2}})).await?,
            _ => {
                case.apply(game).await?;
            }
        }
        case.until_of(name, "the change is told", |view| has_message(view, type_, CHANGED)).await?;
        consistently("it is not created without end", Duration::from_secs(8), async || {
            let count = writes(case, resource)? - before;
            ensure!(count <= max_writes, "{count} writes of {resource}");
            Ok(())
        })
        .await?;
        policy.end(case).await?;
        let replicas = if resource == "hookruns" { 2 } else { 3 };
        case.until_of(name, "settled", |view| view.is_settled(replicas)).await?;
    }
    let left: Vec<Value> = case.list("pods").await?;
    let is_orphan = |pod: &&Value| pod["metadata"]["ownerReferences"].is_null();
    ensure!(!left.iter().any(|pod| is_orphan(&pod)), "an orphan was left behind: {left:#?}");
    Ok(())
}

/// The operator copies labels of the template to pods that run.
#[e2e::test]
async fn a_label_that_is_removed_each_time_is_not_set_without_end(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    let remove = "has(object.metadata.annotations) && 'gamekeeper.tkex.tencent.com/in-place-record' in \
                  object.metadata.annotations ? [JSONPatch{op: 'remove', path: \
                  '/metadata/annotations/gamekeeper.tkex.tencent.com~1in-place-record'}, JSONPatch{op: 'replace', \
                  path: '/spec/containers/0/image', value: 'game:v1'}] : []";
    let policy = Interference::change(case, ("", "pods", &["UPDATE"]), remove).await?;
    let before = writes(case, "pods")?;
    case.set_image("game:v2").await?;
    consistently("the pod is not patched without end", Duration::from_secs(20), async || {
        let count = writes(case, "pods")? - before;
        ensure!(count <= 12, "{count} writes of pods");
        Ok(())
    })
    .await?;
    policy.end(case).await
}

#[e2e::test]
async fn a_refused_write_is_told_and_the_rest_goes_on(case: &mut Case) -> Result<()> {
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    let create = &["CREATE"][..];
    let (update, delete) = (&["UPDATE"][..], &["DELETE"][..]);
    let steps = json!([{"partition": 2}, {"pause": {}}]);
    let hooked = Game::rolling(3).pre_delete("test");
    let no_history = Game::rolling(3).set("/spec/revisionHistoryLimit", 0);
    let rows: [(Requests, Game, &str, &str); 7] = [
        (
            ("apps", "controllerrevisions", create),
            Game::rolling(3),
            "FailedUpdate",
            "FailedRevision",
        ),
        (
            ("tkex.tencent.com", "gamedeployments", update),
            Game::rolling(3).steps(steps),
            "FailedUpdate",
            "FailedPatch",
        ),
        (("tkex.tencent.com", "hookruns", create), hooked, "FailedUpdate", "FailedHookRun"),
        (("", "pods/status", update), Game::in_place(3), "FailedUpdate", "FailedUpdate"),
        (("", "pods", update), Game::in_place(3), "FailedUpdate", "FailedUpdate"),
        (("", "pods", delete), Game::rolling(3), "FailedUpdate", "FailedDelete"),
        (("apps", "controllerrevisions", delete), no_history, "FailedUpkeep", "FailedCleanUp"),
    ];
    for (number, (requests, game, type_, reason)) in rows.into_iter().enumerate() {
        let name = &format!("refused-{number}");
        case.apply(game.named(name).max_unavailable(1)).await?;
        case.until_of(name, "settled", |view| view.is_settled(3)).await?;
        let policy = Interference::refuse(case, requests).await?;
        let container = json!({"name": "game", "image": "game:v2"});
        let template = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        patch(case, name, template).await?;
        case.until_of(name, "the refusal is told", |view| {
            let condition = view.condition(type_);
            condition.is_some_and(|it| it.reason == reason) && has_message(view, type_, REFUSED)
        })
        .await?;
        patch(case, name, json!({"spec": {"replicas": 4}})).await?;
        case.until_of(name, "the rest goes on", |view| view.pods.len() == 4 && view.is_observed())
            .await?;
        case.until_of(name, "the refusal is told again", |view| view.is_true(type_)).await?;
        let status = case.game(&["status", &format!("gd/{name}")]).await?;
        ensure!(status.stdout.contains(REFUSED), "{}", status.stdout);
        case.eventually("an event", async || {
            let events = case.list("events").await?;
            let is_told =
                |it: &&Value| it["reason"] == reason && it["involvedObject"]["name"] == **name;
            ensure!(events.iter().any(|it| is_told(&it)), "no event {reason}");
            Ok(())
        })
        .await?;
        policy.end(case).await?;
        case.until_of(name, "the rollout goes on", |view| view.is_paused() || view.is_settled(4))
            .await?;
    }
    Ok(())
}

#[e2e::test]
async fn a_refused_revision_of_a_sidecar_set_is_told(case: &mut Case) -> Result<()> {
    case.apply(set(case, log())).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    let requests = ("apps", "controllerrevisions", &["CREATE"][..]);
    let policy = Interference::refuse(case, requests).await?;
    set_image(case, "log:v2").await?;
    let until_told = async |reason: &str, words: &str| {
        case.eventually(&format!("Progressing says {reason}"), async || {
            let set = read(case).await?;
            let (_, found, message) = condition(&set, "Progressing");
            ensure!(found == reason && message.contains(words), "{found}: {message}");
            let status = &set["status"];
            ensure!(status["observedGeneration"] == set["metadata"]["generation"], "{status:#}");
            Ok(())
        })
        .await
    };
    until_told("FailedRevision", REFUSED).await?;
    let status = case.game(&["status", &format!("scs/{}", name(case))]).await?;
    ensure!(status.stdout.contains(REFUSED), "{}", status.stdout);
    policy.end(case).await?;
    until_told("Complete", "").await
}

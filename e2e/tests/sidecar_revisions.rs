//! Revisions of SidecarSets: which one new pods get, and how long they are kept.

use anyhow::{Context, Result, ensure};
use e2e::addons::webhook::Webhook;
use e2e::case::Case;
use e2e::workload::manifest::Game;
use judge::object::text;
use serde_json::{Value, json};

use crate::sidecar_updates::{count, set_image, set_strategy};
use crate::sidecars::{condition, log, mark, name, read, remove, set, until_shown};

/// Creates a set with this update strategy, and a workload whose pods have its first revision.
async fn create_set_and_pods(case: &Case, strategy: Value, replicas: i64) -> Result<()> {
    let mut set = set(case, log());
    set["spec"]["updateStrategy"] = strategy;
    case.apply(set).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    case.apply(Game::in_place(replicas).max_unavailable(replicas)).await?;
    case.until_settled(replicas).await?;
    until_shown(case, [replicas, replicas, replicas, 0]).await?;
    Ok(())
}

/// Numbers and names of the set's revisions, oldest first.
async fn revisions(case: &Case) -> Result<Vec<(i64, String)>> {
    let set = read(case).await?;
    let namespace = text(&set, "/status/revisionNamespace");
    let label = format!("gamekeeper.tkex.tencent.com/sidecar-set={}", name(case));
    let get = ["get", "controllerrevisions", "-n", namespace, "-l", &label, "-o=json"];
    let found: Value = serde_json::from_str(&case.kubectl(&get).await?)?;
    let found = found["items"].as_array().context("no list")?.iter();
    let mut found: Vec<_> = found
        .map(|it| {
            let number = it["revision"].as_i64().unwrap_or_default();
            (number, text(it, "/metadata/name").to_owned())
        })
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// Pins new pods to a revision, or removes the pin.
async fn pin(case: &Case, revision: Option<&str>) -> Result<()> {
    let value = revision.map(|name| json!({"revisionName": name, "policy": "Always"}));
    let patch = json!([{"op": "add", "path": "/spec/injectionStrategy/revision", "value": value}]);
    case.patch(&format!("sidecarset/{}", name(case)), patch).await?;
    Ok(())
}

/// The message of condition Injecting if new pods get the newest revision.
const NEWEST: &str = "new pods get the containers";

/// Waits until the status reflects the newest spec, and the condition Injecting has this reason and a message that
/// equals `words` or mentions the revision `words`.
async fn until_injecting_reports(case: &Case, reason: &str, words: &str) -> Result<()> {
    case.eventually(&format!("Injecting reports {words:?}"), async || {
        let set = read(case).await?;
        let (_, found, message) = condition(&set, "Injecting");
        let mentions_revision = message.to_lowercase().contains(&format!("revision {words}"));
        let is_observed = set["status"]["observedGeneration"] == set["metadata"]["generation"];
        ensure!(
            is_observed && found == reason && (message == words || mentions_revision),
            "{:#}",
            set["status"]
        );
        Ok(())
    })
    .await
}

#[e2e::test]
async fn new_pods_get_the_proven_revision_while_a_partition_holds(case: &mut Case) -> Result<()> {
    create_set_and_pods(case, json!({"partition": "100%"}), 2).await?;
    let first = revisions(case).await?;
    ensure!(first.len() == 1 && first[0].0 == 1, "{first:?}");
    // New pods get the old revision even before the status shows the change.
    set_image(case, "log:1.1").await?;
    case.scale(4).await?;
    let view = case.until_settled(4).await?;
    view.ensure(count(&view, "log:1.0") == 4)?;
    let shown = until_shown(case, [4, 0, 4, 0]).await?;
    ensure!(*text(&shown, "/status/stableRevision") == first[0].1, "{shown:#}");
    until_injecting_reports(case, "Injecting", &first[0].1).await?;
    ensure!(revisions(case).await?.len() == 2);

    // A new operator makes the same decision.
    case.operator.kill().await?;
    case.operator.start().await?;
    case.scale(5).await?;
    let view = case.until_settled(5).await?;
    view.ensure(count(&view, "log:1.0") == 5)?;

    // The partition keeps five pods at the old revision, so a sixth pod may get the new one.
    set_strategy(case, json!({"partition": 5})).await?;
    until_injecting_reports(case, "Injecting", NEWEST).await?;
    case.scale(6).await?;
    let view = case.until_settled(6).await?;
    view.ensure(count(&view, "log:1.0") == 5 && count(&view, "log:1.1") == 1)?;
    until_shown(case, [6, 1, 6, 0]).await?;

    // A pause holds the newest revision back, too.
    set_strategy(case, json!({"paused": true})).await?;
    until_injecting_reports(case, "Injecting", &first[0].1).await?;
    case.scale(7).await?;
    let view = case.until_settled(7).await?;
    view.ensure(count(&view, "log:1.0") == 6)?;

    // Without a partition or a pause, all pods are updated, and new ones get the newest revision.
    set_strategy(case, json!({"maxUnavailable": 7})).await?;
    case.scale(8).await?;
    until_shown(case, [8, 8, 8, 0]).await?;
    remove(case).await
}

#[e2e::test]
async fn a_pin_chooses_the_revision_of_new_pods(case: &mut Case) -> Result<()> {
    let installed = Webhook::install(case, "2160h").await?;
    installed.until_called(case).await?;
    create_set_and_pods(case, json!({"maxUnavailable": 2}), 2).await?;
    set_image(case, "log:1.1").await?;
    until_shown(case, [2, 2, 2, 0]).await?;
    let found = revisions(case).await?;
    let [(1, first), (2, second)] = &found[..] else {
        anyhow::bail!("{found:?}");
    };
    set_strategy(case, json!({"paused": true})).await?;
    let unknown = format!("{}-unknown", name(case));
    let patch = json!({"spec": {"injectionStrategy": {"revision": {"revisionName": unknown}}}});
    let patch = ["patch", "sidecarset", &name(case), "--type=merge", "-p", &patch.to_string()];
    let refused = case.refused(&patch, "").await?;
    ensure!(refused.contains(&format!("{unknown:?}: is not a revision of this set")), "{refused}");
    pin(case, Some(first)).await?;
    until_injecting_reports(case, "Injecting", first).await?;
    case.scale(3).await?;
    let view = case.until_settled(3).await?;
    view.ensure(count(&view, "log:1.0") == 1 && count(&view, "log:1.1") == 2)?;
    let marks = view.pods.iter().filter_map(|pod| mark(&pod.0, &name(case)));
    view.ensure(marks.filter(|it| it["at"] == **first).count() == 1)?;

    // If the pinned revision is lost, new pods get the newest one, and the status reports that.
    let namespace = text(&read(case).await?, "/status/revisionNamespace").to_owned();
    case.kubectl(&["delete", "controllerrevision", "-n", &namespace, first]).await?;
    until_injecting_reports(case, "RevisionLost", first).await?;
    case.scale(4).await?;
    let view = case.until_settled(4).await?;
    view.ensure(count(&view, "log:1.1") == 3)?;

    pin(case, None).await?;
    until_injecting_reports(case, "Injecting", NEWEST).await?;
    case.scale(5).await?;
    let view = case.until_settled(5).await?;
    view.ensure(count(&view, "log:1.1") == 4)?;
    ensure!(revisions(case).await? == [(2, second.clone())]);
    remove(case).await?;
    installed.remove(case).await
}

#[e2e::test]
async fn old_revisions_are_deleted_unless_a_pod_has_them(case: &mut Case) -> Result<()> {
    let mut set = set(case, log());
    set["spec"]["updateStrategy"] = json!({"partition": 1});
    set["spec"]["revisionHistoryLimit"] = json!(1);
    case.apply(set).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    until_shown(case, [1, 1, 1, 0]).await?;
    for image in ["log:1.1", "log:1.2", "log:1.3"] {
        set_image(case, image).await?;
        until_shown(case, [1, 0, 1, 0]).await?;
    }
    let numbers = async || -> Result<Vec<i64>> {
        let found = revisions(case).await?.into_iter();
        Ok(found.map(|(number, _)| number).collect())
    };
    case.eventually("the pod's revision, another old one and the newest are kept", async || {
        let found = numbers().await?;
        ensure!(found == [1, 3, 4], "{found:?}");
        Ok(())
    })
    .await?;
    // Reverting the image makes the oldest revision the newest one.
    set_image(case, "log:1.0").await?;
    until_shown(case, [1, 1, 1, 0]).await?;
    case.eventually("one old revision and the newest are kept", async || {
        let found = numbers().await?;
        ensure!(found == [4, 5], "{found:?}");
        Ok(())
    })
    .await?;
    remove(case).await?;
    let label = format!("gamekeeper.tkex.tencent.com/sidecar-set={}", name(case));
    case.eventually("the revisions are deleted with their set", async || {
        let get = ["get", "controllerrevisions", "-A", "-l", &label, "-o=name"];
        let found = case.kubectl(&get).await?;
        ensure!(found.is_empty(), "{found}");
        Ok(())
    })
    .await
}

/// The output of a command of `kubectl game` that must succeed.
async fn game(case: &Case, args: &[&str]) -> Result<String> {
    let output = case.game(args).await?;
    ensure!(output.code == 0, "{output:?}");
    Ok(output.stdout)
}

#[e2e::test]
async fn undo_restores_an_earlier_revision(case: &mut Case) -> Result<()> {
    create_set_and_pods(case, json!({"maxUnavailable": 2}), 2).await?;
    for image in ["log:1.1", "log:1.2"] {
        set_image(case, image).await?;
        until_shown(case, [2, 2, 2, 0]).await?;
    }
    let found = revisions(case).await?;
    let short = format!("scs/{}", name(case));
    let full = format!("sidecarset.tkex.tencent.com/{}", name(case));
    let undone = game(case, &["undo", &short]).await?;
    ensure!(undone == format!("{full} rolled back to revision 2\n"), "{undone}");
    until_shown(case, [2, 2, 2, 0]).await?;
    let view = case.until_settled(2).await?;
    view.ensure(count(&view, "log:1.1") == 2)?;

    // During an update, undo restores the stable revision.
    set_strategy(case, json!({"partition": 1, "maxUnavailable": 2})).await?;
    set_image(case, "log:1.3").await?;
    until_shown(case, [2, 1, 2, 0]).await?;
    game(case, &["undo", &short]).await?;
    // The partition holds the undo back, too.
    until_shown(case, [2, 1, 2, 0]).await?;
    set_strategy(case, json!({"maxUnavailable": 2})).await?;
    until_shown(case, [2, 2, 2, 0]).await?;
    let view = case.until_settled(2).await?;
    view.ensure(count(&view, "log:1.1") == 2)?;

    let undone = game(case, &["undo", &short, "--to-revision=1"]).await?;
    ensure!(undone == format!("{full} rolled back to revision 1\n"), "{undone}");
    let shown = until_shown(case, [2, 2, 2, 0]).await?;
    let first = &found.first().context("no revision")?.1;
    ensure!(*text(&shown, "/status/latestRevision") == *first, "{shown:#}");
    let listed = game(case, &["history", &short]).await?;
    let newest = listed.lines().last().context("no revision")?;
    ensure!(
        newest.contains("latest,stable") && newest.contains("log:1.0") && newest.contains(first),
        "{listed}"
    );
    remove(case).await
}

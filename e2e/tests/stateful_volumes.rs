//! GameStatefulSets: volume claims and their retention.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::{Answer, example_answer};
use e2e::workload::SET;
use e2e::workload::manifest::{Game, retrying_hook_template};
use judge::Event;
use serde_json::{Value, json};

/// Creates volumes in a storage class of this test. Returns a GameStatefulSet with a claim template for that class.
pub async fn with_volumes(case: &mut Case, replicas: i64) -> Result<Game> {
    case.use_stateful_set();
    let class = case.namespace.clone();
    create_volumes(case, replicas * 3).await?;
    let claim = json!([{
        "metadata": {"name": "data", "labels": {"kind": "world"}},
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }]);
    let mounts = json!([{"name": "data", "mountPath": "/data"}]);
    let game = Game::parallel(replicas)
        .set("/spec/volumeClaimTemplates", claim)
        .set("/spec/template/spec/containers/0/volumeMounts", mounts);
    Ok(game)
}

/// Creates this number of volumes, in a storage class that has the name of the test's namespace.
pub async fn create_volumes(case: &Case, count: i64) -> Result<()> {
    let class = case.namespace.clone();
    let volume = |number: i64| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": format!("{class}-{number}")},
            "spec": {
                "storageClassName": class, "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": "/tmp"},
            },
        })
    };
    let volumes: Vec<Value> = (0..count).map(volume).collect();
    case.apply(json!({"apiVersion": "v1", "kind": "List", "items": volumes})).await?;
    Ok(())
}

pub fn retention(game: Game, deleted: &str, scaled: &str) -> Game {
    let policy = json!({"whenDeleted": deleted, "whenScaled": scaled});
    game.set("/spec/persistentVolumeClaimRetentionPolicy", policy)
}

/// The ordinals of all claims, with the kinds of their owners.
async fn claims(case: &Case) -> Result<Vec<(String, Vec<String>)>> {
    let claims = case.list("persistentvolumeclaims").await?;
    let claims = claims.iter().map(|claim| {
        let name = claim["metadata"]["name"].as_str().unwrap_or_default();
        let owners = claim["metadata"]["ownerReferences"].as_array();
        let kind = |owner: &Value| owner["kind"].as_str().unwrap_or_default().to_owned();
        let owners = owners.map_or_else(Vec::new, |owners| owners.iter().map(kind).collect());
        (name.trim_start_matches(&format!("data-{SET}-")).to_owned(), owners)
    });
    Ok(claims.collect())
}

/// Waits until exactly these claims exist: their ordinals and the kinds of their owners (empty: no owner).
pub async fn until_claims(case: &Case, expected: &[(&str, &str)]) -> Result<()> {
    let expected: Vec<(String, Vec<String>)> = expected
        .iter()
        .map(|(ordinal, owner)| {
            let owner = (!owner.is_empty()).then(|| (*owner).to_owned());
            ((*ordinal).to_owned(), owner.into_iter().collect())
        })
        .collect();
    case.eventually(&format!("claims {expected:?}"), async || {
        let claims = claims(case).await?;
        ensure!(claims == expected, "{claims:?}");
        Ok(())
    })
    .await
}

/// The request with which the operator created an object.
fn creation(case: &Case, resource: &str, name: &str) -> Result<Event> {
    let is_creation = |event: &Event| {
        let object = event.request_object.as_ref();
        event.verb == "create"
            && event.succeeded()
            && event.resource() == resource
            && object.is_some_and(|it| it["metadata"]["name"] == name)
    };
    let found = case.events()?.into_iter().find(is_creation);
    found.with_context(|| format!("no creation of {resource}/{name}"))
}

#[e2e::test]
async fn claims_are_created_before_their_pods_and_kept(case: &mut Case) -> Result<()> {
    let game = with_volumes(case, 2).await?;
    case.apply(game).await?;
    let view = case.until_settled(2).await?;
    for ordinal in 0..2 {
        let name = format!("{SET}-{ordinal}");
        let claim = creation(case, "persistentvolumeclaims", &format!("data-{name}"))?;
        let pod = creation(case, "pods", &name)?;
        // The audit log dates a response after it was sent, so the requests are compared. Two parallel requests can
        // arrive in this order, too, but not each time.
        let (claimed, created) = (claim.received, pod.received);
        ensure!(
            claimed < created,
            "{name} was created at {created}, before its claim at {claimed}"
        );
    }
    let volumes = view.pods[1].0.pointer("/spec/volumes/0");
    let volume = volumes.context("no volume")?;
    ensure!(volume["persistentVolumeClaim"]["claimName"] == format!("data-{SET}-1"));
    let claim = case.get(&format!("persistentvolumeclaims/data-{SET}-1")).await?;
    ensure!(claim["metadata"]["labels"] == json!({"kind": "world", "app": SET}), "{claim}");
    let uid = claim["metadata"]["uid"].clone();
    case.set_image("game:v2").await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    case.until_settled(1).await?;
    case.scale(2).await?;
    case.until_settled(2).await?;
    let claim = case.get(&format!("persistentvolumeclaims/data-{SET}-1")).await?;
    ensure!(claim["metadata"]["uid"] == uid, "the claim was replaced");
    Ok(())
}

/// Scales in from two pods to one, then deletes the workload, and checks the claims before and after each.
async fn check_retention(
    case: &mut Case,
    policy: (&str, &str),
    initial: &[(&str, &str)],
    scaled: &[(&str, &str)],
    deleted: &[(&str, &str)],
) -> Result<()> {
    let game = with_volumes(case, 2).await?;
    case.apply(retention(game, policy.0, policy.1)).await?;
    case.until_settled(2).await?;
    until_claims(case, initial).await?;
    case.scale(1).await?;
    case.until_settled(1).await?;
    until_claims(case, scaled).await?;
    case.kubectl(&["delete", "gamestatefulset", SET]).await?;
    case.eventually("the pods are deleted", async || {
        let pods = case.list("pods").await?;
        ensure!(pods.is_empty(), "{} pods", pods.len());
        Ok(())
    })
    .await?;
    until_claims(case, deleted).await
}

#[e2e::test]
async fn retain_when_deleted_and_when_scaled(case: &mut Case) -> Result<()> {
    let both = [("0", ""), ("1", "")];
    check_retention(case, ("Retain", "Retain"), &both, &both, &both).await
}

#[e2e::test]
async fn retain_when_deleted_and_delete_when_scaled(case: &mut Case) -> Result<()> {
    let (both, first) = ([("0", ""), ("1", "")], [("0", "")]);
    check_retention(case, ("Retain", "Delete"), &both, &first, &first).await
}

#[e2e::test]
async fn delete_when_deleted_and_retain_when_scaled(case: &mut Case) -> Result<()> {
    let both = [("0", "GameStatefulSet"), ("1", "GameStatefulSet")];
    check_retention(case, ("Delete", "Retain"), &both, &both, &[]).await
}

#[e2e::test]
async fn delete_when_deleted_and_when_scaled(case: &mut Case) -> Result<()> {
    let both = [("0", "GameStatefulSet"), ("1", "GameStatefulSet")];
    check_retention(case, ("Delete", "Delete"), &both, &both[..1], &[]).await
}

#[e2e::test]
async fn a_claim_is_deleted_only_after_the_hook(case: &mut Case) -> Result<()> {
    let game = with_volumes(case, 2).await?;
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(retrying_hook_template("test", &case.hooks.url("/"))).await?;
    let game = retention(game, "Retain", "Delete").pre_delete("test");
    case.apply(game).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    case.until("the hook runs", |view| view.phases("PreDelete") == ["Running"]).await?;
    case.consistently("the pod is kept", 2, |view| view.pods.len() == 2).await?;
    until_claims(case, &[("0", ""), ("1", "")]).await?;
    case.hooks.answer("/", example_answer());
    case.until_settled(1).await?;
    until_claims(case, &[("0", "")]).await
}

#[e2e::test]
async fn scaling_back_up_keeps_the_claim(case: &mut Case) -> Result<()> {
    let game = with_volumes(case, 2).await?;
    case.apply(retention(game, "Retain", "Delete")).await?;
    case.until_settled(2).await?;
    // The pod must not be removed before the scale-in is canceled.
    let pod = format!("{SET}-1");
    let held = r#"-p={"metadata":{"finalizers":["e2e.example/held"]}}"#;
    case.kubectl(&["patch", "pod", &pod, "--type=merge", held]).await?;
    let before = case.get(&format!("persistentvolumeclaims/data-{SET}-1")).await?;
    case.scale(1).await?;
    case.until("the pod terminates", |view| view.pods.iter().any(|pod| pod.is_terminating()))
        .await?;
    until_claims(case, &[("0", ""), ("1", "Pod")]).await?;
    case.scale(2).await?;
    until_claims(case, &[("0", ""), ("1", "")]).await?;
    let free = r#"-p={"metadata":{"finalizers":null}}"#;
    case.kubectl(&["patch", "pod", &pod, "--type=merge", free]).await?;
    case.until_settled(2).await?;
    let after = case.get(&format!("persistentvolumeclaims/data-{SET}-1")).await?;
    ensure!(before["metadata"]["uid"] == after["metadata"]["uid"]);
    Ok(())
}

/// Waits until the condition FailedScale has this reason and names the second claim.
async fn until_failed_scale(case: &Case, reason: &str) -> Result<()> {
    let is_reported = |view: &e2e::workload::view::View| {
        let condition = view.condition("FailedScale");
        condition
            .is_some_and(|it| it.reason == reason && it.message.contains(&format!("data-{SET}-1")))
    };
    case.until(reason, is_reported).await?;
    Ok(())
}

#[e2e::test]
async fn a_pod_waits_while_its_claim_terminates(case: &mut Case) -> Result<()> {
    let game = with_volumes(case, 2).await?;
    case.apply(game).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    case.until_settled(1).await?;
    let claim = format!("data-{SET}-1");
    let held = r#"-p={"metadata":{"finalizers":["e2e.example/held"]}}"#;
    case.kubectl(&["patch", "pvc", &claim, "--type=merge", held]).await?;
    case.kubectl(&["delete", "pvc", &claim, "--wait=false"]).await?;
    case.scale(2).await?;
    until_failed_scale(case, "ClaimTerminating").await?;
    case.consistently("no pod is created", 2, |view| view.pods.len() == 1).await?;
    let free = r#"-p={"metadata":{"finalizers":null}}"#;
    case.kubectl(&["patch", "pvc", &claim, "--type=merge", free]).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.condition("FailedScale").is_none())
}

#[e2e::test]
async fn a_pod_waits_while_its_claim_has_another_owner(case: &mut Case) -> Result<()> {
    let game = with_volumes(case, 2).await?;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    case.apply(owner).await?;
    let owner = case.get("configmaps/owner").await?;
    let claim = format!("data-{SET}-1");
    let foreign = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim, "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
            "uid": owner["metadata"]["uid"], "controller": true,
        }]},
        "spec": {
            "storageClassName": case.namespace, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    case.apply(foreign).await?;
    case.apply(game).await?;
    until_failed_scale(case, "ClaimNotOurs").await?;
    case.consistently("the claim's pod is not created", 2, |view| view.pods.len() <= 1).await?;
    let free = r#"-p={"metadata":{"ownerReferences":null}}"#;
    case.kubectl(&["patch", "pvc", &claim, "--type=merge", free]).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.condition("FailedScale").is_none())
}

#[e2e::test]
async fn a_claim_of_another_controller_is_kept(case: &mut Case) -> Result<()> {
    let game = with_volumes(case, 2).await?;
    case.apply(retention(game, "Retain", "Delete")).await?;
    case.until_settled(2).await?;
    case.apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}))
        .await?;
    let owner = case.get("configmaps/owner").await?;
    let claim = format!("data-{SET}-1");
    let owners = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
        "uid": owner["metadata"]["uid"], "controller": true,
    }]}});
    let owners = format!("-p={owners}");
    case.kubectl(&["patch", "pvc", &claim, "--type=merge", &owners]).await?;
    case.scale(1).await?;
    case.until_settled(1).await?;
    until_claims(case, &[("0", ""), ("1", "ConfigMap")]).await
}

#[e2e::test]
async fn a_missing_claim_is_recreated_for_a_waiting_pod(case: &mut Case) -> Result<()> {
    let game = with_volumes(case, 1).await?;
    // No node matches, so the pod is not scheduled.
    let game = game.set("/spec/template/spec/nodeSelector/no", "node");
    case.apply(game).await?;
    case.until("the pod waits", |view| view.pods.len() == 1).await?;
    let claim = format!("data-{SET}-0");
    let path = format!("persistentvolumeclaims/{claim}");
    let before = case.get(&path).await?;
    case.kubectl(&["delete", "pvc", &claim]).await?;
    case.eventually("the claim is recreated", async || {
        let after = case.get(&path).await?;
        ensure!(after["metadata"]["uid"] != before["metadata"]["uid"]);
        Ok(())
    })
    .await
}

#[e2e::test]
async fn changed_claim_templates_are_refused_with_a_fix(case: &mut Case) -> Result<()> {
    let game = with_volumes(case, 1).await?;
    case.apply(game.clone()).await?;
    case.until_settled(1).await?;
    let path = "/spec/volumeClaimTemplates/0/spec/resources/requests/storage";
    let bigger = game.set(path, "2Gi").to_string();
    let error = case.refused(&["apply", "-f", "-"], &bigger).await?;
    ensure!(error.contains("create a new workload with the new claims"), "{error}");
    Ok(())
}

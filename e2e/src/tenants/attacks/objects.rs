//! Attacks with objects that are small as text and large in memory, or large in every form, and with reviews from many
//! addresses. The attacker may write workloads, pods, claims and HookRuns in a namespace.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use super::{connect_from, hook_run, store, web};
use crate::addons::webhook::{configuration_path, trusting};
use crate::tenants::{ATTACKER, Stage};
use crate::wait::{LIMIT, eventually};
use crate::workload::manifest::hook_template;

/// How many revisions of a template there are.
const REVISIONS: usize = 25;
/// How many objects are patched concurrently.
const CONCURRENCY: usize = 8;

fn workload(name: &str, replicas: u32, container: Value, node: &Value) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "revisionHistoryLimit": 100,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "nodeSelector": node},
            },
        },
    })
}

fn path(name: &str) -> String {
    format!("/apis/tkex.tencent.com/v1alpha1/namespaces/{ATTACKER}/gamedeployments/{name}")
}

/// Revisions of a template with twenty thousand small maps. Kept as maps, they would take 400 MB.
pub(super) async fn templates_of_small_maps(stage: &Stage) -> Result<()> {
    let env: Vec<_> = (0..20_000).map(|number| json!({"name": format!("a{number}")})).collect();
    let container = json!({"name": "game", "image": "game:v0", "env": env});
    stage.store("gamedeployments", &workload("maps", 0, container, &json!({}))).await?;
    let mut known = String::new();
    for number in 1..=REVISIONS {
        known = eventually("the revision is recorded", LIMIT, async || {
            let game = stage.plane.get(&path("maps")).await?;
            let revision = game["status"]["updateRevision"].as_str().unwrap_or_default();
            let is_recorded = !revision.is_empty() && revision != known;
            ensure!(is_recorded || is_left_out(&game), "{revision}");
            Ok(if is_recorded { revision.to_owned() } else { String::new() })
        })
        .await?;
        if known.is_empty() {
            return Ok(());
        }
        let image = "/spec/template/spec/containers/0/image";
        let value = format!("game:v{number}");
        let operations = json!([{"op": "replace", "path": image, "value": value}]);
        stage.plane.patch(&path("maps"), &operations).await?;
    }
    Ok(())
}

/// Pods whose record of an in-place update has as many maps as fit into an annotation, and which change all the time.
pub(super) async fn records_of_many_maps(stage: &Stage) -> Result<()> {
    let container = json!({"name": "game", "image": "game:v0"});
    let nowhere = json!({"no-node-has": "this-label"});
    stage.store("gamedeployments", &workload("records", 40, container, &nowhere)).await?;
    let pods = eventually("there are 40 pods", LIMIT, async || {
        let collection = format!("/api/v1/namespaces/{ATTACKER}/pods?labelSelector=app%3Drecords");
        let pods = stage.plane.get(&collection).await?["items"].take();
        let names = pods.as_array().into_iter().flatten();
        let names: Vec<String> =
            names.filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned())).collect();
        let game = stage.plane.get(&path("records")).await?;
        ensure!(names.len() == 40 || is_left_out(&game), "{} pods", names.len());
        Ok(names)
    })
    .await?;
    let change = json!({"fromImage": "game:v1", "resources": {"a": vec![json!({"": 0}); 30_000]}});
    let record = json!({
        "revision": "records-1", "patchedAt": "2026-01-01T00:00:00Z", "containers": {"game": change},
    });
    for round in 0..3 {
        let annotations = json!({
            "gamekeeper.tkex.tencent.com/in-place-record": record.to_string(), "round": round.to_string(),
        });
        let operations =
            json!([{"op": "add", "path": "/metadata/annotations", "value": annotations}]);
        let patches = stream::iter(&pods).map(async |pod| {
            let pod = format!("/api/v1/namespaces/{ATTACKER}/pods/{pod}");
            stage.plane.patch(&pod, &operations).await.map(|_| ())
        });
        let patches = patches.buffer_unordered(CONCURRENCY);
        patches.try_collect::<Vec<()>>().await?;
    }
    Ok(())
}

/// Claims with as many owners as fit, each of which is a key of the index.
pub(super) async fn claims_with_many_owners(stage: &Stage) -> Result<()> {
    for number in 0..20 {
        let owner = |index: usize| {
            let uid = format!("{number}-{index}");
            json!({"apiVersion": "missing.example.com/v1", "kind": "A", "name": "a", "uid": uid})
        };
        let owners: Vec<_> = (0..12_000).map(owner).collect();
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": format!("owned-{number}"), "ownerReferences": owners},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        stage.store("persistentvolumeclaims", &claim).await?;
    }
    Ok(())
}

/// More HookRuns of the largest size than a namespace's memory holds. Those that are not kept say so.
pub(super) async fn runs_that_fill_the_caches(stage: &Stage) -> Result<()> {
    let args: Vec<_> = (0..20)
        .map(|number| json!({"name": format!("a{number}"), "value": "x".repeat(60_000)}))
        .collect();
    let runs = (0..120).map(|number| {
        let mut run = web(
            &format!("large-{number}"),
            json!({"url": stage.hooks.url("/large")}),
            &json!({"initialDelay": "1h"}),
        );
        run["spec"]["args"] = json!(args);
        run
    });
    let stored = store(stage, runs).await?;
    ensure!(stored.len() > 100, "only {} runs were accepted", stored.len());
    eventually("a run is reported as unreadable", LIMIT, async || {
        let (_, page) = stage.operator.get("/metrics").await?;
        let metric = "gamekeeper_unreadable_objects{kind=\"HookRun\"} ";
        let count = page.lines().find_map(|line| line.strip_prefix(metric));
        let count: f64 = count.context("no metric")?.parse()?;
        ensure!(count > 0.0, "{count} unreadable runs");
        Ok(())
    })
    .await
}

/// PodDisruptionBudgets with selectors of nearly a megabyte, in a namespace whose workload is guarded: the operator reads
/// them to tell which of them select its pods.
pub(super) async fn budgets_with_long_selectors(stage: &Stage) -> Result<()> {
    let values: Vec<String> = (0..12_000).map(|number| format!("value-{number:0>54}")).collect();
    let budgets = stream::iter(0..200).map(async |number| {
        let expression = json!({"key": "app", "operator": "In", "values": values});
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": format!("long-{number}"), "labels": {"attack": ""}},
            "spec": {"minAvailable": 1, "selector": {"matchExpressions": [expression]}},
        });
        stage.store("poddisruptionbudgets", &budget).await.map(|_| ())
    });
    budgets.buffer_unordered(CONCURRENCY).try_collect::<Vec<()>>().await?;
    let template = hook_template("leave", &stage.hooks.url("/leave"));
    stage.store("hooktemplates", &template).await?;
    let container = json!({"name": "game", "image": "game:v0"});
    let mut game = workload("guarded", 1, container, &json!({"no-node-has": "this-label"}));
    game["spec"]["protection"] = json!({"pods": "Guarded"});
    game["spec"]["preDeleteUpdateStrategy"] = json!({"hook": {"templateName": "leave"}});
    stage.store("gamedeployments", &game).await?;
    eventually("the workload is guarded", LIMIT, async || {
        let game = stage.plane.get(&path("guarded")).await?;
        let is_guarded = condition(&game, "Guarded")["status"] == "True";
        ensure!(is_guarded || is_left_out(&game), "{:#}", game["status"]);
        Ok(())
    })
    .await
}

/// The condition of this type.
fn condition(object: &Value, type_: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|it| it["type"] == type_);
    found.cloned().unwrap_or_default()
}

/// Whether nothing is done for an object, because other attacks use up the memory of the namespace.
pub(super) fn is_left_out(object: &Value) -> bool {
    condition(object, "Ready")["reason"] == "Unreadable"
}

/// One connection from each of many addresses, as from many pods, and reviews for other namespaces on some of them. The
/// API server's own reviews are answered meanwhile: an invalid HookTemplate is refused each time.
pub(super) async fn reviews_from_many_addresses(stage: &Stage) -> Result<()> {
    let configuration = stage.plane.get(&configuration_path("gamekeeper-webhook")).await?;
    let tls = trusting(&configuration)?;
    let port = stage.operator.webhook_port()?;
    let mut held = Vec::new();
    for host in 1..=250 {
        let stream = connect_from(host, port).await?;
        let connecting = tls.connect("localhost".try_into()?, stream);
        // A connection that is closed to make room for others fails.
        if let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_secs(5), connecting).await {
            held.push(stream);
        }
    }
    let metric = json!({"name": "m", "successCondition": "players == 1",
        "provider": {"web": {"url": "http://game"}}});
    for number in 0..20 {
        let mut template = hook_run(&format!("invalid-{number}"), json!({"metrics": [metric]}));
        template["kind"] = json!("HookTemplate");
        let stored = stage.store("hooktemplates", &template).await?;
        ensure!(stored.is_none(), "an invalid HookTemplate was accepted unchecked");
    }
    Ok(())
}

//! Applies each example unchanged, and waits until its workloads are ready.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use e2e::case::Case;
use e2e::checkout::{manifest, repository};
use serde_json::{Value, json};

use crate::sidecars;

/// The folders in `examples` that are tested here.
pub const FOLDERS: [&str; 5] = ["canary", "features", "first-hour", "hooks", "stateful"];

#[e2e::test]
async fn canary_examples_become_ready(case: &mut Case) -> Result<()> {
    apply_each(case, "canary").await
}

#[e2e::test]
async fn first_hour_examples_become_ready(case: &mut Case) -> Result<()> {
    apply_each(case, "first-hour").await
}

#[e2e::test]
async fn hook_examples_become_ready(case: &mut Case) -> Result<()> {
    apply_each(case, "hooks").await
}

#[e2e::test]
async fn stateful_examples_become_ready(case: &mut Case) -> Result<()> {
    apply_each_with_volumes(case, "stateful", &["world-0", "world-1", "world-2"]).await
}

#[e2e::test]
async fn feature_examples_become_ready(case: &mut Case) -> Result<()> {
    apply_each_with_volumes(case, "features", &["realm-0", "realm-1"]).await
}

/// A test's operator serves only the SidecarSets for the test's namespace, and the name of a SidecarSet must be unique
/// in the cluster, so the namespace and the name are changed here.
#[e2e::test]
async fn the_sidecars_of_the_example_are_in_its_pods(case: &mut Case) -> Result<()> {
    let documents = manifest("examples/features/sidecars.yaml")?;
    let [mut set, workload] = <[Value; 2]>::try_from(documents)
        .map_err(|documents| anyhow!("{} documents", documents.len()))?;
    set["metadata"]["name"] = json!(sidecars::name(case));
    set["spec"]["namespace"] = json!(case.namespace);
    case.apply(set).await?;
    sidecars::until_shown(case, [0, 0, 0, 0]).await?;
    case.apply(workload).await?;
    sidecars::until_shown(case, [2, 2, 2, 0]).await?;
    for pod in case.list("pods").await? {
        let inits = pod["spec"]["initContainers"].as_array();
        let inits: Vec<&Value> = inits.into_iter().flatten().map(|it| &it["name"]).collect();
        let is_complete = sidecars::containers(&pod) == ["game", "log"] && inits == ["mesh"];
        let log = &pod["spec"]["containers"][1];
        let room = json!({"name": "ROOM", "value": "7"});
        let env = log["env"].as_array().context("no variables")?;
        ensure!(is_complete && env.contains(&room), "{pod:#}");
        ensure!(log["volumeMounts"][0]["name"] == "logs", "{pod:#}");
    }
    sidecars::remove(case).await
}

#[e2e::test]
async fn every_examples_folder_is_tested(_: &mut Case) -> Result<()> {
    let folders = std::fs::read_dir(repository().join("examples"))?;
    let mut found: Vec<PathBuf> =
        folders.map(|folder| Ok(folder?.file_name().into())).collect::<Result<_>>()?;
    found.sort();
    // This folder is tested in `lifecycle_hooks`, on a control plane of its own.
    let tested_elsewhere = PathBuf::from("lifecycle");
    found.retain(|folder| *folder != tested_elsewhere);
    ensure!(found == FOLDERS.map(PathBuf::from), "{found:?}");
    Ok(())
}

/// Applies the examples of a folder one at a time, because some have objects of the same name, and waits until each
/// workload is ready.
async fn apply_each(case: &Case, folder: &str) -> Result<()> {
    for file in std::fs::read_dir(repository().join("examples").join(folder))? {
        let path = file?.path();
        let path = path.to_string_lossy();
        let applied = case.kubectl(&["apply", "-f", &path]).await?;
        let is_workload =
            |name: &&str| name.starts_with("gamedeployment") || name.starts_with("gamestatefulset");
        let created = applied.lines().filter_map(|line| line.strip_suffix(" created"));
        for workload in created.filter(is_workload) {
            let wait = ["wait", workload, "--for=condition=Ready", "--timeout=300s"];
            case.kubectl(&wait).await.with_context(|| path.to_string())?;
        }
        case.kubectl(&["delete", "-f", &path]).await?;
    }
    Ok(())
}

/// Applies the examples of a folder whose pods claim volumes. Creates the volumes first, because the test
/// cluster has no provisioner.
async fn apply_each_with_volumes(case: &Case, folder: &str, pods: &[&str]) -> Result<()> {
    let name = |pod: &str| format!("{}-{pod}", case.namespace);
    for pod in pods {
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name(pod)},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/data"},
                "claimRef": {"namespace": case.namespace, "name": format!("data-{pod}")},
            },
        });
        case.plane().kubectl(&["apply", "-f", "-"], &volume.to_string()).await?;
    }
    let outcome = apply_each(case, folder).await;
    for pod in pods {
        case.kubectl(&["delete", "pv", &name(pod), "--wait=false"]).await?;
    }
    outcome
}

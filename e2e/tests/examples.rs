//! The examples: each is applied as it stands, and what it asks for comes to be.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use serde_json::json;

e2e::tests![
    canary_examples_come_up,
    first_hour_examples_come_up,
    hook_examples_come_up,
    stateful_examples_come_up,
    each_feature_has_an_example_that_comes_up,
    no_example_is_left_out,
];

/// What is in `examples`.
pub const FOLDERS: [&str; 5] = ["canary", "features", "first-hour", "hooks", "stateful"];

async fn canary_examples_come_up(case: &mut Case) -> Result<()> {
    come_up(case, "canary").await
}

async fn first_hour_examples_come_up(case: &mut Case) -> Result<()> {
    come_up(case, "first-hour").await
}

async fn hook_examples_come_up(case: &mut Case) -> Result<()> {
    come_up(case, "hooks").await
}

async fn stateful_examples_come_up(case: &mut Case) -> Result<()> {
    come_up_on_volumes(case, "stateful", &["world-0", "world-1", "world-2"]).await
}

async fn each_feature_has_an_example_that_comes_up(case: &mut Case) -> Result<()> {
    come_up_on_volumes(case, "features", &["realm-0", "realm-1"]).await
}

async fn no_example_is_left_out(_: &mut Case) -> Result<()> {
    let folders = std::fs::read_dir(repository().join("examples"))?;
    let mut found: Vec<PathBuf> = folders
        .map(|folder| Ok(folder?.file_name().into()))
        .collect::<Result<_>>()?;
    found.sort();
    ensure!(found == FOLDERS.map(PathBuf::from), "{found:?}");
    Ok(())
}

/// Applies the examples of a folder, one after the other because some share a name, and waits until
/// each workload is ready.
async fn come_up(case: &Case, folder: &str) -> Result<()> {
    for file in std::fs::read_dir(repository().join("examples").join(folder))? {
        let path = file?.path();
        let path = path.to_string_lossy();
        let applied = case.kubectl(&["apply", "-f", &path]).await?;
        let is_workload =
            |name: &&str| name.starts_with("gamedeployment") || name.starts_with("gamestatefulset");
        let created = applied
            .lines()
            .filter_map(|line| line.strip_suffix(" created"));
        for workload in created.filter(is_workload) {
            let wait = ["wait", workload, "--for=condition=Ready", "--timeout=60s"];
            case.kubectl(&wait)
                .await
                .with_context(|| path.to_string())?;
        }
        case.kubectl(&["delete", "-f", &path]).await?;
    }
    Ok(())
}

/// The same where pods claim volumes: a cluster of yours makes them; this one has none that would.
async fn come_up_on_volumes(case: &Case, folder: &str, pods: &[&str]) -> Result<()> {
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
        case.plane()
            .kubectl(&["apply", "-f", "-"], &volume.to_string())
            .await?;
    }
    let outcome = come_up(case, folder).await;
    for pod in pods {
        case.kubectl(&["delete", "pv", &name(pod), "--wait=false"])
            .await?;
    }
    outcome
}

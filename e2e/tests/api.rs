//! What the API server takes and what it refuses, as kubectl shows it: the schemas and rules of the
//! CRDs. The manifests are in `e2e/manifests`: each bad one begins with what kubectl says to it.
//!
//! The operator is stopped: here nobody acts on what is applied.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::control_plane::repository;
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

e2e::tests![
    bad_manifests_get_the_message_that_is_written_on_them,
    good_manifests_and_examples_are_accepted,
    a_template_keeps_all_that_a_deployment_takes,
    server_side_apply_merges_what_two_appliers_write,
    the_documents_json_patches_find_their_paths_on_a_minimal_workload,
    workloads_scale_by_their_scale_subresource,
    kubectl_shows_the_columns_that_the_documents_show,
];

/// kubectl calls at a time.
const SIDE_BY_SIDE: usize = 8;

async fn bad_manifests_get_the_message_that_is_written_on_them(case: &mut Case) -> Result<()> {
    case.operator.terminate().await?;
    let bad: Vec<Bad> = manifests("e2e/manifests/bad")?
        .iter()
        .map(|path| Bad::read(path))
        .collect::<Result<_>>()?;
    for before in bad
        .iter()
        .filter_map(|bad| bad.after.as_ref())
        .collect::<BTreeSet<_>>()
    {
        case.kubectl(&["apply", "-f", &before.to_string_lossy()])
            .await?;
    }
    let case = &*case;
    let wrong: Vec<String> = futures::stream::iter(&bad)
        .map(|bad| bad.check(case))
        .buffered(SIDE_BY_SIDE)
        .try_filter_map(async |wrong| Ok(wrong))
        .try_collect()
        .await?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(
        bad.len() >= 80,
        "only {} bad manifests were found",
        bad.len()
    );
    Ok(())
}

/// A manifest that must be refused.
struct Bad {
    path: PathBuf,
    text: String,
    /// What is applied before it.
    after: Option<PathBuf>,
    /// What kubectl says, line by line; the API server lists several errors in no fixed order.
    message: BTreeSet<String>,
}

impl Bad {
    /// Reads the comment at its top: `# after: FILE` if there is one, `# expect: ` and the message.
    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let mut bad = Bad {
            path: path.to_owned(),
            after: None,
            message: BTreeSet::new(),
            text: text.clone(),
        };
        for line in text.lines().map_while(|line| line.strip_prefix("# ")) {
            if let Some(file) = line.strip_prefix("after: ") {
                bad.after = Some(repository().join("e2e/manifests").join(file));
            } else {
                let line = line.strip_prefix("expect: ").unwrap_or(line);
                bad.message.insert(line.to_owned());
            }
        }
        ensure!(
            !bad.message.is_empty(),
            "{} expects nothing",
            path.display()
        );
        Ok(bad)
    }

    /// What is wrong with the answer, if anything.
    async fn check(&self, case: &Case) -> Result<Option<String>> {
        let answer = case.refused(&["apply", "-f", "-"], &self.text).await?;
        let (_, stderr) = answer.split_once("stderr: ").context("kubectl says why")?;
        let found: BTreeSet<String> = stderr.lines().map(|line| line.trim_end().into()).collect();
        Ok((found != self.message).then(|| format!("{}:\n{stderr}", self.path.display())))
    }
}

async fn good_manifests_and_examples_are_accepted(case: &mut Case) -> Result<()> {
    case.operator.terminate().await?;
    for folder in ["e2e/manifests/good", "examples/canary", "examples/hooks"] {
        for path in manifests(folder)? {
            let path = path.to_string_lossy().into_owned();
            case.kubectl(&["apply", "-f", &path]).await?;
            let again = case.kubectl(&["apply", "-f", &path]).await?;
            let changed = again.lines().find(|line| !line.ends_with(" unchanged"));
            ensure!(changed.is_none(), "applied again, {path}: {again}");
        }
    }
    Ok(())
}

async fn a_template_keeps_all_that_a_deployment_takes(case: &mut Case) -> Result<()> {
    case.operator.terminate().await?;
    let path = repository().join("e2e/manifests/good/as-a-deployment-takes-it.yaml");
    let manifest = std::fs::read_to_string(path)?;
    case.apply(&manifest).await?;
    let mut wanted: Value = serde_yaml_ng::from_str(&manifest)?;
    drop_nulls(&mut wanted);
    let stored = case.get("gamedeployments/template").await?;
    let (stored, wanted) = (&stored["spec"]["template"], &wanted["spec"]["template"]);
    ensure!(stored == wanted, "stored: {stored}\napplied: {wanted}");
    Ok(())
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

async fn server_side_apply_merges_what_two_appliers_write(case: &mut Case) -> Result<()> {
    case.operator.terminate().await?;
    let game = |image: &str| {
        workload(json!({
            "replicas": 2,
            "selector": {"matchLabels": {"app": "shared"}},
            "template": {
                "metadata": {"labels": {"app": "shared"}},
                "spec": {
                    "containers": [{
                        "name": "server",
                        "image": image,
                        "volumeMounts": [{"name": "maps", "mountPath": "/maps"}],
                    }],
                    "volumes": [{"name": "maps", "emptyDir": {}}],
                },
            },
        }))
    };
    let sidecar = workload(json!({"template": {"spec": {
        "containers": [
            {"name": "server", "volumeMounts": [{"name": "logs", "mountPath": "/logs"}]},
            {"name": "agent", "image": "agent:1"},
        ],
        "volumes": [{"name": "logs", "emptyDir": {}}],
    }}}));
    let args = |manager: &'static str| {
        [
            "apply",
            "--server-side",
            "--field-manager",
            manager,
            "-f",
            "-",
        ]
    };
    case.kubectl_with(&args("studio"), &game("game:1")).await?;
    case.kubectl_with(&args("platform"), &sidecar).await?;
    case.kubectl_with(&args("studio"), &game("game:2")).await?;
    let stored = case.get("gamedeployments/shared").await?;
    let spec = &stored["spec"]["template"]["spec"];
    let expected = json!([
        {"name": "server", "image": "game:2", "volumeMounts": [
            {"name": "maps", "mountPath": "/maps"}, {"name": "logs", "mountPath": "/logs"},
        ]},
        {"name": "agent", "image": "agent:1"},
    ]);
    ensure!(spec["containers"] == expected, "{}", spec["containers"]);
    ensure!(
        spec["volumes"]
            .as_array()
            .is_some_and(|volumes| volumes.len() == 2)
    );
    let conflict = case.refused(&args("platform"), &game("game:3")).await?;
    let owner = "conflict with \"studio\": .spec.template.spec.containers[name=\"server\"].image";
    ensure!(conflict.contains(owner), "{conflict}");
    Ok(())
}

fn workload(spec: Value) -> String {
    json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "GameDeployment",
        "metadata": {"name": "shared"},
        "spec": spec,
    })
    .to_string()
}

/// Applies the smallest GameDeployment and GameStatefulSet; both are named `minimal`.
async fn apply_minimal(case: &mut Case) -> Result<[&'static str; 2]> {
    case.operator.terminate().await?;
    let path = repository().join("e2e/manifests/good/minimal.yaml");
    case.kubectl(&["apply", "-f", &path.to_string_lossy()])
        .await?;
    Ok(["gamedeployments", "gamestatefulsets"])
}

async fn the_documents_json_patches_find_their_paths_on_a_minimal_workload(
    case: &mut Case,
) -> Result<()> {
    for kind in apply_minimal(case).await? {
        for field in [
            "updateStrategy/paused",
            "preDeleteUpdateStrategy/retry",
            "preInplaceUpdateStrategy/retry",
            "postInplaceUpdateStrategy/retry",
        ] {
            let path = format!("/spec/{field}");
            let operation = json!([{"op": "replace", "path": path, "value": true}]);
            case.patch(&format!("{kind}/minimal"), operation).await?;
            let stored = case.get(&format!("{kind}/minimal")).await?;
            ensure!(stored.pointer(&path) == Some(&json!(true)), "{kind} {path}");
        }
    }
    Ok(())
}

async fn workloads_scale_by_their_scale_subresource(case: &mut Case) -> Result<()> {
    for kind in apply_minimal(case).await? {
        let resource = format!("{kind}/minimal");
        case.kubectl(&["scale", "--replicas=3", &resource]).await?;
        let status = r#"{"status": {"replicas": 2, "labelSelector": "app=minimal"}}"#;
        case.kubectl(&[
            "patch",
            &resource,
            "--subresource=status",
            "--type=merge",
            "-p",
            status,
        ])
        .await?;
        let scale = case.get(&format!("{resource}/scale")).await?;
        ensure!(scale["spec"]["replicas"] == 3, "{scale}");
        ensure!(
            scale["status"] == json!({"replicas": 2, "selector": "app=minimal"}),
            "{scale}"
        );
    }
    Ok(())
}

async fn kubectl_shows_the_columns_that_the_documents_show(case: &mut Case) -> Result<()> {
    apply_minimal(case).await?;
    for name in ["hook-run", "hook-template"] {
        let path = repository().join(format!("e2e/manifests/good/{name}.yaml"));
        case.kubectl(&["apply", "-f", &path.to_string_lossy()])
            .await?;
    }
    let workload = "NAME DESIRED UPDATED UPDATED_READY READY TOTAL AGE";
    let wide = format!("{workload} AVAILABLE STRATEGY PAUSED STEP REVISION");
    for (args, columns) in [
        (&["get", "gd"][..], workload),
        (&["get", "gsts"], workload),
        (&["get", "gd", "-o", "wide"], &wide),
        (&["get", "hr"], "NAME PHASE AGE"),
        (&["get", "ht"], "NAME AGE"),
    ] {
        let printed = case.kubectl(args).await?;
        let header: Vec<&str> = printed
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        ensure!(header.join(" ") == columns, "{args:?}: {printed}");
    }
    let all = case.kubectl(&["get", "game", "-o", "name"]).await?;
    let kinds: BTreeSet<&str> = all
        .lines()
        .filter_map(|line| line.split('.').next())
        .collect();
    let expected = [
        "gamedeployment",
        "gamestatefulset",
        "hookrun",
        "hooktemplate",
    ];
    ensure!(kinds == BTreeSet::from(expected), "{all}");
    Ok(())
}

/// The manifests of a folder.
fn manifests(folder: &str) -> Result<Vec<PathBuf>> {
    let folder = repository().join(folder);
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "yaml"));
    paths.sort();
    Ok(paths)
}

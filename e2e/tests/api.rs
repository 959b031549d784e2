//! The schemas and rules of the CRDs: what the API server accepts and refuses. The manifests are in
//! `e2e/manifests`; each bad one begins with the error that kubectl prints.
//!
//! The operator is stopped so that only the API server acts.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::case::bad_manifest::{BadManifest, manifests};
use e2e::checkout::repository;
use serde_json::{Value, json};

#[e2e::test]
async fn bad_manifests_are_refused_with_the_expected_message(case: &mut Case) -> Result<()> {
    case.operator.terminate().await?;
    let bad = BadManifest::all("e2e/manifests/bad")?;
    BadManifest::prepare_all(&bad, case).await?;
    BadManifest::check_all(&bad, case).await?;
    let count = bad.len();
    ensure!(count >= 80, "only {count} bad manifests were found");
    Ok(())
}

#[e2e::test]
async fn good_manifests_and_examples_are_accepted(case: &mut Case) -> Result<()> {
    case.operator.terminate().await?;
    for folder in ["e2e/manifests/good", "examples/canary", "examples/hooks"] {
        for path in manifests(folder)? {
            let path = path.to_string_lossy().into_owned();
            case.kubectl(&["apply", "-f", &path]).await?;
            let output = case.kubectl(&["apply", "-f", &path]).await?;
            let changed = output.lines().find(|line| !line.ends_with(" unchanged"));
            ensure!(changed.is_none(), "applying {path} again changed objects: {output}");
        }
    }
    Ok(())
}

#[e2e::test]
async fn a_template_keeps_every_field_that_a_deployment_accepts(case: &mut Case) -> Result<()> {
    case.operator.terminate().await?;
    let path = repository().join("e2e/manifests/good/as-a-deployment-takes-it.yaml");
    let manifest = std::fs::read_to_string(path)?;
    let mut wanted: Value = serde_yaml_ng::from_str(&manifest)?;
    // Fields of a newer Kubernetes version.
    let pod = &mut wanted["spec"]["template"]["spec"];
    pod["fieldOfTheFuture"] = json!({"keep": ["me"]});
    pod["containers"][0]["fieldOfTheFuture"] = json!(true);
    case.apply(&wanted).await?;
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

#[e2e::test]
async fn server_side_apply_merges_fields_of_two_managers(case: &mut Case) -> Result<()> {
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
    let args =
        |manager: &'static str| ["apply", "--server-side", "--field-manager", manager, "-f", "-"];
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
    ensure!(spec["volumes"].as_array().is_some_and(|volumes| volumes.len() == 2));
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

/// Applies the smallest GameDeployment and GameStatefulSet, both named `minimal`. Returns the plural names of their
/// kinds.
async fn apply_minimal(case: &mut Case) -> Result<[&'static str; 2]> {
    case.operator.terminate().await?;
    let path = repository().join("e2e/manifests/good/minimal.yaml");
    case.kubectl(&["apply", "-f", &path.to_string_lossy()]).await?;
    Ok(["gamedeployments", "gamestatefulsets"])
}

#[e2e::test]
async fn documented_json_patches_work_on_a_minimal_workload(case: &mut Case) -> Result<()> {
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

#[e2e::test]
async fn kubectl_scales_workloads_through_their_scale_subresource(case: &mut Case) -> Result<()> {
    for kind in apply_minimal(case).await? {
        let resource = format!("{kind}/minimal");
        case.kubectl(&["scale", "--replicas=3", &resource]).await?;
        let status = r#"{"status": {"activeReplicas": 2, "labelSelector": "app=minimal"}}"#;
        case.kubectl(&["patch", &resource, "--subresource=status", "--type=merge", "-p", status])
            .await?;
        let scale = case.get(&format!("{resource}/scale")).await?;
        ensure!(scale["spec"]["replicas"] == 3, "{scale}");
        ensure!(scale["status"] == json!({"replicas": 2, "selector": "app=minimal"}), "{scale}");
    }
    Ok(())
}

#[e2e::test]
async fn kubectl_prints_the_documented_columns(case: &mut Case) -> Result<()> {
    apply_minimal(case).await?;
    for name in ["hook-run", "hook-template"] {
        let path = repository().join(format!("e2e/manifests/good/{name}.yaml"));
        case.kubectl(&["apply", "-f", &path.to_string_lossy()]).await?;
    }
    let workload = "NAME DESIRED UPDATED UPDATED_READY READY TOTAL AGE";
    let wide = format!("{workload} STATUS WHY ACTIVE AVAILABLE STRATEGY PAUSED STEP REVISION");
    for (args, columns) in [
        (&["get", "gd"][..], workload),
        (&["get", "gsts"], workload),
        (&["get", "gd", "-o", "wide"], &wide),
        (&["get", "hr"], "NAME PHASE AGE"),
        (&["get", "ht"], "NAME AGE"),
    ] {
        let printed = case.kubectl(args).await?;
        let header: Vec<&str> =
            printed.lines().next().unwrap_or_default().split_whitespace().collect();
        ensure!(header.join(" ") == columns, "{args:?}: {printed}");
    }
    let all = case.kubectl(&["get", "game", "-o", "name"]).await?;
    // SidecarSets are cluster-scoped, so those of other tests may be listed.
    let kinds: BTreeSet<&str> = all
        .lines()
        .filter_map(|line| line.split('.').next())
        .filter(|kind| *kind != "sidecarset")
        .collect();
    let expected = ["gamedeployment", "gamestatefulset", "hookrun", "hooktemplate"];
    ensure!(kinds == BTreeSet::from(expected), "{all}");
    Ok(())
}

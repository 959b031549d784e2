//! The chart applied as rendered manifests, as kustomize, Argo CD and others do: Helm runs no hooks, so none is there,
//! and users remove the guards by hand before they delete the objects.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::cluster::chart::render;
use e2e::cluster::control_plane::ControlPlane;
use e2e::cluster::operator::Operator;
use judge::object::text;
use serde_json::{Value, json};

use super::{SYSTEM, guard, of_kind};

/// Values that together render all hooks.
const HOOKS: &str = "--set=bootstrapHooks.configMap=b,bootstrapHooks.image=b";

/// kubectl apply creates hooks like all other objects.
#[e2e::test]
async fn a_rendered_chart_has_no_hooks(case: &mut Case) -> Result<()> {
    for values in ["uninstall.job=Auto", "uninstall.job=CronJob", "uninstall.job=None"] {
        let objects = render(&case.plane().helm, &["--set", values, HOOKS]).await?;
        let annotated = objects.iter().find(|it| it.to_string().contains("helm.sh/hook"));
        ensure!(annotated.is_none(), "{values}: {annotated:#?}");
        ensure!(of_kind(&objects, "Job").is_empty(), "{values}");
        let by_hand = of_kind(&objects, "CronJob");
        ensure!(by_hand.len() == usize::from(values != "uninstall.job=None"), "{values}");
        ensure!(by_hand.iter().all(|it| it["spec"]["suspend"] == true), "{by_hand:#?}");
        let changes_deployments = |rule: &Value| {
            rule["resources"].to_string().contains("\"deployments\"")
                && rule["verbs"].to_string().contains("patch")
        };
        let rules = objects.iter().filter_map(|it| it["rules"].as_array());
        let rule = rules.flatten().find(|rule| changes_deployments(rule));
        ensure!(rule.is_none(), "{rule:#?}");
    }
    // Helm itself has the hook only with Auto.
    for (values, hooks) in [("Auto", 1), ("CronJob", 0), ("None", 0)] {
        let options = [format!("--set=uninstall.job={values}")];
        let options = options.each_ref().map(String::as_str);
        let plane = case.plane();
        let objects = plane.render_installed("gamekeeper", SYSTEM, &options).await?;
        ensure!(of_kind(&objects, "Job").len() == hooks, "{values}");
    }
    Ok(())
}

#[e2e::test]
async fn rendered_manifests_are_applied_again_with_another_image(case: &mut Case) -> Result<()> {
    let plane = ControlPlane::empty("rendered").await?;
    let outcome = check(&plane, case.folder()).await;
    plane.stop().await?;
    outcome
}

async fn check(plane: &ControlPlane, folder: &Path) -> Result<()> {
    plane.create_namespace(SYSTEM).await?;
    let image = |tag: &str| format!("--set=image.tag={tag}");
    plane.apply(&render(&plane.helm, &[&image("first")]).await?).await?;
    let mut operator = Operator::installed(plane, SYSTEM, "gamekeeper", folder).await?;
    operator.start().await?;
    guard::create_workload(plane).await?;

    let objects = render(&plane.helm, &[&image("second")]).await?;
    plane.apply(&objects).await?;
    ensure_goes_on(plane, "second").await?;
    let jobs = format!("get jobs -n {SYSTEM} -o name");
    let jobs = plane.kubectl_line(&jobs).await?;
    ensure!(jobs.is_empty(), "{jobs}");

    // A tool that renders in the cluster gets the hooks, and creates them like all other objects.
    for tag in ["third", "fourth"] {
        let hooks = plane.render_installed("gamekeeper", SYSTEM, &[&image(tag)]).await?;
        ensure!(of_kind(&hooks, "Job").len() == 1, "no Job");
        plane.apply(&hooks).await?;
        let args = arguments(of_kind(&hooks, "Job")[0])?;
        let refused = operator.run(&words(&args)).await?;
        let is_refused = refused.code == 1 && refused.stderr.contains("is not being uninstalled");
        ensure!(is_refused, "{refused:?}");
        ensure_goes_on(plane, tag).await?;
    }
    remove_by_hand(plane, &mut operator).await?;
    plane.kubectl(&["delete", "--ignore-not-found", "-f", "-"], &list(&objects)).await?;
    let pods = ["delete", "pods", "--all", "-n", guard::NAMESPACE];
    plane.kubectl(&pods, "").await?;
    Ok(())
}

/// Checks that the operator and the guard of its pods are as before.
async fn ensure_goes_on(plane: &ControlPlane, tag: &str) -> Result<()> {
    let path = format!("/apis/apps/v1/namespaces/{SYSTEM}/deployments/gamekeeper");
    let deployment = plane.get(&path).await?;
    let spec = &deployment["spec"];
    let image = text(spec, "/template/spec/containers/0/image");
    ensure!(image == format!("gamekeeper:{tag}"), "{deployment:#}");
    ensure!(spec["replicas"] == 2, "{deployment:#}");
    guard::ensure_guarded(plane).await
}

/// Follows docs/gitops.md: the Job comes from the CronJob, and does nothing until a user has stopped the operator.
async fn remove_by_hand(plane: &ControlPlane, operator: &mut Operator) -> Result<()> {
    let create = format!("create job unguard -n {SYSTEM} --from=cronjob/gamekeeper-unguard");
    plane.kubectl_line(&create).await?;
    let job = plane.get(&format!("/apis/batch/v1/namespaces/{SYSTEM}/jobs/unguard")).await?;
    let args = arguments(&job)?;
    let refused = operator.run(&words(&args)).await?;
    let expected = "gamekeeper has 2 replicas, so no guard was removed";
    ensure!(refused.code == 1 && refused.stderr.contains(expected), "{refused:?}");
    guard::ensure_guarded(plane).await?;

    let scale = format!("scale deployment gamekeeper -n {SYSTEM} --replicas=0");
    plane.kubectl_line(&scale).await?;
    operator.terminate().await?;
    let done = operator.run(&words(&args)).await?;
    ensure!(done.code == 0, "{done:?}");
    guard::ensure_nothing_left(plane).await
}

/// The arguments of a Job.
pub(super) fn arguments(job: &Value) -> Result<Vec<String>> {
    let args = job.pointer("/spec/template/spec/containers/0/args");
    Ok(serde_json::from_value(args.context("no arguments")?.clone())?)
}

pub(super) fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

fn list(objects: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

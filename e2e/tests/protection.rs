//! The chart's ValidatingAdmissionPolicies: deletion protection, and protection of the workloads'
//! HookRuns against changes by users.

use anyhow::{Context, Result, ensure};
pub(crate) use e2e::addons::policy::{install, release, uninstall};
use e2e::case::Case;
use e2e::process::command::run_unchecked;
use e2e::servers::hook_server::Answer;
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template, retrying_hook_template};
use serde_json::{Value, json};

use crate::run::{hook_run, until_phase};

/// The JSON pointer of the label for deletion protection.
const LABEL: &str = "/metadata/labels/io.tencent.bcs.dev~1deletion-allow";

/// Installs the policy for deletion protection, for these namespaces only.
async fn protect(case: &Case, policy: &str, namespaces: &[&str]) -> Result<()> {
    let value = format!("admission.deletionProtection={policy}");
    install(case, &value, "deletion", namespaces).await
}

#[e2e::test]
async fn a_deletion_that_ends_matches_without_their_hook_is_a_warning(
    case: &mut Case,
) -> Result<()> {
    let value = "admission.deletionProtection=Labeled";
    install(case, value, "deletion-warning", &[&case.namespace]).await?;
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::rolling(1).pre_delete("test")).await?;
    case.until_settled(1).await?;
    let delete = async |more: &[&str]| {
        let args = [&["delete", "gamedeployment", GAME, "--dry-run=server"], more].concat();
        let output = run_unchecked(&mut case.kubectl_command(&args).await?).await?;
        ensure!(output.code == 0, "{output:?}");
        Ok(output.stderr)
    };
    case.eventually("the policy warns", async || {
        let warning = delete(&[]).await?;
        let expected = "its pods (1) are deleted with it, without running their PreDelete hook";
        ensure!(warning.contains(expected), "{warning:?}");
        Ok(())
    })
    .await?;
    // Its pods stay.
    let warning = delete(&["--cascade=orphan"]).await?;
    ensure!(!warning.contains("Warning"), "{warning:?}");
    case.apply(Game::rolling(1).pre_delete("test").guarded()).await?;
    let warning = delete(&[]).await?;
    ensure!(!warning.contains("without running"), "{warning:?}");
    case.apply(Game::rolling(1)).await?;
    let warning = delete(&[]).await?;
    ensure!(!warning.contains("Warning"), "{warning:?}");
    uninstall(case, "deletion-warning").await
}

async fn unprotect(case: &Case) -> Result<()> {
    uninstall(case, "deletion").await
}

#[e2e::test]
async fn deletion_protection_follows_the_label(case: &mut Case) -> Result<()> {
    // The first row of each policy waits for a refusal, which shows that the policy is in force for the rows after it.
    for (policy, label, allowed) in [
        ("Labeled", Some("Never"), false),
        ("Labeled", Some("Always"), true),
        ("Labeled", None, true),
        ("All", None, false),
        ("All", Some("Always"), true),
    ] {
        protect(case, policy, &[&case.namespace]).await?;
        let mut game = Game::in_place(1);
        if let Some(label) = label {
            game = game.set(LABEL, label);
        }
        case.apply(&game).await?;
        let delete = ["delete", "gamedeployment", GAME, "--dry-run=server"];
        case.eventually("the policy is enforced", async || {
            match case.kubectl(&delete).await {
                Ok(_) => ensure!(allowed, "{policy} {label:?}: deleted"),
                Err(error) => {
                    let error = format!("{error:#}");
                    ensure!(!allowed && error.contains("must be Always, or Cascading"), "{error}");
                }
            }
            Ok(())
        })
        .await?;
        case.kubectl(&["label", "gamedeployment", GAME, "io.tencent.bcs.dev/deletion-allow-"])
            .await?;
    }
    let label = "io.tencent.bcs.dev/deletion-allow=Cascading";
    case.kubectl(&["label", "gamedeployment", GAME, label]).await?;
    case.until("a pod exists", |view| view.pods.len() == 1).await?;
    let delete = ["delete", "gamedeployment", GAME];
    let error = case.refused(&delete, "").await?;
    let expected =
        "metadata.labels.io.tencent.bcs.dev/deletion-allow: is Cascading, and there are pods (1)";
    ensure!(error.contains(expected), "{error}");
    case.scale(0).await?;
    case.until_counts([0; 5]).await?;
    case.kubectl(&delete).await?;
    unprotect(case).await
}

#[e2e::test]
async fn a_protected_set_is_kept_until_its_last_pod_is_deleted(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    protect(case, "Labeled", &[&case.namespace]).await?;
    let online = |age: i64| Answer::Json(json!({"age": age}));
    case.hooks.answer("/players", online(1));
    let players = retrying_hook_template("players", &case.hooks.url("/players"));
    case.apply(players).await?;
    let set = Game::parallel(2).pre_delete("players");
    case.apply(set.set(LABEL, "Cascading")).await?;
    case.until_settled(2).await?;
    let workload = case.workload();
    let until_refused = async |pods: usize| {
        let words = format!("is Cascading, and there are pods ({pods})");
        case.eventually(&words, async || {
            let delete = ["delete", &workload, "--dry-run=server"];
            let error = case.refused(&delete, "").await?;
            ensure!(error.contains(&words), "{error}");
            Ok(())
        })
        .await
    };
    until_refused(2).await?;
    // No replicas are desired, but the pods wait for their hooks.
    case.scale(0).await?;
    case.until("both hooks run", |view| view.phases("PreDelete") == ["Running", "Running"]).await?;
    until_refused(2).await?;
    case.hooks.answer("/players", online(45));
    case.until("all pods are deleted", |view| view.pods.is_empty()).await?;
    case.eventually("the set can be deleted", async || case.kubectl(&["delete", &workload]).await)
        .await?;
    unprotect(case).await
}

#[e2e::test]
async fn a_namespace_is_deleted_with_its_protected_workloads(case: &mut Case) -> Result<()> {
    let other = format!("{}-x", case.namespace);
    protect(case, "Labeled", &[&other]).await?;
    let plane = case.plane();
    plane.create_namespace(&other).await?;
    // No operator runs there. The workloads have no pods, and are protected because of spec.replicas.
    for game in [Game::in_place(1), Game::parallel(1)] {
        let game = game.set(LABEL, "Cascading").to_string();
        let apply = ["apply", "-n", &other, "-f", "-"];
        plane.kubectl(&apply, &game).await?;
    }
    for workload in ["gamedeployments", "gamestatefulsets"] {
        let delete = ["delete", workload, "--all", "-n", &other, "--dry-run=server"];
        case.eventually("the policy is enforced", async || {
            let error = plane.kubectl(&delete, "").await;
            let error = error.err().map(|error| format!("{error:#}"));
            let is_refused = error.as_ref().is_some_and(|error| error.contains("is Cascading"));
            ensure!(is_refused, "{error:?}");
            Ok(())
        })
        .await?;
    }
    let delete = ["delete", "namespace", &other, "--timeout=300s"];
    plane.kubectl(&delete, "").await?;
    unprotect(case).await
}

/// Scales a GameDeployment from two pods to one, with a hook that does not succeed. Returns the HookRun.
async fn scale_in_with_failing_hook(case: &Case) -> Result<Value> {
    let online = Answer::Json(json!({"age": 1}));
    case.hooks.answer("/players", online);
    let players = retrying_hook_template("players", &case.hooks.url("/players"));
    case.apply(players).await?;
    case.apply(Game::in_place(2).pre_delete("players")).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    let view = case
        .until("a pod waits for its hook", |view| view.phases("PreDelete") == ["Running"])
        .await?;
    Ok(view.runs[0].0.clone())
}

/// A copy of a run with another name and a metric that passes.
fn copy_of(run: &Value, case: &Case) -> Value {
    let mut copy = run.clone();
    let metadata = &run["metadata"];
    copy["metadata"] = json!({
        "name": "mine", "labels": metadata["labels"], "annotations": metadata["annotations"],
        "ownerReferences": metadata["ownerReferences"],
    });
    let url = case.hooks.url("/yes");
    copy["spec"] = json!({"metrics": [{"name": "yes", "provider": {"web": {"url": url}}}]});
    copy["status"] = Value::Null;
    copy
}

#[e2e::test]
async fn a_label_protects_crds_and_hook_templates_from_deletion(case: &mut Case) -> Result<()> {
    let values = "admission.deletionProtection=Labeled,admission.protectHookTemplates=true";
    install(case, values, "deletion", &[&case.namespace]).await?;
    install(case, values, "deletion-crds", &[&case.namespace]).await?;
    case.apply(hook_template("check", "http://10.0.0.1")).await?;
    // All deletions are dry runs, because other tests use these CRDs at the same time.
    for (kind, name) in [("hooktemplate", "check"), ("crd", "hookruns.tkex.tencent.com")] {
        let delete = ["delete", kind, name, "--dry-run=server"];
        // The refusal comes first, because it shows that the policy is in force.
        for (value, is_allowed) in [("Cascading", false), ("Always", true)] {
            let label = format!("io.tencent.bcs.dev/deletion-allow={value}");
            case.kubectl(&["label", kind, name, "--overwrite", &label]).await?;
            case.eventually("the label is respected", async || {
                match case.kubectl(&delete).await {
                    Ok(_) => ensure!(is_allowed, "{kind} {value}: deleted"),
                    Err(error) => {
                        let message = format!("{error:#}");
                        ensure!(!is_allowed && message.contains("must be Always"), "{message}");
                    }
                }
                Ok(())
            })
            .await?;
        }
        case.kubectl(&["label", kind, name, "io.tencent.bcs.dev/deletion-allow-"]).await?;
        case.kubectl(&delete).await?;
    }
    uninstall(case, "deletion-crds").await?;
    unprotect(case).await
}

/// Without the policy, the operator itself must ignore the copy.
#[e2e::test]
async fn a_copied_hook_run_allows_no_deletion(case: &mut Case) -> Result<()> {
    let run = scale_in_with_failing_hook(case).await?;
    let create = ["create", "-f", "-"];
    case.kubectl_with(&create, &copy_of(&run, case).to_string()).await?;
    case.until("the copy is deleted", |view| view.runs.len() == 1).await?;
    case.consistently("the pod and its own run are kept", 3, |view| {
        let uid = |it: &Value| it["metadata"]["uid"].clone();
        view.pods.len() == 2 && view.runs.len() == 1 && uid(&view.runs[0].0) == uid(&run)
    })
    .await?;
    case.hooks.answer("/players", Answer::Json(json!({"age": 45})));
    case.until("the pod's own run allows the deletion", |view| view.pods.len() == 1).await?;
    Ok(())
}

#[e2e::test]
async fn only_the_operator_may_create_or_change_hook_runs_of_workloads(
    case: &mut Case,
) -> Result<()> {
    let value = "admission.hookRunProtection=true";
    install(case, value, "hookruns", &[&case.namespace]).await?;
    let run = scale_in_with_failing_hook(case).await?;
    let name = run["metadata"]["name"].as_str().context("no name")?;
    let create = ["create", "--dry-run=server", "-f", "-"];
    let copy = copy_of(&run, case);
    case.eventually("the policy is enforced", async || {
        let error = case.refused(&create, &copy.to_string()).await?;
        ensure!(error.contains("remove them"), "{error}");
        Ok(())
    })
    .await?;
    let mut incomplete = [copy.clone(), copy.clone()];
    incomplete[0]["metadata"]["annotations"] = Value::Null;
    incomplete[1]["metadata"]["ownerReferences"] = Value::Null;
    for copy in incomplete {
        let error = case.refused(&create, &copy.to_string()).await?;
        ensure!(error.contains("remove them"), "{error}");
    }

    let pod = "gamekeeper.tkex.tencent.com/pod-uid";
    let url =
        json!({"spec": {"metrics": [{"name": "yes", "provider": {"web": {"url": "http://x"}}}]}});
    let passed = json!({"status": {"phase": "Successful", "finishedAt": "2030-01-01T00:00:00Z"}});
    for (change, words, subresource) in [
        (json!({"metadata": {"annotations": {pod: "other"}}}), "remove them", ""),
        (json!({"metadata": {"annotations": {pod: null}}}), "remove them", ""),
        (
            json!({"metadata": {"labels": {"gamedeployment-type": "PreInplace"}}}),
            "the labels that it set cannot be changed",
            "",
        ),
        (url, "only terminate can be changed", ""),
        (passed, "only the operator writes it", "--subresource=status"),
    ] {
        let patch = format!("-p={change}");
        let mut args = vec!["patch", "hookrun", name, "--type=merge", &patch];
        args.extend(Some(subresource).filter(|it| !it.is_empty()));
        let error = case.refused(&args, "").await?;
        ensure!(error.contains(words), "{change}: {error}");
    }
    // Users may create runs without these annotations and owners, and change the same fields of them.
    let mut manual = hook_run("by-hand", copy["spec"].clone());
    case.apply(&manual).await?;
    manual["metadata"]["labels"] = json!({"gamedeployment-type": "PreInplace"});
    manual["metadata"]["annotations"] = json!({"example.com/reason": "changed"});
    manual["spec"]["metrics"][0]["provider"]["web"]["url"] = json!(case.hooks.url("/other"));
    let printed = case.apply(&manual).await?;
    ensure!(printed.contains("by-hand configured"), "{printed}");
    until_phase(case, "by-hand", "Successful").await?;
    let owned = json!({"metadata": {"ownerReferences": run["metadata"]["ownerReferences"]}});
    let patch = format!("-p={owned}");
    let error = case.refused(&["patch", "hookrun", "by-hand", "--type=merge", &patch], "").await?;
    ensure!(error.contains("remove them"), "{error}");

    // Users may terminate a run, and the garbage collector may change and remove owners.
    let terminate = json!([{"op": "add", "path": "/spec/terminate", "value": true}]);
    case.patch(&format!("hookrun/{name}"), terminate).await?;
    until_phase(case, name, "Inconclusive").await?;
    case.consistently("the pod is kept", 2, |view| view.pods.len() == 2).await?;
    case.operator.terminate().await?;
    let mut owners = run["metadata"]["ownerReferences"].clone();
    owners[0]["blockOwnerDeletion"] = json!(false);
    for owners in [owners, Value::Null] {
        let patch = format!("-p={}", json!({"metadata": {"ownerReferences": owners}}));
        case.kubectl(&["patch", "hookrun", name, "--type=merge", &patch]).await?;
    }
    let policy = format!("{}-hookruns", release(case));
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = case.plane().get(&format!("{path}/{policy}")).await?;
    let warnings = &policy["status"]["typeChecking"]["expressionWarnings"];
    ensure!(warnings.is_null(), "{warnings:#}");
    uninstall(case, "hookruns").await
}

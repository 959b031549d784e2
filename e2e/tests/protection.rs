//! Protection by policies of the chart. Of workloads: labels, pods that are not wanted and still there, and
//! what goes with its namespace. Of their HookRuns: who may make one, and what anybody may change.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::addons::webhook::rendered;
use e2e::case::Case;
use e2e::servers::hook_server::Answer;
use e2e::wait::eventually;
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, patient_hook_template};
use serde_json::{Value, json};

use crate::run::until_phase;

e2e::tests![
    a_protected_workload_is_deleted_only_as_its_label_says,
    a_protected_set_stays_until_its_last_pod_is_gone,
    a_namespace_takes_its_protected_workloads_with_it,
    a_copied_hook_run_frees_no_pod,
    hook_runs_of_workloads_are_made_and_changed_by_operators_alone,
];

/// The label that protects, as a JSON pointer.
const LABEL: &str = "/metadata/labels/io.tencent.bcs.dev~1deletion-allow";

/// What a test's policy is named after.
fn release(case: &Case) -> String {
    let name = format!("keep-{}", case.namespace);
    name[..name.len().min(40)].trim_end_matches('-').to_owned()
}

/// Installs the chart's policy, for these namespaces alone.
async fn protect(case: &Case, policy: &str, namespaces: &[&str]) -> Result<()> {
    let value = format!("admission.deletionProtection={policy}");
    install(case, &value, "deletion", namespaces).await
}

/// Installs one of the chart's policies, for these namespaces alone.
async fn install(case: &Case, value: &str, policy: &str, namespaces: &[&str]) -> Result<()> {
    let mut objects = rendered(case, &release(case), value).await?;
    let name = format!("{}-{policy}", release(case));
    objects.retain(|it| it["metadata"]["name"] == name.as_str());
    ensure!(objects.len() == 2, "{objects:#?}");
    for binding in objects
        .iter_mut()
        .filter(|it| it["spec"]["policyName"].is_string())
    {
        binding["spec"]["matchResources"] = json!({"namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces},
        ]}});
    }
    case.plane().apply(&objects).await
}

async fn unprotect(case: &Case) -> Result<()> {
    uninstall(case, "deletion").await
}

async fn uninstall(case: &Case, policy: &str) -> Result<()> {
    let policy = format!("{}-{policy}", release(case));
    for kind in [
        "validatingadmissionpolicybinding",
        "validatingadmissionpolicy",
    ] {
        case.plane().kubectl(&["delete", kind, &policy], "").await?;
    }
    Ok(())
}

async fn a_protected_workload_is_deleted_only_as_its_label_says(case: &mut Case) -> Result<()> {
    for (policy, label, allowed) in [
        ("Labelled", None, true),
        ("Labelled", Some("Always"), true),
        ("Labelled", Some("Never"), false),
        ("All", None, false),
    ] {
        protect(case, policy, &[&case.namespace]).await?;
        let mut game = Game::in_place(1);
        if let Some(label) = label {
            game = game.set(LABEL, label);
        }
        case.apply(&game).await?;
        let delete = ["delete", "gamedeployment", GAME, "--dry-run=server"];
        eventually(
            "the policy is followed",
            Duration::from_secs(30),
            async || {
                match case.kubectl(&delete).await {
                    Ok(_) => ensure!(allowed, "{policy} {label:?}: deleted"),
                    Err(error) => {
                        let said = format!("{error:#}");
                        ensure!(
                            !allowed && said.contains("must be Always, or Cascading"),
                            "{said}"
                        );
                    }
                }
                Ok(())
            },
        )
        .await?;
        case.kubectl(&[
            "label",
            "gamedeployment",
            GAME,
            "io.tencent.bcs.dev/deletion-allow-",
        ])
        .await?;
    }
    let label = "io.tencent.bcs.dev/deletion-allow=Cascading";
    case.kubectl(&["label", "gamedeployment", GAME, label])
        .await?;
    case.until("a pod is there", |view| view.pods.len() == 1)
        .await?;
    let delete = ["delete", "gamedeployment", GAME];
    let said = case.refused(&delete, "").await?;
    let expected =
        "metadata.labels.io.tencent.bcs.dev/deletion-allow: is Cascading, and there are pods (1)";
    ensure!(said.contains(expected), "{said}");
    case.scale(0).await?;
    case.until_counts([0; 5]).await?;
    case.kubectl(&delete).await?;
    unprotect(case).await
}

async fn a_protected_set_stays_until_its_last_pod_is_gone(case: &mut Case) -> Result<()> {
    case.is_about_a_set();
    protect(case, "Labelled", &[&case.namespace]).await?;
    let online = |age: i64| Answer::Json(json!({"age": age}));
    case.hooks.answer("/players", online(1));
    let players = patient_hook_template("players", &case.hooks.url("/players"));
    case.apply(players).await?;
    let set = Game::parallel(2).pre_delete("players");
    case.apply(set.set(LABEL, "Cascading")).await?;
    case.until_settled(2).await?;
    let workload = case.workload();
    let refused = async |pods: usize| {
        let words = format!("is Cascading, and there are pods ({pods})");
        case.eventually(&words, async || {
            let delete = ["delete", &workload, "--dry-run=server"];
            let said = case.refused(&delete, "").await?;
            ensure!(said.contains(&words), "{said}");
            Ok(())
        })
        .await
    };
    refused(2).await?;
    // No pod is wanted any more, but each is still there: somebody plays on it.
    case.scale(0).await?;
    case.until("both hooks run", |view| {
        view.phases("PreDelete") == ["Running", "Running"]
    })
    .await?;
    refused(2).await?;
    case.hooks.answer("/players", online(45));
    case.until("all pods are gone", |view| view.pods.is_empty())
        .await?;
    case.eventually("the set can be deleted", async || {
        case.kubectl(&["delete", &workload]).await
    })
    .await?;
    unprotect(case).await
}

async fn a_namespace_takes_its_protected_workloads_with_it(case: &mut Case) -> Result<()> {
    let doomed = format!("{}-x", case.namespace);
    protect(case, "Labelled", &[&doomed]).await?;
    let plane = case.plane();
    plane.kubectl(&["create", "namespace", &doomed], "").await?;
    // Nobody works there: the workloads have no pods, and are kept for those that they want.
    for game in [Game::in_place(1), Game::parallel(1)] {
        let game = game.set(LABEL, "Cascading").to_string();
        let apply = ["apply", "-n", &doomed, "-f", "-"];
        plane.kubectl(&apply, &game).await?;
    }
    for workload in ["gamedeployments", "gamestatefulsets"] {
        let delete = [
            "delete",
            workload,
            "--all",
            "-n",
            &doomed,
            "--dry-run=server",
        ];
        eventually(
            "the policy is followed",
            Duration::from_secs(30),
            async || {
                let said = plane.kubectl(&delete, "").await;
                let said = said.err().map(|error| format!("{error:#}"));
                let is_refused = said
                    .as_ref()
                    .is_some_and(|said| said.contains("is Cascading"));
                ensure!(is_refused, "{said:?}");
                Ok(())
            },
        )
        .await?;
    }
    let delete = ["delete", "namespace", &doomed, "--timeout=60s"];
    plane.kubectl(&delete, "").await?;
    unprotect(case).await
}

/// A GameDeployment of two pods that is scaled in behind a hook that says no; the HookRun that says it.
async fn scaled_in_behind_a_hook(case: &Case) -> Result<Value> {
    let online = Answer::Json(json!({"age": 1}));
    case.hooks.answer("/players", online);
    let players = patient_hook_template("players", &case.hooks.url("/players"));
    case.apply(players).await?;
    case.apply(Game::in_place(2).pre_delete("players")).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    let view = case
        .until("a pod waits for its hook", |view| {
            view.phases("PreDelete") == ["Running"]
        })
        .await?;
    Ok(view.runs[0].0.clone())
}

/// The same run under another name, with a metric that passes.
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

/// Without the policy, too: it is the operator that does not take it for its own.
async fn a_copied_hook_run_frees_no_pod(case: &mut Case) -> Result<()> {
    let run = scaled_in_behind_a_hook(case).await?;
    let create = ["create", "-f", "-"];
    case.kubectl_with(&create, &copy_of(&run, case).to_string())
        .await?;
    case.until("the copy is gone", |view| view.runs.len() == 1)
        .await?;
    case.keeps("the pod and its own run stay", 3, |view| {
        let uid = |it: &Value| it["metadata"]["uid"].clone();
        view.pods.len() == 2 && view.runs.len() == 1 && uid(&view.runs[0].0) == uid(&run)
    })
    .await?;
    case.hooks
        .answer("/players", Answer::Json(json!({"age": 45})));
    case.until("its own run frees it", |view| view.pods.len() == 1)
        .await?;
    Ok(())
}

async fn hook_runs_of_workloads_are_made_and_changed_by_operators_alone(
    case: &mut Case,
) -> Result<()> {
    let value = "admission.hookRunProtection=true";
    install(case, value, "hookruns", &[&case.namespace]).await?;
    let run = scaled_in_behind_a_hook(case).await?;
    let name = run["metadata"]["name"].as_str().context("a name")?;
    let create = ["create", "--dry-run=server", "-f", "-"];
    let copy = copy_of(&run, case);
    case.eventually("the policy is followed", async || {
        let said = case.refused(&create, &copy.to_string()).await?;
        ensure!(said.contains("remove them"), "{said}");
        Ok(())
    })
    .await?;
    let mut parts = [copy.clone(), copy.clone()];
    parts[0]["metadata"]["annotations"] = Value::Null;
    parts[1]["metadata"]["ownerReferences"] = Value::Null;
    for part in parts {
        let said = case.refused(&create, &part.to_string()).await?;
        ensure!(said.contains("remove them"), "{said}");
    }

    let pod = "gamekeeper.tkex.tencent.com/pod-uid";
    let url =
        json!({"spec": {"metrics": [{"name": "yes", "provider": {"web": {"url": "http://x"}}}]}});
    let passed = json!({"status": {"phase": "Successful", "finishedAt": "2030-01-01T00:00:00Z"}});
    for (change, words, more) in [
        (
            json!({"metadata": {"annotations": {pod: "other"}}}),
            "remove them",
            "",
        ),
        (
            json!({"metadata": {"annotations": {pod: null}}}),
            "remove them",
            "",
        ),
        (
            json!({"metadata": {"labels": {"gamedeployment-type": "PreInplace"}}}),
            "the labels that it set cannot be changed",
            "",
        ),
        (url, "only terminate can be changed", ""),
        (
            passed,
            "only the operator writes it",
            "--subresource=status",
        ),
    ] {
        let patch = format!("-p={change}");
        let mut words_of = vec!["patch", "hookrun", name, "--type=merge", &patch];
        words_of.extend(Some(more).filter(|more| !more.is_empty()));
        let said = case.refused(&words_of, "").await?;
        ensure!(said.contains(words), "{change}: {said}");
    }
    // What users make by hand is theirs.
    let mine = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookRun", "metadata": {"name": "by-hand"},
        "spec": copy["spec"],
    });
    case.apply(&mine).await?;
    case.apply(&mine).await?;
    until_phase(case, "by-hand", "Successful").await?;
    let become_one = json!({"metadata": {"ownerReferences": run["metadata"]["ownerReferences"]}});
    let patch = format!("-p={become_one}");
    let said = case
        .refused(&["patch", "hookrun", "by-hand", "--type=merge", &patch], "")
        .await?;
    ensure!(said.contains("remove them"), "{said}");

    // A run can be stopped, which passes nothing; and the garbage collector may change and take owners.
    let terminate = json!([{"op": "add", "path": "/spec/terminate", "value": true}]);
    case.patch(&format!("hookrun/{name}"), terminate).await?;
    until_phase(case, name, "Inconclusive").await?;
    case.keeps("the pod stays", 2, |view| view.pods.len() == 2)
        .await?;
    case.operator.terminate().await?;
    let mut owners = run["metadata"]["ownerReferences"].clone();
    owners[0]["blockOwnerDeletion"] = json!(false);
    for owners in [owners, Value::Null] {
        let patch = format!("-p={}", json!({"metadata": {"ownerReferences": owners}}));
        case.kubectl(&["patch", "hookrun", name, "--type=merge", &patch])
            .await?;
    }
    let policy = format!("{}-hookruns", release(case));
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = case.plane().get(&format!("{path}/{policy}")).await?;
    let warnings = &policy["status"]["typeChecking"]["expressionWarnings"];
    ensure!(warnings.is_null(), "{warnings:#}");
    uninstall(case, "hookruns").await
}

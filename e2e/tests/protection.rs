//! Deletion protection: its policies and labels, pods that are not wanted and still there, and what goes
//! with its namespace.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::case::{Case, GAME};
use e2e::hook_server::Answer;
use e2e::manifest::{Game, patient_hook_template};
use e2e::wait::eventually;
use e2e::webhook::rendered;
use serde_json::json;

e2e::tests![
    a_protected_workload_is_deleted_only_as_its_label_says,
    a_protected_set_stays_until_its_last_pod_is_gone,
    a_namespace_takes_its_protected_workloads_with_it,
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
    let mut objects = rendered(case, &release(case), &value).await?;
    let is_policy = |kind: &str| kind.contains("AdmissionPolicy");
    objects.retain(|it| it["kind"].as_str().is_some_and(is_policy));
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
    let policy = format!("{}-deletion", release(case));
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

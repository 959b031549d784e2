//! Admission: the webhook, its certificates, the linter, and which workloads may be deleted. All of it
//! as the chart installs it, but for the address: operators run beside the cluster here.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::addons::webhook::{BAD, Webhook, refused};
use e2e::case::Case;
use e2e::case::bad_manifest::{BadManifest, manifests};
use e2e::checkout::repository;
use e2e::cluster::operator::{ACCOUNT, free_port};
use e2e::documents::shell::Shell;
use e2e::process::command::{Ended, run, run_to_end};
use e2e::wait::throughout;
use e2e::workload::GAME;
use e2e::workload::manifest::Game;
use judge::Event;
use serde_json::json;
use tokio::process::Command;

use crate::examples::FOLDERS as EXAMPLES;

e2e::tests![
    bad_manifests_are_refused_by_the_webhook_in_the_linters_words,
    what_only_the_api_server_knows_of_a_template_is_refused_in_its_words,
    a_template_is_tried_when_it_changes_and_only_for_what_it_says,
    a_webhook_that_may_try_no_templates_lets_them_pass,
    what_was_stored_before_can_still_be_worked_on,
    a_dead_operator_blocks_nothing_and_a_standby_serves_too,
    certificates_are_renewed_without_a_gap_or_a_restart,
    certificates_begin_anew_when_their_secret_is_emptied,
];

async fn bad_manifests_are_refused_by_the_webhook_in_the_linters_words(
    case: &mut Case,
) -> Result<()> {
    let installed = Webhook::of(case, "2160h").await?;
    installed.until_asked(case).await?;
    let bad = BadManifest::all("e2e/manifests/admission")?;
    BadManifest::prepare_all(&bad, case).await?;
    let with_template = bad.iter().find(|bad| bad.after.is_some());
    let with_template = with_template.context("one needs a template")?;
    case.eventually("the operator knows the templates", async || {
        let apply = ["apply", "--dry-run=server", "-f", "-"];
        case.refused(&apply, &with_template.text).await
    })
    .await?;
    BadManifest::check_all(&bad, case).await?;
    ensure!(bad.len() >= 60, "only {} bad manifests", bad.len());

    let linted = lint(case, "e2e/manifests/admission").await?;
    ensure!(linted.code == 1, "{linted:?}");
    for bad in &bad {
        let file = bad.path.strip_prefix(repository())?.to_string_lossy();
        let of_file: BTreeSet<&str> = linted
            .stdout
            .lines()
            .filter_map(|line| {
                line.trim()
                    .strip_prefix(&*file)?
                    .strip_prefix(':')?
                    .split_once(": ")
            })
            .map(|(_, finding)| finding)
            .collect();
        for finding in bad.findings() {
            ensure!(
                of_file.contains(finding),
                "{file}: {finding}\nlint: {of_file:#?}"
            );
        }
    }

    let good = Game::in_place(1).pre_delete("later");
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    case.kubectl_with(&apply, &good.to_string()).await?;
    let examples = EXAMPLES.map(|folder| format!("examples/{folder}"));
    for folder in examples
        .iter()
        .map(String::as_str)
        .chain(["e2e/manifests/good"])
    {
        for path in manifests(folder)? {
            let path = path.to_string_lossy();
            case.kubectl(&["apply", "--dry-run=server", "-f", &path])
                .await?;
        }
    }
    installed.remove(case).await
}

/// `gamekeeper lint` of a folder.
async fn lint(case: &Case, folder: &str) -> Result<Ended> {
    let mut lint = Command::new(case.operator.binary());
    lint.args(["lint", folder]).current_dir(repository());
    run_to_end(&mut lint).await
}

async fn what_only_the_api_server_knows_of_a_template_is_refused_in_its_words(
    case: &mut Case,
) -> Result<()> {
    let installed = Webhook::of(case, "2160h").await?;
    installed.until_asked(case).await?;
    let bad = BadManifest::all("e2e/manifests/server")?;
    BadManifest::check_all(&bad, case).await?;
    // What docs/admission.md says of them: the linter does not know.
    let linted = lint(case, "e2e/manifests/server").await?;
    ensure!(linted.code == 0, "{linted:?}");
    installed.remove(case).await
}

/// A template with a field that there is none of.
fn misspelt(game: Game) -> Game {
    game.set("/spec/template/spec/hostNetwrok", true)
}

/// What the operator tried so far: each template as text, or the answer to one that cannot be read.
/// A patch that meets another write is made again by the API server, and its template tried again.
fn tries(case: &Case) -> Result<Vec<String>> {
    let mut requests = case.plane().audit.requests(&case.namespace)?;
    let operator = case.operator.username();
    requests.retain(|event| event.user.username == operator && event.resource() == "podtemplates");
    ensure!(
        requests
            .iter()
            .all(|event| event.uri.contains("dryRun=All")),
        "a template was stored: {requests:#?}"
    );
    let tried = |event: Event| match (event.request_object, event.response_status) {
        (Some(template), _) => template.to_string(),
        (None, answer) => answer.unwrap_or_default().message,
    };
    Ok(requests.into_iter().map(tried).collect())
}

/// Waits until a template with these words is tried, as the audit log has it after the answer.
async fn until_tried(case: &Case, words: &str) -> Result<()> {
    case.eventually(&format!("{words} is tried"), async || {
        let tries = tries(case)?;
        ensure!(tries.iter().any(|it| it.contains(words)), "{tries:#?}");
        Ok(())
    })
    .await
}

async fn a_template_is_tried_when_it_changes_and_only_for_what_it_says(
    case: &mut Case,
) -> Result<()> {
    let installed = Webhook::of(case, "2160h").await?;
    installed.until_asked(case).await?;
    // Neither a quota nor pod security is about templates.
    case.apply(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"},
        "spec": {"hard": {"pods": "0"}},
    }))
    .await?;
    let restricted = "pod-security.kubernetes.io/enforce=restricted";
    let label = ["label", "namespace", &case.namespace, restricted];
    case.plane().kubectl(&label, "").await?;
    case.apply(Game::in_place(2)).await?;
    let mounts = "/spec/template/spec/containers/0/volumeMounts";
    let mount = json!([{"name": "world", "mountPath": "/world"}]);
    let claim =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let claims = json!([{"metadata": {"name": "world"}, "spec": claim}]);
    let set = Game::parallel(1).set("/spec/volumeClaimTemplates", claims);
    case.apply(set.set(mounts, mount)).await?;
    case.eventually("both templates are tried", async || {
        let tries = tries(case)?;
        ensure!(tries.len() == 2, "{tries:#?}");
        Ok(())
    })
    .await?;

    case.scale(3).await?;
    case.replace("/spec/updateStrategy/paused", true).await?;
    case.kubectl(&["label", "gamedeployment", GAME, "team=red"])
        .await?;
    case.set_image("game:v2").await?;
    until_tried(case, "game:v2").await?;
    // What changed no template was not tried.
    let mut later = tries(case)?.split_off(2);
    later.retain(|tried| !tried.contains("game:v2"));
    ensure!(later.is_empty(), "{later:#?}");
    let add = json!([{"op": "add", "path": "/spec/template/spec/hostNetwrok", "value": true}]);
    let patch = format!("-p={add}");
    let patch = ["patch", "gamedeployment", GAME, "--type=json", &patch];
    let said = case.refused(&patch, "").await?;
    let expected =
        "spec.template.spec.hostNetwrok: unknown field \"spec.template.spec.hostNetwrok\"";
    ensure!(said.contains(expected), "{said}");
    until_tried(case, "hostNetwrok").await?;
    installed.remove(case).await
}

async fn a_webhook_that_may_try_no_templates_lets_them_pass(case: &mut Case) -> Result<()> {
    let installed = Webhook::of(case, "2160h").await?;
    installed.until_asked(case).await?;
    let bad = misspelt(Game::in_place(0)).to_string();
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    case.refused(&apply, &bad).await?;

    may_do_all_but_try_templates(case).await?;
    case.eventually("the webhook may not ask", async || {
        case.kubectl_with(&apply, &bad).await
    })
    .await?;
    refused(case).await?;
    let (_, page) = case.operator.get("/metrics").await?;
    for outcome in ["refused", "forbidden"] {
        let counted = format!("template_dry_runs_total{{outcome=\"{outcome}\"}}");
        let zero = format!("{counted} 0\n");
        let is_counted = page.contains(&counted) && !page.contains(&zero);
        ensure!(is_counted, "{outcome} is not counted:\n{page}");
    }
    let log = std::fs::read_to_string(case.operator.log())?;
    ensure!(
        log.contains("admitting a pod template without the API server's verdict"),
        "{log}"
    );
    installed.remove(case).await
}

/// Binds the operator to a role of its own, without that permission.
async fn may_do_all_but_try_templates(case: &Case) -> Result<()> {
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gamekeeper";
    let mut role = case.plane().get(role).await?;
    let name = format!("untried-{}", case.namespace);
    let rules = role["rules"].as_array_mut().context("rules")?;
    let all = rules.len();
    rules.retain(|rule| rule["resources"] != json!(["podtemplates"]));
    ensure!(rules.len() == all - 1, "one rule is about podtemplates");
    let api = "rbac.authorization.k8s.io/v1";
    let reference =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let subject = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": case.namespace}]);
    case.plane()
        .apply(&[
            json!({"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}),
            json!({"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": reference, "subjects": subject}),
        ])
        .await?;
    let binding = format!("gamekeeper-{ACCOUNT}-{}", case.namespace);
    let delete = ["delete", "clusterrolebinding", &binding];
    case.plane().kubectl(&delete, "").await?;
    Ok(())
}

async fn what_was_stored_before_can_still_be_worked_on(case: &mut Case) -> Result<()> {
    case.apply(BAD.replace("probe", "stored")).await?;
    let image = "/spec/template/spec/containers/0/image";
    let mismatch = misspelt(Game::in_place(0)).set(image, "game:v1 ");
    case.apply(&mismatch).await?;
    let installed = Webhook::of(case, "2160h").await?;
    installed.until_asked(case).await?;
    case.kubectl(&["label", "hooktemplate", "stored", "team=red"])
        .await?;
    let policy = json!([{"op": "replace", "path": "/spec/policy", "value": "Ordered"}]);
    case.patch("hooktemplate/stored", policy).await?;
    case.scale(1).await?;
    case.replace("/spec/updateStrategy/paused", true).await?;
    case.set_image("game:v2").await?;
    let worse =
        json!([{"op": "add", "path": "/spec/metrics/0/failureCondition", "value": "a or b"}]);
    let args = [
        "patch",
        "hooktemplate",
        "stored",
        "--type=json",
        &format!("-p={worse}"),
    ];
    let said = case.refused(&args, "").await?;
    ensure!(
        said.contains("spec.metrics[0].failureCondition: "),
        "{said}"
    );
    case.kubectl(&["delete", "hooktemplate", "stored"]).await?;
    installed.remove(case).await
}

async fn a_dead_operator_blocks_nothing_and_a_standby_serves_too(case: &mut Case) -> Result<()> {
    let installed = Webhook::of(case, "2160h").await?;
    installed.until_asked(case).await?;
    let mut standby = case.another_operator("standby").await?;
    allow(case, &installed, "standby").await?;
    let other = free_port().await?;
    standby.tell(installed.flags(other, "2160h"));
    standby.start().await?;
    let before = installed.served(case).await?;
    installed.call(case, other).await?;
    case.operator.terminate().await?;
    installed.until_asked(case).await?;
    ensure!(
        installed.served(case).await? == before,
        "the standby made another certificate"
    );

    standby.terminate().await?;
    case.apply(BAD).await?;
    case.apply(&Game::in_place(1)).await?;
    let broken = Game::in_place(1).named("broken").set("/spec/replicas", -1);
    let said = case
        .refused(&["apply", "-f", "-"], &broken.to_string())
        .await?;
    ensure!(said.contains("spec.replicas: Invalid value: -1"), "{said}");
    case.kubectl(&["run", "bystander", "--image=other:v1"])
        .await?;
    case.kubectl(&["delete", "gamedeployment", GAME]).await?;
    installed.remove(case).await
}

/// Lets another account keep the certificates too.
async fn allow(case: &Case, installed: &Webhook, account: &str) -> Result<()> {
    let (name, namespace) = (&installed.name, &case.namespace);
    let subject = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace}]);
    let role =
        |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let api = "rbac.authorization.k8s.io/v1";
    let metadata = json!({"name": format!("{name}-{account}"), "namespace": namespace});
    let everywhere = json!({"name": format!("{name}"), "labels": {"of": "test"}});
    let both = json!([
        {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace},
        {"kind": "ServiceAccount", "name": account, "namespace": namespace},
    ]);
    case.plane()
        .apply(&[
            json!({"apiVersion": api, "kind": "RoleBinding", "metadata": metadata,
                "roleRef": role("Role"), "subjects": subject}),
            json!({"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": everywhere,
                "roleRef": role("ClusterRole"), "subjects": both}),
        ])
        .await
}

async fn certificates_are_renewed_without_a_gap_or_a_restart(case: &mut Case) -> Result<()> {
    let installed = Webhook::of(case, "30s").await?;
    installed.until_asked(case).await?;
    let mut served = BTreeSet::new();
    // Due when a third is left, and served a tenth later.
    throughout(
        "what is served is trusted",
        Duration::from_secs(60),
        async || {
            served.insert(installed.served(case).await?);
            installed.shake_hands(case).await
        },
    )
    .await?;
    let count = served.len();
    ensure!(
        (2..=4).contains(&count),
        "{count} certificates in two lifetimes"
    );
    installed.until_asked(case).await?;
    let log = std::fs::read_to_string(case.operator.log())?;
    let begun = log.matches("due=Begin").count();
    ensure!(begun == 1, "begun {begun} times: {log}");
    installed.remove(case).await
}

/// By the command of docs/admission.md.
async fn certificates_begin_anew_when_their_secret_is_emptied(case: &mut Case) -> Result<()> {
    let installed = Webhook::of(case, "10m").await?;
    installed.until_asked(case).await?;
    let before = installed.served(case).await?;
    let page = std::fs::read_to_string(repository().join("docs/admission.md"))?;
    let mut lines = page.lines().map(str::trim);
    let empty = lines.find(|line| line.starts_with("kubectl patch secret "));
    let empty = empty.context("no command")?;
    let empty = empty.replace("NAME-webhook", &installed.name);
    let empty = empty.replace("gamekeeper-system", &case.namespace);
    let shell = Shell::of(case.plane()).await?;
    run(&mut shell.command(&empty), "").await?;
    case.eventually("others are served, and trusted", async || {
        ensure!(installed.served(case).await? != before, "the old ones are");
        installed.shake_hands(case).await
    })
    .await?;
    installed.until_asked(case).await?;
    let log = std::fs::read_to_string(case.operator.log())?;
    let begun = log.matches("due=Begin").count();
    ensure!(begun == 2, "begun {begun} times: {log}");
    installed.remove(case).await
}

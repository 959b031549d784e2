//! Admission: the webhook and its certificates as the chart installs them, and the linter. Operators run outside the
//! cluster here, so the API server calls a local port instead of the chart's Service.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::addons::webhook::{BAD, Webhook, ensure_refused};
use e2e::case::Case;
use e2e::case::bad_manifest::{BadManifest, manifests};
use e2e::checkout::repository;
use e2e::cluster::operator::{ACCOUNT, free_port};
use e2e::documents::shell::Shell;
use e2e::process::command::{CommandOutput, run, run_unchecked};
use e2e::wait::consistently;
use e2e::workload::GAME;
use e2e::workload::manifest::Game;
use judge::Event;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::examples::FOLDERS as EXAMPLES;

#[e2e::test]
async fn the_webhook_refuses_bad_manifests_with_the_linters_messages(
    case: &mut Case,
) -> Result<()> {
    let webhook = Webhook::install(case, "2160h").await?;
    webhook.until_called(case).await?;
    let bad = BadManifest::all("e2e/manifests/admission")?;
    BadManifest::prepare_all(&bad, case).await?;
    let manifest = bad.iter().find(|bad| bad.after.is_some());
    let manifest = manifest.context("no bad manifest needs a template")?;
    case.eventually("the operator has observed the templates", async || {
        let apply = ["apply", "--dry-run=server", "-f", "-"];
        case.refused(&apply, &manifest.text).await
    })
    .await?;
    BadManifest::check_all(&bad, case).await?;
    ensure!(bad.len() >= 60, "only {} bad manifests", bad.len());

    let linted = lint(case, "e2e/manifests/admission").await?;
    ensure!(linted.code == 1, "{linted:?}");
    for bad in &bad {
        let file = bad.path.strip_prefix(repository())?.to_string_lossy();
        let found: BTreeSet<&str> = linted
            .stdout
            .lines()
            .filter_map(|line| {
                line.trim().strip_prefix(&*file)?.strip_prefix(':')?.split_once(": ")
            })
            .map(|(_, finding)| finding)
            .collect();
        for finding in bad.findings() {
            ensure!(found.contains(finding), "{file}: {finding}\nlint: {found:#?}");
        }
    }

    let good = Game::in_place(1).pre_delete("later");
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    case.kubectl_with(&apply, &good.to_string()).await?;
    let examples = EXAMPLES.map(|folder| format!("examples/{folder}"));
    for folder in examples.iter().map(String::as_str).chain(["e2e/manifests/good"]) {
        for path in manifests(folder)? {
            let path = path.to_string_lossy();
            case.kubectl(&["apply", "--dry-run=server", "-f", &path]).await?;
        }
    }
    webhook.remove(case).await
}

/// Runs `gamekeeper lint` on a folder.
async fn lint(case: &Case, folder: &str) -> Result<CommandOutput> {
    let mut lint = Command::new(case.operator.binary());
    lint.args(["lint", folder]).current_dir(repository());
    run_unchecked(&mut lint).await
}

#[e2e::test]
async fn the_webhook_returns_the_api_servers_findings_about_templates(
    case: &mut Case,
) -> Result<()> {
    let webhook = Webhook::install(case, "2160h").await?;
    webhook.until_called(case).await?;
    let bad = BadManifest::all("e2e/manifests/server")?;
    with_verdicts(case, async || {
        // An earlier attempt may have stored objects without a verdict.
        let stored = ["gamedeployment/game", "gamestatefulset/world", "sidecarset/log"];
        let delete = ["delete", "--ignore-not-found"];
        case.kubectl(&[&delete[..], &stored].concat()).await?;
        BadManifest::check_all(&bad, case).await
    })
    .await?;
    // The linter does not report these findings, as docs/admission.md states.
    let linted = lint(case, "e2e/manifests/server").await?;
    ensure!(linted.code == 0, "{linted:?}");
    webhook.remove(case).await
}

/// Makes a check that relies on the API server's verdicts on templates. If a verdict takes longer than two seconds, as
/// it can under load, the webhook admits the template. The check then proves nothing, so it is made again.
async fn with_verdicts<T>(case: &Case, check: impl AsyncFn() -> Result<T>) -> Result<T> {
    case.eventually("every dry run gets a verdict", async || {
        let before = dry_runs_without_verdict(case).await?;
        let outcome = check().await;
        let after = dry_runs_without_verdict(case).await?;
        ensure!(after == before, "dry runs without a verdict: {before}, then {after}");
        Ok(outcome)
    })
    .await?
}

/// How many of the operator's dry runs were not answered in time.
async fn dry_runs_without_verdict(case: &Case) -> Result<u64> {
    let (_, page) = case.operator.get("/metrics").await?;
    let is_undecided = |line: &&str| {
        let outcomes = ["outcome=\"timeout\"", "outcome=\"unavailable\""];
        line.contains("template_dry_runs_total{") && outcomes.iter().any(|it| line.contains(it))
    };
    let counts = page.lines().filter(is_undecided).map(|line| -> Result<u64> {
        let (_, count) = line.rsplit_once(' ').context("no value")?;
        Ok(count.parse::<u64>()?)
    });
    counts.sum()
}

/// Adds an unknown field to a workload's template.
fn misspelled(game: Game) -> Game {
    game.set("/spec/template/spec/hostNetwrok", true)
}

/// The operator's dry runs so far: each template as text, or the error if it could not be parsed. The API server
/// retries a patch that conflicts with another write, which causes another dry run.
fn dry_runs(case: &Case) -> Result<Vec<String>> {
    let mut requests = case.plane().audit.requests(&case.namespace)?;
    let operator = case.operator.username();
    requests.retain(|event| event.user.username == operator && event.resource() == "podtemplates");
    ensure!(
        requests.iter().all(|event| event.uri.contains("dryRun=All")),
        "a template was stored: {requests:#?}"
    );
    let text = |event: Event| match event.request_object {
        Some(template) => belongs_to_workload(&template).then(|| template.to_string()),
        None => Some(event.response_status.unwrap_or_default().message),
    };
    Ok(requests.into_iter().filter_map(text).collect())
}

/// Whether a dry run's template belongs to a workload. SidecarSets, whose templates have no labels, are
/// cluster-scoped, so the webhook of each test also checks those of all other tests. Templates that cannot
/// be parsed cannot be distinguished from those of workloads.
fn belongs_to_workload(template: &Value) -> bool {
    template["template"]["metadata"]["labels"].is_object()
}

/// The dry runs of templates that could be parsed.
fn parsed_dry_runs(case: &Case) -> Result<Vec<String>> {
    let mut runs = dry_runs(case)?;
    runs.retain(|it| it.starts_with('{'));
    Ok(runs)
}

/// Waits until the audit log has a dry run of a template that contains a string.
async fn until_dry_run(case: &Case, text: &str) -> Result<()> {
    case.eventually(&format!("a dry run of {text}"), async || {
        let runs = dry_runs(case)?;
        ensure!(runs.iter().any(|it| it.contains(text)), "{runs:#?}");
        Ok(())
    })
    .await
}

#[e2e::test]
async fn a_dry_run_is_made_only_when_a_template_changes(case: &mut Case) -> Result<()> {
    let webhook = Webhook::install(case, "2160h").await?;
    webhook.until_called(case).await?;
    // A dry run of a template is subject to neither quotas nor pod security.
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
    case.eventually("two dry runs", async || {
        let runs = parsed_dry_runs(case)?;
        ensure!(runs.len() == 2, "{runs:#?}");
        Ok(())
    })
    .await?;

    case.scale(3).await?;
    case.replace("/spec/updateStrategy/paused", true).await?;
    case.kubectl(&["label", "gamedeployment", GAME, "team=red"]).await?;
    case.set_image("game:v2").await?;
    until_dry_run(case, "game:v2").await?;
    // Changes outside the template cause no dry run.
    let mut other_runs = parsed_dry_runs(case)?.split_off(2);
    other_runs.retain(|template| !template.contains("game:v2"));
    ensure!(other_runs.is_empty(), "{other_runs:#?}");
    let add = json!([{"op": "add", "path": "/spec/template/spec/hostNetwrok", "value": true}]);
    let patch = format!("-p={add}");
    let patch = ["patch", "gamedeployment", GAME, "--type=json", "--dry-run=server", &patch];
    let error = with_verdicts(case, async || case.refused(&patch, "").await).await?;
    let expected =
        "spec.template.spec.hostNetwrok: unknown field \"spec.template.spec.hostNetwrok\"";
    ensure!(error.contains(expected), "{error}");
    until_dry_run(case, "hostNetwrok").await?;
    webhook.remove(case).await
}

#[e2e::test]
async fn templates_are_admitted_without_permission_for_dry_runs(case: &mut Case) -> Result<()> {
    let webhook = Webhook::install(case, "2160h").await?;
    webhook.until_called(case).await?;
    let bad = misspelled(Game::in_place(0)).to_string();
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    with_verdicts(case, async || case.refused(&apply, &bad).await).await?;

    forbid_dry_runs(case).await?;
    case.eventually("dry runs are forbidden", async || {
        case.kubectl_with(&apply, &bad).await?;
        // The template may also have been admitted because the API server was slow.
        ensure_counted(case, "forbidden").await
    })
    .await?;
    ensure_counted(case, "refused").await?;
    ensure_refused(case).await?;
    let log = std::fs::read_to_string(case.operator.log())?;
    ensure!(log.contains("admitting a pod template without the API server's verdict"), "{log}");
    webhook.remove(case).await
}

/// Fails unless the operator's metrics count a dry run of a GameDeployment with this outcome.
async fn ensure_counted(case: &Case, outcome: &str) -> Result<()> {
    let (_, page) = case.operator.get("/metrics").await?;
    let counted =
        format!("template_dry_runs_total{{kind=\"GameDeployment\",outcome=\"{outcome}\"}}");
    let zero = format!("{counted} 0\n");
    let is_counted = page.contains(&counted) && !page.contains(&zero);
    ensure!(is_counted, "{outcome} is not counted:\n{page}");
    Ok(())
}

/// Binds the operator to a role that does not permit dry runs of templates.
async fn forbid_dry_runs(case: &Case) -> Result<()> {
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gamekeeper";
    let mut role = case.plane().get(role).await?;
    let name = format!("no-dry-runs-{}", case.namespace);
    let rules = role["rules"].as_array_mut().context("no rules")?;
    let total = rules.len();
    rules.retain(|rule| rule["resources"] != json!(["podtemplates"]));
    ensure!(rules.len() == total - 1, "expected exactly one rule for podtemplates");
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

#[e2e::test]
async fn invalid_objects_stored_earlier_can_still_be_changed(case: &mut Case) -> Result<()> {
    case.apply(BAD.replace("probe", "stored")).await?;
    let image = "/spec/template/spec/containers/0/image";
    let invalid = misspelled(Game::in_place(0)).set(image, "game:v1 ");
    case.apply(&invalid).await?;
    let webhook = Webhook::install(case, "2160h").await?;
    webhook.until_called(case).await?;
    case.kubectl(&["label", "hooktemplate", "stored", "team=red"]).await?;
    let policy = json!([{"op": "replace", "path": "/spec/policy", "value": "Ordered"}]);
    case.patch("hooktemplate/stored", policy).await?;
    case.scale(1).await?;
    case.replace("/spec/updateStrategy/paused", true).await?;
    case.set_image("game:v2").await?;
    let bad_condition =
        json!([{"op": "add", "path": "/spec/metrics/0/failureCondition", "value": "a or b"}]);
    let args = ["patch", "hooktemplate", "stored", "--type=json", &format!("-p={bad_condition}")];
    let error = case.refused(&args, "").await?;
    ensure!(error.contains("spec.metrics[0].failureCondition: "), "{error}");
    case.kubectl(&["delete", "hooktemplate", "stored"]).await?;
    webhook.remove(case).await
}

#[e2e::test]
async fn the_standby_serves_admission_and_nothing_is_blocked_without_operators(
    case: &mut Case,
) -> Result<()> {
    let webhook = Webhook::install(case, "2160h").await?;
    webhook.until_called(case).await?;
    let mut standby = case.prepare_operator("standby").await?;
    allow(case, &webhook, "standby").await?;
    let port = free_port().await?;
    standby.add_args(webhook.flags(port, "2160h"));
    standby.start().await?;
    let certificate = webhook.served_certificate(case).await?;
    webhook.redirect_calls(case, port).await?;
    case.operator.terminate().await?;
    webhook.until_called(case).await?;
    ensure!(
        webhook.served_certificate(case).await? == certificate,
        "the standby created another certificate"
    );

    standby.terminate().await?;
    case.apply(BAD).await?;
    case.apply(&Game::in_place(1)).await?;
    let broken = Game::in_place(1).named("broken").set("/spec/replicas", -1);
    let error = case.refused(&["apply", "-f", "-"], &broken.to_string()).await?;
    ensure!(error.contains("spec.replicas: Invalid value: -1"), "{error}");
    case.kubectl(&["run", "bystander", "--image=other:v1"]).await?;
    case.kubectl(&["delete", "gamedeployment", GAME]).await?;
    webhook.remove(case).await
}

/// Gives another service account the permissions of the webhook.
async fn allow(case: &Case, webhook: &Webhook, account: &str) -> Result<()> {
    let (name, namespace) = (&webhook.name, &case.namespace);
    let subject = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace}]);
    let role =
        |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let api = "rbac.authorization.k8s.io/v1";
    let metadata = json!({"name": format!("{name}-{account}"), "namespace": namespace});
    let cluster_metadata = json!({"name": format!("{name}"), "labels": {"of": "test"}});
    let subjects = json!([
        {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace},
        {"kind": "ServiceAccount", "name": account, "namespace": namespace},
    ]);
    case.plane()
        .apply(&[
            json!({"apiVersion": api, "kind": "RoleBinding", "metadata": metadata,
                "roleRef": role("Role"), "subjects": subject}),
            json!({"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": cluster_metadata,
                "roleRef": role("ClusterRole"), "subjects": subjects}),
        ])
        .await
}

#[e2e::test]
async fn certificates_are_rotated_without_a_gap_or_a_restart(case: &mut Case) -> Result<()> {
    // With a shorter lifetime, a certificate could expire during a short stall of the machine.
    let webhook = Webhook::install(case, "60s").await?;
    webhook.until_called(case).await?;
    let mut served = BTreeSet::new();
    // A new certificate is due when a third of the lifetime is left, and is served a tenth of the lifetime later.
    consistently("the served certificate is trusted", Duration::from_secs(120), async || {
        served.insert(webhook.served_certificate(case).await?);
        let started = Instant::now();
        let trusted = webhook.tls_handshake(case).await;
        // If it took long, the CA bundle that it used may be outdated.
        if started.elapsed() < Duration::from_secs(1) {
            trusted?;
        }
        Ok(())
    })
    .await?;
    let count = served.len();
    ensure!((2..=4).contains(&count), "{count} certificates in two lifetimes");
    webhook.until_called(case).await?;
    let log = std::fs::read_to_string(case.operator.log())?;
    let created = log.matches("due=Create").count();
    ensure!(created == 1, "created {created} times: {log}");
    webhook.remove(case).await
}

/// Runs the command in docs/admission.md.
#[e2e::test]
async fn certificates_are_recreated_when_their_secret_is_emptied(case: &mut Case) -> Result<()> {
    let webhook = Webhook::install(case, "10m").await?;
    webhook.until_called(case).await?;
    let certificate = webhook.served_certificate(case).await?;
    let page = std::fs::read_to_string(repository().join("docs/admission.md"))?;
    let mut lines = page.lines().map(str::trim);
    let command = lines.find(|line| line.starts_with("kubectl patch secret "));
    let command = command.context("no command")?;
    let command = command.replace("NAME-webhook", &webhook.name);
    let command = command.replace("gamekeeper-system", &case.namespace);
    let shell = Shell::admin(case.plane()).await?;
    run(&mut shell.command(&command), "").await?;
    case.eventually("a new certificate is served and trusted", async || {
        ensure!(
            webhook.served_certificate(case).await? != certificate,
            "the old certificate is still served"
        );
        webhook.tls_handshake(case).await
    })
    .await?;
    webhook.until_called(case).await?;
    let log = std::fs::read_to_string(case.operator.log())?;
    let created = log.matches("due=Create").count();
    ensure!(created == 2, "created {created} times: {log}");
    webhook.remove(case).await
}

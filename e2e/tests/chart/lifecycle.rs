//! The lifecycle of a release on an empty cluster: installation, upgrade, rollback and removal.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, ensure};
use e2e::addons::webhook::{configuration_path, tls_handshake};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::cluster::chart::CHART;
use e2e::cluster::control_plane::ControlPlane;
use e2e::cluster::operator::Operator;
use e2e::process::command::run;
use e2e::wait::{LIMIT, eventually};
use e2e::workload::manifest::Game;
use serde_json::Value;
use tokio::process::Command;

use super::{GAMES, SYSTEM, guard, release};

/// Installs, upgrades, rolls back and uninstalls a release, and installs another release for a single namespace.
/// The operator runs with the permissions of the chart.
#[e2e::test]
async fn a_release_is_installed_upgraded_rolled_back_and_uninstalled(
    case: &mut Case,
) -> Result<()> {
    let plane = ControlPlane::empty("chart").await?;
    let outcome = lifecycle(&plane, case.folder()).await;
    plane.stop().await?;
    outcome
}

async fn lifecycle(plane: &ControlPlane, folder: &Path) -> Result<()> {
    let kubectl = async |line: &str| plane.kubectl_line(line).await;
    release::use_valid_pod_addresses(plane).await?;
    for namespace in [SYSTEM, GAMES, "team"] {
        kubectl(&format!("create namespace {namespace}")).await?;
    }
    let restricted = "pod-security.kubernetes.io/enforce=restricted";
    kubectl(&format!("label namespace {SYSTEM} team {restricted}")).await?;

    let install = [
        "install",
        "gamekeeper",
        CHART,
        "--namespace",
        SYSTEM,
        // The interval between checks of a certificate is a fraction of its lifetime. No certificate is renewed during
        // the test.
        "--set=extraArgs={--webhook-certificate-lifetime=20m}",
        "--wait",
        "--timeout=300s",
    ];
    let notes = plane.helm(&install).await?;
    ensure!(notes.contains("rollout status deployment/gamekeeper"), "{notes}");
    kubectl(&format!("rollout status deployment/gamekeeper -n {SYSTEM} --timeout=300s")).await?;
    let nodes = format!("get pods -n {SYSTEM} -o jsonpath={{.items[*].spec.nodeName}}");
    let nodes = kubectl(&nodes).await?;
    let nodes: BTreeSet<&str> = nodes.split(' ').collect();
    ensure!(nodes.len() == 2, "both operators are on {nodes:?}");
    release::ensure_services_reach_pods(plane).await?;
    let mut operator = Operator::installed(plane, SYSTEM, "gamekeeper", folder).await?;
    operator.start().await?;
    let game = Game::in_place(3).to_string();
    plane.kubectl(&["apply", "-n", GAMES, "-f", "-"], &game).await?;
    until_ready(plane, 3).await?;
    let uid = kubectl(&format!("get gamedeployments -n {GAMES} -o jsonpath={{..uid}}")).await?;

    guard::create_workload(plane).await?;
    let certificates = trusted_certificates(plane, &operator).await?;

    let newer = newer_chart(folder).await?;
    let upgrade = [
        "upgrade",
        "gamekeeper",
        &newer,
        "--namespace",
        SYSTEM,
        "--reset-then-reuse-values",
        "--wait",
        "--timeout=300s",
    ];
    plane.helm(&upgrade).await?;
    eventually("the new short name is served", LIMIT, async || {
        kubectl(&format!("get brandnew -n {GAMES}")).await
    })
    .await?;
    kubectl(&format!("scale gamedeployment --all -n {GAMES} --replicas=4")).await?;
    until_ready(plane, 4).await?;
    guard::ensure_guarded(plane).await?;
    let kept = trusted_certificates(plane, &operator).await?;
    ensure!(kept == certificates, "an upgrade changes the certificates");
    release::roll_back(plane).await?;
    guard::ensure_guarded(plane).await?;
    let kept = trusted_certificates(plane, &operator).await?;
    ensure!(kept == certificates, "a rollback changes the certificates");
    operator.terminate().await?;
    ensure_permitted(plane, &operator)?;
    let mut operator = leave_guards_out(plane, &upgrade, folder).await?;
    release::ensure_upgrade_restores_secret(plane, &operator, &upgrade).await?;
    guard::delete_workload(plane).await?;
    operator.terminate().await?;
    ensure_permitted(plane, &operator)?;

    plane.helm(&["uninstall", "gamekeeper", "--namespace", SYSTEM, "--wait"]).await?;
    kubectl("wait --for=condition=Established crd --all --timeout=300s").await?;
    let left = kubectl(
        "get clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,secrets,deployments,jobs,services,\
        priorityclasses,poddisruptionbudgets,networkpolicies,flowschemas,validatingadmissionpolicies,\
        validatingadmissionpolicybindings,validatingwebhookconfigurations,mutatingwebhookconfigurations \
        -A -l app.kubernetes.io/name=gamekeeper -o name",
    )
    .await?;
    ensure!(left.is_empty(), "uninstalling leaves {left}");
    let kept = kubectl(&format!("get gamedeployments -n {GAMES} -o jsonpath={{..uid}}")).await?;
    ensure!(kept == uid, "{uid} became {kept}");

    install_for_one_namespace(plane, folder).await?;
    // The same release may reuse the CRDs; another release must take ownership of them.
    plane.helm(&install).await?;
    plane.helm(&["uninstall", "gamekeeper", "--namespace", SYSTEM]).await?;
    let other = ["install", "other", CHART, "--namespace", SYSTEM];
    let error = plane.helm(&other).await;
    let error = error.err().map(|error| format!("{error:#}"));
    ensure!(error.as_ref().is_some_and(|it| it.contains("cannot be imported")), "{error:?}");
    // Helm before 3.17 cannot take ownership.
    let help = plane.helm(&["install", "--help"]).await?;
    if help.contains("--take-ownership") {
        plane.helm(&[other.as_slice(), &["--take-ownership"]].concat()).await?;
    }
    Ok(())
}

/// Upgrades the release so that it guards no pods, and back. Returns the running operator.
async fn leave_guards_out(
    plane: &ControlPlane,
    upgrade: &[&str],
    folder: &Path,
) -> Result<Operator> {
    let upgrade_with = async |value: &str| {
        plane.helm(&[upgrade, &["--set", value]].concat()).await?;
        let mut operator = Operator::installed(plane, SYSTEM, "gamekeeper", folder).await?;
        operator.start().await?;
        anyhow::Ok(operator)
    };
    let mut operator = upgrade_with("admission.guardedPods=false").await?;
    guard::ensure_left_out(plane).await?;
    operator.terminate().await?;
    ensure_permitted(plane, &operator)?;
    let operator = upgrade_with("admission.guardedPods=true").await?;
    guard::ensure_guarded(plane).await?;
    Ok(operator)
}

/// The webhook's Secret and CA bundle. Fails unless the operator serves a certificate that is trusted for
/// the Service.
pub async fn trusted_certificates(plane: &ControlPlane, operator: &Operator) -> Result<[Value; 2]> {
    let configuration = plane.get(&configuration_path("gamekeeper-webhook")).await?;
    let client_config = &configuration["webhooks"][0]["clientConfig"];
    let field = |name: &str| client_config["service"][name].as_str().unwrap_or_default();
    let host = format!("{}.{}.svc", field("name"), field("namespace"));
    ensure!(host == "gamekeeper-webhook.gamekeeper-system.svc", "{client_config:#}");
    tls_handshake(&configuration, operator.webhook_port()?, &host).await?;
    let secret = format!("/api/v1/namespaces/{SYSTEM}/secrets/gamekeeper-webhook");
    let data = plane.get(&secret).await?["data"].clone();
    ensure!(data["tls.key"].is_string(), "the Secret is empty");
    Ok([data, client_config["caBundle"].clone()])
}

/// Installs a release that watches only the namespace of the workloads, and uses the existing CRDs.
async fn install_for_one_namespace(plane: &ControlPlane, folder: &Path) -> Result<()> {
    let values = "crds.install=false,watchNamespace=games,\
        hooks.secrets[0].namespace=games,hooks.secrets[0].names={match-api}";
    let install = ["install", "keeper", CHART, "--namespace=team", "--set", values, "--wait"];
    plane.helm(&install).await?;
    let mut operator = Operator::installed(plane, "team", "keeper-gamekeeper", folder).await?;
    operator.start().await?;
    plane.kubectl(&["scale", "gamedeployment", "--all", "-n", GAMES, "--replicas=2"], "").await?;
    until_ready(plane, 2).await?;
    operator.terminate().await?;
    ensure_permitted(plane, &operator)?;

    for (verb, resource, namespace, allowed) in [
        ("get", "secrets/match-api", GAMES, true),
        ("get", "secrets/other", GAMES, false),
        ("list", "secrets", GAMES, false),
        ("list", "pods", GAMES, true),
        ("list", "pods", SYSTEM, false),
        ("delete", "persistentvolumeclaims", GAMES, false),
        ("create", "podtemplates", GAMES, true),
        ("update", "podtemplates", GAMES, false),
        ("create", "podtemplates", SYSTEM, false),
    ] {
        let name = operator.username();
        let request = ["auth", "can-i", verb, resource, "-n", namespace, "--as", &name];
        let is_permitted = plane.kubectl(&request, "").await.is_ok();
        ensure!(is_permitted == allowed, "{verb} {resource} in {namespace}: {is_permitted}");
    }
    plane.helm(&["uninstall", "keeper", "--namespace=team"]).await?;
    Ok(())
}

/// Waits with `kubectl wait` until the workloads have this many updated, ready pods and are Ready.
async fn until_ready(plane: &ControlPlane, replicas: u32) -> Result<()> {
    let counts = format!("--for=jsonpath={{.status.updatedReadyReplicas}}={replicas}");
    for condition in [counts.as_str(), "--for=condition=Ready"] {
        let wait = ["wait", "gamedeployment", "--all", "-n", GAMES, "--timeout=300s", condition];
        plane.kubectl(&wait, "").await?;
    }
    Ok(())
}

/// Checks that no write of an operator was refused because of a missing permission.
fn ensure_permitted(plane: &ControlPlane, operator: &Operator) -> Result<()> {
    for namespace in [GAMES, SYSTEM, "team", ""] {
        let mut events = plane.audit.writes(namespace)?;
        events.retain(|event| event.user.username == operator.username());
        let refused: Vec<_> = events.iter().filter_map(|it| it.missing_permission()).collect();
        ensure!(refused.is_empty(), "{refused:#?}");
    }
    Ok(())
}

/// A copy of the chart with a newer version, and a CRD with an additional short name.
async fn newer_chart(folder: &Path) -> Result<String> {
    let copy = folder.join("newer");
    let mut cp = Command::new("cp");
    cp.arg("-r").arg(repository().join(CHART)).arg(&copy);
    run(&mut cp, "").await?;
    for (file, old, new) in [
        ("Chart.yaml", "\nversion: 0.1.0\n", "\nversion: 0.1.1\n"),
        ("files/crds/gamedeployments.yaml", "    - gd\n", "    - gd\n    - brandnew\n"),
    ] {
        let text = std::fs::read_to_string(copy.join(file))?;
        ensure!(text.contains(old), "{file} has no {old:?}");
        std::fs::write(copy.join(file), text.replacen(old, new, 1))?;
    }
    Ok(copy.to_string_lossy().into_owned())
}

//! The page as a server in the cluster: visitors bring their own tokens.

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use e2e::browser::Browser;
use e2e::case::Case;
use e2e::cluster::chart::render;
use e2e::workload::GAME;
use e2e::workload::manifest::Game;
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{ensure_accessible, raw};

/// A running `gamekeeper view`, and its address.
async fn serve(case: &Case, args: &[&str]) -> Result<(Child, String)> {
    let config = std::fs::read_to_string(&case.plane().kubeconfig)?;
    let config: Value = serde_yaml_ng::from_str(&config)?;
    let cluster = &config["clusters"][0]["cluster"];
    let authority = case.folder().join("ca.crt");
    match cluster["certificate-authority-data"].as_str() {
        Some(data) => std::fs::write(&authority, BASE64_STANDARD.decode(data)?)?,
        None => {
            let file = cluster["certificate-authority"].as_str().context("no authority")?;
            std::fs::copy(file, &authority)?;
        }
    }
    let mut command = Command::new(case.operator.binary());
    command.args(["view", "--listen=127.0.0.1:0"]).args(args);
    command.arg(format!("--server={}", cluster["server"].as_str().context("no server")?));
    command.arg(format!("--certificate-authority={}", authority.display()));
    // It must not need anything of the machine.
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
    let line = lines.next_line().await?.context("it printed nothing")?;
    let address = line.strip_prefix("serving the page on ").context("no address")?;
    Ok((child, format!("http://{}", address.replace("127.0.0.1", "localhost"))))
}

/// A token of a service account that may view, and update workloads, in the namespace. It belongs to another one: the judge
/// takes the accounts of a test's namespace for operators.
async fn token(case: &Case) -> Result<String> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "visitor"},
        "rules": [
            {"apiGroups": ["tkex.tencent.com"], "resources": ["*"], "verbs": ["get", "list", "watch", "patch"]},
            {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": ["apps"], "resources": ["controllerrevisions"], "verbs": ["get", "list", "watch"]},
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "visitor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "visitor"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "kube-public"}],
    });
    case.apply(role).await?;
    case.apply(binding).await?;
    Ok(case
        .kubectl(&["create", "token", "default", "--namespace=kube-public"])
        .await?
        .trim()
        .to_owned())
}

#[e2e::test]
async fn a_visitor_brings_a_token(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2).steps(json!([{"partition": 1}, {"pause": {}}]))).await?;
    case.until_settled(2).await?;
    case.set_image("game:v2").await?;
    case.until("the step pauses", |view| view.is_paused()).await?;
    let token = token(case).await?;
    let (_server, origin) = serve(case, &[]).await?;
    let host = origin.strip_prefix("http://").context("no host")?;
    let resume = format!("POST /api/workload/{}/gd/{GAME}", case.namespace);
    let body = json!({"verb": "resume"}).to_string();
    let bearer = format!("Bearer {token}");
    // A proxy in front of the server may set the token. Without one, and from another site, nothing is shown.
    for (headers, request, expected) in [
        (&[("Host", host)][..], "GET /api/fleet", 403),
        (&[("Host", host), ("Authorization", &bearer)], "GET /api/session", 204),
        (
            &[("Host", host), ("Authorization", &bearer), ("Origin", "https://game.example")],
            "GET /api/session",
            403,
        ),
        (
            &[("Host", host), ("Authorization", &bearer), ("Content-Type", "application/json")],
            &resume,
            403,
        ),
        // Changes are switched off.
        (
            &[
                ("Host", host),
                ("Authorization", &bearer),
                ("Origin", &origin),
                ("Content-Type", "application/json"),
            ],
            &resume,
            409,
        ),
    ] {
        let (code, response) = raw(&origin, request, headers, &body).await?;
        ensure!(code == expected, "{request} {headers:?}: {response}");
    }
    ensure!(case.view().await?.is_paused(), "it was resumed");
    let Some(browser) = Browser::start().await? else {
        return Ok(());
    };
    let tab = browser.open(&format!("{origin}/{}/gd/{GAME}", case.namespace)).await?;
    tab.until_shown("h1", "Who are you?").await?;
    ensure_accessible(&tab, "the question for a token").await?;
    let enter = async |text: &str| {
        tab.evaluate(&format!("document.querySelector('#token').value = {}", json!(text))).await?;
        tab.click("form.token button", "Show the page").await
    };
    enter("not.a.token").await?;
    tab.until_shown(".refusal", "the API server does not accept this token").await?;
    enter(&token).await?;
    tab.until_shown(".verdict .badge", "Paused").await?;
    ensure!(tab.count(".actions button").await? == 0, "{}", tab.text(".actions").await?);
    // Its own role holds in one namespace only.
    tab.visit(&format!("{origin}/?namespace={}", case.namespace)).await?;
    tab.until_shown("tbody tr", "Paused").await?;
    // With actions, as far as the role goes.
    let (_server, origin) = serve(case, &["--actions"]).await?;
    tab.visit(&format!("{origin}/{}/gd/{GAME}", case.namespace)).await?;
    tab.until("the page is current", "document.querySelector('.connection.live')").await?;
    tab.click(".actions button", "Resume").await?;
    tab.click("dialog .primary", "Resume").await?;
    tab.until_shown(".outcome", "resumed").await?;
    case.until_settled(2).await?;
    tab.until_shown(".verdict .badge", "Complete").await
}

#[e2e::test]
async fn the_chart_adds_the_page_only_on_request(case: &mut Case) -> Result<()> {
    let plane = case.plane();
    let without = render(&plane.helm, &[]).await?;
    let with = render(&plane.helm, &["--set=view.enabled=true"]).await?;
    let added: Vec<&Value> = with.iter().filter(|object| !without.contains(object)).collect();
    let kinds: Vec<&str> = added.iter().filter_map(|object| object["kind"].as_str()).collect();
    ensure!(kinds == ["Service", "Deployment"] || kinds == ["Deployment", "Service"], "{added:#?}");
    ensure!(
        without.iter().all(|object| with.contains(object)),
        "view.enabled changes other objects"
    );
    let deployment = added.iter().find(|it| it["kind"] == "Deployment").context("no Deployment")?;
    let pod = &deployment["spec"]["template"]["spec"];
    ensure!(pod["automountServiceAccountToken"] == false, "{pod:#}");
    ensure!(pod["serviceAccountName"].is_null(), "{pod:#}");
    let args = pod["containers"][0]["args"].to_string();
    ensure!(args.contains("\"view\"") && !args.contains("--actions"), "{args}");
    let with = render(&plane.helm, &["--set=view.enabled=true,view.actions=true"]).await?;
    ensure!(with.iter().any(|it| it.to_string().contains("\"--actions\"")), "no --actions");
    // The API server accepts both.
    for object in added {
        let dry_run = ["create", "--dry-run=server", "-o=name", "-f", "-"];
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(case.namespace);
        case.kubectl_with(&dry_run, &object.to_string()).await?;
    }
    Ok(())
}

//! Who may use the server of the page, and for what.

use anyhow::{Context, Result, ensure};
use e2e::browser::{Browser, PageServer};
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::Game;
use serde_json::json;

use super::raw;

const COMMANDS: &str = "application/json";

/// Every address of the server, as method and path.
fn addresses(namespace: &str) -> Vec<String> {
    let workload = format!("/api/workload/{namespace}/gd/{GAME}");
    vec![
        "GET /".to_owned(),
        format!("GET /{namespace}/gd/{GAME}"),
        "GET /scs/x".to_owned(),
        "GET /app/app.js".to_owned(),
        "GET /app/app.css".to_owned(),
        "POST /session".to_owned(),
        "GET /api/session".to_owned(),
        "GET /api/fleet".to_owned(),
        format!("GET {workload}"),
        format!("GET {workload}/differences?from=1&to=2"),
        format!("POST {workload}"),
    ]
}

#[e2e::test]
async fn other_sites_and_other_hosts_get_nothing(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    let server = PageServer::start(case, &[]).await?;
    let origin = server.origin()?;
    let host = origin.strip_prefix("http://").context("no host")?;
    let entry = json!({"token": server.token()?}).to_string();
    let own = [("Host", host), ("Origin", origin), ("Content-Type", COMMANDS)];
    let (code, response) = raw(origin, "POST /session", &own, &entry).await?;
    ensure!(code == 204, "{response}");
    let cookie = response.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.context("no cookie")?;
    ensure!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().context("no cookie")?;
    let port = host.split_once(':').context("no port")?.1;
    let other_name = format!("game.example:{port}");
    let body = json!({"verb": "pause"}).to_string();
    for address in addresses(&case.namespace) {
        // With everything but the right place.
        for headers in [
            &[("Host", other_name.as_str()), ("Cookie", cookie), ("Content-Type", COMMANDS)][..],
            &[("Host", "127.0.0.1"), ("Cookie", cookie), ("Content-Type", COMMANDS)],
            &[
                ("Host", host),
                ("Origin", "https://game.example"),
                ("Cookie", cookie),
                ("Content-Type", COMMANDS),
            ],
            &[
                ("Host", host),
                ("Origin", "http://127.0.0.1:1"),
                ("Cookie", cookie),
                ("Content-Type", COMMANDS),
            ],
            &[("Host", host), ("Origin", "null"), ("Cookie", cookie), ("Content-Type", COMMANDS)],
            &[
                ("Host", host),
                ("Sec-Fetch-Site", "same-site"),
                ("Cookie", cookie),
                ("Content-Type", COMMANDS),
            ],
        ] {
            let (code, response) = raw(origin, &address, headers, &body).await?;
            ensure!(code == 403, "{address} {headers:?}: {response}");
            ensure!(response.contains("default-src 'none'"), "{address}: {response}");
        }
        // Without a session, or with another one.
        if address.contains(" /api/") {
            for other in ["", "gamekeeper-view=1", &format!("gamekeeper-view-{port}=0")] {
                let headers = [
                    ("Host", host),
                    ("Origin", origin),
                    ("Cookie", other),
                    ("Content-Type", COMMANDS),
                ];
                let (code, response) = raw(origin, &address, &headers, &body).await?;
                ensure!(code == 403, "{address} {other}: {response}");
            }
        }
    }
    let found = case.view().await?;
    ensure!(found.game["spec"]["updateStrategy"]["paused"] != true, "a request has paused it");
    // The same request from the right place.
    let own = [("Host", host), ("Origin", origin), ("Cookie", cookie), ("Content-Type", COMMANDS)];
    let (code, response) =
        raw(origin, addresses(&case.namespace).last().context("none")?, &own, &body).await?;
    ensure!(code == 200, "{response}");
    case.until("it is paused", |view| view.game["spec"]["updateStrategy"]["paused"] == true)
        .await?;
    Ok(())
}

#[e2e::test]
async fn a_token_opens_one_session(case: &mut Case) -> Result<()> {
    let server = PageServer::start(case, &[]).await?;
    let origin = server.origin()?.to_owned();
    let Some(browser) = Browser::start().await? else {
        return Ok(());
    };
    let missing = browser.open(&origin).await?;
    missing.until_shown("main", "This browser has no session with the server.").await?;
    let wrong = browser.open(&format!("{origin}/#token=0123")).await?;
    wrong.until_shown("main", "The token in the address is wrong.").await?;
    let right = browser.open(&server.address).await?;
    right.until("the page is current", "document.querySelector('.connection.live')").await?;
    let address = right.evaluate("location.href").await?;
    ensure!(address == format!("{origin}/").as_str(), "the token stays in the address: {address}");
    let cookies = right.evaluate("document.cookie").await?;
    ensure!(cookies == "", "scripts can read the cookie: {cookies}");
    // The session goes on after the page is loaded again, also from the address that was printed.
    right.visit("about:blank").await?;
    right.visit(&server.address).await?;
    right.until("the page is current", "document.querySelector('.connection.live')").await?;
    let replayed = browser.open(&server.address).await?;
    replayed.until_shown("main", "The address was used before, and works only once.").await?;
    ensure!(replayed.count("game-fleet").await? == 0, "a replayed token opens the page");
    Ok(())
}

#[e2e::test]
async fn who_may_only_view_changes_nothing(case: &mut Case) -> Result<()> {
    let rules = json!([
        {"apiGroups": ["tkex.tencent.com"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["apps"], "resources": ["controllerrevisions"], "verbs": ["get", "list", "watch"]},
    ]);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "viewer"}, "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer"},
        "subjects": [{"kind": "User", "name": "viewer", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    case.apply(role).await?;
    case.apply(binding).await?;
    let steps = json!([{"partition": 1}, {"pause": {}}]);
    case.apply(Game::in_place(2).steps(steps)).await?;
    case.until_settled(2).await?;
    case.set_image("game:v2").await?;
    let before = case.until("the step pauses", |view| view.is_paused()).await?;
    let server = PageServer::start(case, &[GAME, "--as=viewer"]).await?;
    let Some((_browser, tab)) = server.browse().await? else {
        return Ok(());
    };
    tab.until_shown(".verdict .badge", "Paused").await?;
    tab.until("there are tiles", "document.querySelectorAll('.tile').length === 2").await?;
    ensure!(tab.count(".actions button").await? == 0, "{}", tab.text(".actions").await?);
    tab.click(".tile", "R").await?;
    tab.until_shown(".podline", "1/1 ready").await?;
    ensure!(tab.count(".podline .buttons button").await? == 0, "{}", tab.text(".podline").await?);
    ensure!(tab.count("#revisions .buttons button").await? == 0, "undo is offered");
    // What the page does not offer, the API server refuses.
    let pod = before.pod_names()[0];
    for action in [
        json!({"verb": "resume"}),
        json!({"verb": "promote"}),
        json!({"verb": "promote-fully"}),
        json!({"verb": "undo", "revision": 1}),
        json!({"verb": "scale", "replicas": 0}),
        json!({"verb": "move", "pod": pod}),
    ] {
        let script = format!(
            "fetch('/api/workload' + location.pathname, {{method: 'POST', \
             headers: {{'content-type': 'application/json'}}, body: JSON.stringify({action})}})\
             .then(async (it) => [it.status, (await it.json()).error])"
        );
        let answer = tab.evaluate(&script).await?;
        ensure!(answer[0] == 403, "{action}: {answer}");
        let why = answer[1].as_str().unwrap_or_default();
        ensure!(why.contains("User \"viewer\" cannot patch"), "{action}: {answer}");
    }
    // These make no sense now, whatever the visitor's permissions are.
    for action in
        [json!({"verb": "pause"}), json!({"verb": "retry"}), json!({"verb": "release", "pod": pod})]
    {
        let script = format!(
            "fetch('/api/workload' + location.pathname, {{method: 'POST', \
             headers: {{'content-type': 'application/json'}}, body: JSON.stringify({action})}}).then((it) => it.status)"
        );
        let code = tab.evaluate(&script).await?;
        ensure!(code == 409, "{action}: {code}");
    }
    let after = case.view().await?;
    ensure!(after.game["spec"] == before.game["spec"], "the workload has changed");
    tab.ensure_no_errors(&["status of 403", "status of 409"])
}

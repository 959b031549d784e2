//! What a person does with the page.

use anyhow::{Result, ensure};
use e2e::browser::PageServer;
use e2e::case::Case;
use e2e::cluster::link::Link;
use e2e::servers::hook_server::Answer;
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template};
use e2e::workload::view::View;
use serde_json::json;

use super::{ensure_accessible, looks};
use crate::guard_nodes::preferring;
use crate::guard_setup::{allowing_answer, apply_guarded, create_node};

#[e2e::test]
async fn a_canary_is_resumed_with_the_keyboard(case: &mut Case) -> Result<()> {
    let steps =
        json!([{"partition": 3}, {"pause": {}}, {"partition": 2}, {"pause": {"duration": 2}}]);
    case.apply(Game::in_place(4).steps(steps)).await?;
    case.apply(Game::in_place(3).named("lobby")).await?;
    case.until_settled(4).await?;
    let server = PageServer::start(case, &["-n", &case.namespace]).await?;
    let Some((_browser, tab)) = server.browse().await? else {
        return Ok(());
    };
    tab.until_shown("tbody tr", "Complete").await?;
    ensure_accessible(&tab, "a complete fleet").await?;
    case.set_image("game:v2").await?;
    tab.until_shown("tbody tr", "canary step 1 is paused until resumed").await?;
    tab.until_shown("#summary", "1 of them needs a person").await?;
    looks::take(&tab, "fleet").await?;
    tab.tab_to(GAME).await?;
    tab.press("Enter").await?;
    tab.until_shown(".verdict .badge", "Paused").await?;
    tab.until_shown(".track .current", "pause").await?;
    tab.until(
        "the updated pod is in its group",
        "document.querySelectorAll('.group').length === 2",
    )
    .await?;
    tab.until_shown(
        ".command code",
        &format!("kubectl game resume gd/{GAME} -n {}", case.namespace),
    )
    .await?;
    tab.until_shown("#revisions .compare tbody", "game:v2").await?;
    ensure_accessible(&tab, "a paused canary").await?;
    looks::take(&tab, "canary").await?;
    // Tiles are one stop for Tab; arrow keys move between them.
    tab.tab_to(": ready").await?;
    let focused = "document.activeElement.dataset.pod";
    let first = tab.evaluate(focused).await?;
    tab.press("End").await?;
    let last = tab.evaluate(focused).await?;
    ensure!(first != last, "End does not move: {first}");
    tab.press("Home").await?;
    tab.press("ArrowRight").await?;
    tab.press("ArrowLeft").await?;
    ensure!(tab.evaluate(focused).await? == first, "the arrow keys do not lead back");
    tab.press("Enter").await?;
    tab.until_shown(".podline", "1/1 ready").await?;
    ensure_accessible(&tab, "the line of a pod").await?;
    tab.evaluate("document.body.focus(); document.querySelector('.skip').focus()").await?;
    tab.tab_to("Resume").await?;
    tab.press("Enter").await?;
    tab.until_shown("dialog", &format!("kubectl game resume gd/{GAME} -n {}", case.namespace))
        .await?;
    ensure_accessible(&tab, "a dialog").await?;
    tab.press("Escape").await?;
    tab.until("the dialog is closed", "!document.querySelector('dialog')").await?;
    ensure!(case.view().await?.is_paused(), "Escape has resumed it");
    tab.press("Enter").await?;
    tab.until_shown("dialog", "Resume?").await?;
    tab.press("Enter").await?;
    tab.until_shown(".outcome", "resumed").await?;
    case.until_settled(4).await?;
    tab.until_shown(".verdict", "rollout complete: 4 of 4 pods are available").await?;
    tab.until(
        "it was said",
        "document.querySelector('#announcer').textContent.includes('Complete')",
    )
    .await?;
    tab.until("one group is left", "document.querySelectorAll('.group').length === 1").await?;
    // The view as a table shows the same.
    tab.click(".switch", "As a table").await?;
    ensure!(tab.count(".group tbody tr").await? == 4, "{}", tab.text(".groups").await?);
    ensure_accessible(&tab, "the table of pods").await?;
    tab.ensure_no_errors(&[])
}

#[e2e::test]
async fn a_blocked_hook_is_retried(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::in_place(6).pre_delete("test")).await?;
    case.until_settled(6).await?;
    case.scale(4).await?;
    case.until("two pods are blocked", |view| view.hook_conditions("preDelete").len() == 2).await?;
    let server = PageServer::start(case, &[GAME]).await?;
    let Some((_browser, tab)) = server.browse().await? else {
        return Ok(());
    };
    tab.until_shown(".cause", "You act").await?;
    tab.until_shown(".cause", "2 pods").await?;
    tab.until("two tiles are blocked", "document.querySelectorAll('.tile.s-B').length === 2")
        .await?;
    tab.until_shown(".run", "result is 10").await?;
    ensure_accessible(&tab, "a blocked workload").await?;
    looks::take(&tab, "blocked").await?;
    // The cause is a filter of the tiles.
    tab.click(".cause", "You act").await?;
    let visible =
        "[...document.querySelectorAll('.tile')].filter((it) => it.checkVisibility()).length";
    tab.until("only its pods are shown", &format!("{visible} === 2")).await?;
    ensure_accessible(&tab, "a selected cause").await?;
    tab.click(".cause", "You act").await?;
    tab.until("all pods are shown", &format!("{visible} === 6")).await?;
    tab.click(".legend .filter", "ready").await?;
    tab.until("only ready pods are shown", &format!("{visible} === 4")).await?;
    case.hooks.answer("/", allowing_answer());
    tab.click(".actions button", "Retry hooks").await?;
    tab.click("dialog .primary", "Retry hooks").await?;
    tab.until_shown(".outcome", "retried: 2 PreDelete hooks").await?;
    tab.until_shown(".verdict", "rollout complete: 4 of 4 pods are available").await?;
    case.until_settled(4).await?;
    tab.ensure_no_errors(&[])
}

#[e2e::test]
async fn a_guarded_pod_waits_and_is_released(case: &mut Case) -> Result<()> {
    let view = apply_guarded(case, Game::in_place(3), 3).await?;
    let pod = view.pod_names()[0].to_owned();
    let server = PageServer::start(case, &["-n", &case.namespace]).await?;
    let Some((_browser, tab)) = server.browse().await? else {
        return Ok(());
    };
    tab.until_shown("tbody .guarded", "3").await?;
    tab.click("tbody a", GAME).await?;
    tab.until("all are guarded", "document.querySelectorAll('.tile.guarded').length === 3").await?;
    let tile = format!(".tile[data-pod='{pod}']");
    tab.click(&tile, "R").await?;
    tab.click(".podline .buttons button", "Move").await?;
    tab.click("dialog .primary", "Move").await?;
    tab.until_shown(".outcome", &format!("pod/{pod} will be moved")).await?;
    tab.until("its hook refuses", &format!("document.querySelector(`{tile}.s-W`)")).await?;
    tab.until_shown(".cause", "The game acts").await?;
    tab.click(".podline .buttons button", "Release").await?;
    tab.until_shown("dialog", "a match on it may end").await?;
    tab.click("dialog .primary", "Release").await?;
    tab.until_shown(".outcome", &format!("pod/{pod} released")).await?;
    tab.until("it was replaced", &format!("!document.querySelector(`{tile}`)")).await?;
    tab.ensure_no_errors(&[])
}

#[e2e::test]
async fn a_drain_waits_for_guarded_pods(case: &mut Case) -> Result<()> {
    let node = create_node(case).await?;
    apply_guarded(case, preferring(&node, case, Game::rolling(2).max_unavailable(1)), 2).await?;
    let server = PageServer::start(case, &[GAME]).await?;
    let Some((_browser, tab)) = server.browse().await? else {
        return Ok(());
    };
    tab.until_shown(".verdict .badge", "Complete").await?;
    let error = case.refused(&["drain", &node, "--timeout=1s"], "").await?;
    ensure!(error.contains("disruption budget"), "{error}");
    tab.until_shown(".cause", &format!("node {node} is going to be removed")).await?;
    tab.until_shown(".cause", "2 pods").await?;
    tab.until_shown(".command code", &format!("kubectl game move node/{node} -A")).await?;
    ensure_accessible(&tab, "a drain that waits").await?;
    case.hooks.answer("/", allowing_answer());
    case.game(&["move", &format!("node/{node}"), "-A"]).await?;
    case.kubectl(&["drain", &node, "--timeout=300s"]).await?;
    tab.until("the cause is gone", "document.querySelector('#waits').hidden").await?;
    case.kubectl(&["delete", "node", &node]).await?;
    tab.ensure_no_errors(&[])
}

#[e2e::test]
async fn a_match_that_was_ended_is_told(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(2), 2).await?;
    let view = case.until_settled(2).await?;
    let pod = view.pod_names()[0];
    let server = PageServer::start(case, &["-n", &case.namespace]).await?;
    let Some((_browser, tab)) = server.browse().await? else {
        return Ok(());
    };
    tab.until("no match was ended", "document.querySelector('#ended').hidden").await?;
    let target =
        json!({"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"});
    let patch = format!("-p={}", json!({"status": {"conditions": [target]}}));
    case.kubectl(&["patch", "pod", pod, "--subresource=status", &patch]).await?;
    case.end_pod(pod, "Failed").await?;
    tab.until_shown("#ended", &format!("the match on pod {pod} was ended by its kubelet")).await?;
    ensure_accessible(&tab, "a match that was ended").await?;
    tab.click("#ended a", GAME).await?;
    tab.until_shown("#events", "MatchEnded").await?;
    tab.ensure_no_errors(&[])
}

#[e2e::test]
async fn a_lost_connection_is_shown_and_comes_back(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2).steps(json!([{"partition": 1}, {"pause": {}}]))).await?;
    case.until_settled(2).await?;
    let link = Link::to(case.plane()).await?;
    let config = crate::plugin::kubeconfig(case, "through-link", |config| {
        config["clusters"][0]["cluster"]["server"] = json!(link.url());
    })?;
    let mut command = case.kubectl_command(&["game", "view", "--no-open", GAME]).await?;
    command.env("KUBECONFIG", &config);
    let server = PageServer::run(command).await?;
    let Some((_browser, tab)) = server.browse().await? else {
        return Ok(());
    };
    tab.until_shown(".verdict .badge", "Complete").await?;
    link.cut();
    tab.until_shown("#banner", "No connection since").await?;
    tab.until("ages are gray", "document.documentElement.classList.contains('stale')").await?;
    tab.until_shown(".connection", "not current").await?;
    ensure_accessible(&tab, "a lost connection").await?;
    let age = tab.text(".revision time").await?;
    case.set_image("game:v2").await?;
    case.until("the step pauses", View::is_paused).await?;
    ensure!(tab.text(".revision time").await? == age, "ages go on");
    link.restore();
    tab.until_shown(".verdict .badge", "Paused").await?;
    tab.until("the banner is gone", "document.querySelector('#banner').hidden").await?;
    tab.until_shown(".connection", "live").await?;
    tab.ensure_no_errors(&[])?;
    // The server itself ends.
    drop(server);
    tab.until_shown("#banner", "No connection since").await
}

#[e2e::test]
async fn text_of_tenants_is_only_text(case: &mut Case) -> Result<()> {
    let evil = "<img src=x onerror=alert(1)>\u{202e}desrever\u{1b}[2J<script>alert(2)</script>";
    case.hooks.answer("/", Answer::Json(json!({"age": evil})));
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    let game = Game::in_place(2).pre_delete("test");
    let game = game
        .set("/spec/template/metadata/annotations", json!({"kubernetes.io/change-cause": evil}));
    case.apply(game).await?;
    let view = case.until_settled(2).await?;
    case.scale(1).await?;
    case.until("a pod is blocked", |view| view.hook_conditions("preDelete").len() == 1).await?;
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "evil"}, "type": "Warning",
        "reason": "Evil", "message": evil,
        "involvedObject": {
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment", "name": GAME,
            "namespace": case.namespace, "uid": view.game["metadata"]["uid"],
        },
    });
    case.apply(event).await?;
    let server = PageServer::start(case, &[GAME]).await?;
    let Some((_browser, tab)) = server.browse().await? else {
        return Ok(());
    };
    tab.until_shown(".timeline", "<img src=x onerror=alert(1)>").await?;
    tab.until_shown(".cause", "<img").await?;
    for element in ["main img", "main script"] {
        ensure!(tab.count(element).await? == 0, "{element} was made from text");
    }
    let text = tab.text("main").await?;
    let is_hidden = |it: char| {
        it.is_control() && it != '\n' && it != '\t' || ('\u{202a}'..='\u{202e}').contains(&it)
    };
    let found = text.chars().find(|it| is_hidden(*it));
    ensure!(found.is_none(), "{found:?} in {text:?}");
    ensure!(text.contains("\\u{202e}"), "{text}");
    ensure_accessible(&tab, "hostile text").await?;
    // Not even a script of the page could make an element from text.
    let refused = tab.evaluate("(() => { try { document.body.innerHTML = '<b>'; return false; } catch { return true; } })()");
    ensure!(refused.await? == true, "trusted types are not required");
    tab.ensure_no_errors(&["TrustedHTML"])
}

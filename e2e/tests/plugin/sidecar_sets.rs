//! `kubectl game` for SidecarSets: the progress of an update, the pods that wait, and those that were left out.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::process::command::run;
use e2e::servers::hook_server::Answer;
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::follow::RunningCommand;
use super::{check_contains, exits_with, fails_with, line};
use crate::sidecars::{log, name, read, remove, set, until_shown};
use judge::object::text;

#[e2e::test]
async fn an_update_of_a_set_is_followed_until_it_is_complete(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 12})));
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(set(case, log())).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    case.apply(Game::in_place(2).pre_inplace("test")).await?;
    case.until_settled(2).await?;
    let before = until_shown(case, [2, 2, 2, 0]).await?;
    let old = text(&before, "/status/latestRevision").to_owned();
    let (name, short) = (name(case), format!("scs/{}", name(case)));
    let printed = exits_with(case, 0, &["status", &short]).await?;
    ensure!(
        printed == format!("{short}: Complete: 2 of 2 pods have the newest containers\n"),
        "{printed}"
    );

    let mut command = case.kubectl_command(&["game", "tree", &short, "-w"]).await?;
    let mut tree = RunningCommand::start(&mut command)?;
    tree.until_printed("2 of 2 pods have the newest containers").await?;
    let changed = exits_with(case, 0, &["set", "image", &short, "log=log:1.1"]).await?;
    check_contains(&changed, &["image updated"])?;
    tree.until_printed("has held a token for").await?;
    // The token moves from pod to pod while the hook fails.
    let (pod, new) = case
        .eventually("the tree shows the pod with the token", async || {
            let new = text(&read(case).await?, "/status/latestRevision").to_owned();
            let printed = exits_with(case, 0, &["tree", &short]).await?;
            let words = format!("at {old}, has held a token for ");
            let with_token = printed.lines().find(|line| line.contains(&words));
            ensure!(old != new && with_token.is_some(), "{old} {printed}");
            let pod = with_token.unwrap_or_default();
            let pod = pod.trim_start_matches(['|', '`', '-', ' ']);
            let pod = pod.split_whitespace().next().unwrap_or_default();
            let workload = line(&printed, &format!("{}/{GAME}", case.namespace))?.join(" ");
            check_contains(
                &workload,
                &["GameDeployment", "0 of 2 pods have the newest containers"],
            )?;
            let game_tree = exits_with(case, 0, &["tree", GAME]).await?;
            let shown = line(&game_tree, pod)?.join(" ");
            check_contains(&shown, &[&format!("sidecars of {name} awaiting an update for ")])?;
            Ok((pod.to_owned(), new))
        })
        .await?;
    ensure!(pod.starts_with(GAME), "{pod}");
    let printed = exits_with(case, 3, &["status", &short]).await?;
    check_contains(&printed, &["0 of 2 pods have the newest containers"])?;

    let paused = exits_with(case, 0, &["pause", &short]).await?;
    ensure!(paused == format!("sidecarset.tkex.tencent.com/{name} paused\n"), "{paused}");
    let printed = exits_with(case, 2, &["status", &short, "--watch", "--timeout", "300s"]).await?;
    check_contains(&printed, &[": Paused: 0 of 2 pods", "continue with: kubectl game resume"])?;
    fails_with(case, &["pause", &short], "is already paused").await?;
    case.hooks.answer("/", Answer::Json(json!({"age": 45})));
    let resumed = exits_with(case, 0, &["resume", &short, "-o", "json"]).await?;
    let resumed: Value = serde_json::from_str(&resumed)?;
    ensure!(resumed["spec"]["updateStrategy"]["paused"] == false, "{resumed}");
    let printed = exits_with(case, 0, &["status", &short, "--watch", "--timeout", "300s"]).await?;
    check_contains(&printed, &[": Complete: 2 of 2 pods have the newest containers"])?;
    tree.until_printed(&format!("at {new} (newest)")).await?;
    let printed = exits_with(case, 0, &["tree", &short]).await?;
    ensure!(printed.matches("(newest)").count() == 2, "{printed}");
    ensure!(!printed.contains("token"), "{printed}");
    let game_tree = exits_with(case, 0, &["tree", GAME]).await?;
    ensure!(!game_tree.contains("sidecars of"), "{game_tree}");
    remove(case).await
}

#[e2e::test]
async fn a_pod_that_was_left_out_is_shown_with_the_reason(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    let old = case.until_settled(1).await?;
    // Times of creation are whole seconds, and the pod must be older than the set.
    let created: Timestamp = text(&old.pods[0].0, "/metadata/creationTimestamp").parse()?;
    case.eventually("the second of the pod's creation is over", async || {
        let now = Timestamp::now();
        ensure!(now.as_second() > created.as_second(), "{now}");
        Ok(())
    })
    .await?;
    case.apply(set(case, json!([{"name": "game", "image": "log:1.0"}]))).await?;
    until_shown(case, [0, 0, 0, 1]).await?;
    case.scale(2).await?;
    case.until_settled(2).await?;
    until_shown(case, [0, 0, 0, 2]).await?;
    let short = format!("scs/{}", name(case));
    let reason = "the pod has another container \"game\"; rename one of the two";
    let printed = exits_with(case, 0, &["tree", &short]).await?;
    let injecting = line(&printed, "Injecting:")?.join(" ");
    ensure!(injecting.starts_with("Injecting: Clash for "), "{printed}");
    check_contains(&printed, &["Ready:      NotInjected for ", &format!("left out: {reason}")])?;
    let old_pod = line(&printed, old.pods[0].name())?.join(" ");
    check_contains(&old_pod, &["not injected: the pod is older than the set"])?;
    check_contains(
        &exits_with(case, 0, &["tree", GAME]).await?,
        &[&format!("without the sidecars of {}: the pod has", name(case))],
    )?;
    let printed = exits_with(case, 2, &["status", &short]).await?;
    check_contains(&printed, &[": Blocked: 0 of 0 pods", "; left out of", reason])?;
    remove(case).await
}

#[e2e::test]
async fn sets_are_found_by_all_names_of_their_kind(case: &mut Case) -> Result<()> {
    case.apply(set(case, log())).await?;
    let shown = until_shown(case, [0, 0, 0, 0]).await?;
    let name = name(case);
    let full = format!("sidecarset.tkex.tencent.com/{name}");
    for kind in ["scs", "sidecarset", "sidecarsets", "SidecarSet.tkex.tencent.com"] {
        let table = exits_with(case, 0, &["get", kind]).await?;
        let found = line(&table, &format!("scs/{name}"))?;
        let revision = text(&shown, "/status/latestRevision");
        ensure!(found[1..8] == ["Complete", "0", "0", "0", "0", "0", revision], "{table}");
        for words in [vec![format!("{kind}/{name}")], vec![kind.to_owned(), name.clone()]] {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let found =
                exits_with(case, 0, &[&["get"], &words[..], &["-o", "name"]].concat()).await?;
            ensure!(found == format!("{full}\n"), "{found}");
            exits_with(case, 0, &[&["status"], &words[..]].concat()).await?;
            check_contains(
                &exits_with(case, 0, &[&["tree"], &words[..]].concat()).await?,
                &[&full],
            )?;
        }
    }
    let object: Value =
        serde_json::from_str(&exits_with(case, 0, &["get", "scs", &name, "-o", "json"]).await?)?;
    let kubectl: Value =
        serde_json::from_str(&case.kubectl(&["get", "scs", &name, "-o", "json"]).await?)?;
    ensure!(object == kubectl, "{object:#} instead of {kubectl:#}");
    let none = exits_with(case, 0, &["get", "scs", "-l", "no=such", "-o", "name"]).await?;
    ensure!(none.is_empty(), "{none}");

    let misspelled = format!("scs/{}x", &name);
    fails_with(case, &["tree", &misspelled], &format!("did you mean scs/{name}?")).await?;
    fails_with(case, &["status", &name], &format!("did you mean scs/{name}?")).await?;
    let supported = "a SidecarSet supports only get, status, tree, history, pause, resume and undo";
    fails_with(case, &["promote", &format!("scs/{name}")], supported).await?;
    for kind in ["scs", "sidecarset", "sidecarsets"] {
        let typed = format!("{kind}/{}", &name[..5]);
        let words = ["__complete", "game", "tree", &typed];
        let completed = run(&mut case.kubectl_command(&words).await?, "").await?;
        check_contains(&completed, &[&format!("{kind}/{name}\n")])?;
    }
    remove(case).await
}

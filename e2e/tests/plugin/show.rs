//! What `kubectl game` prints about workloads, mistakes and its own usage.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::process::command::{CommandOutput, run, run_unchecked};
use e2e::workload::manifest::Game;
use e2e::workload::view::View;
use e2e::workload::{GAME, SET};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{check_contains, exits_with, fails_with, status};

#[e2e::test]
async fn a_pause_of_a_complete_workload_is_shown(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    let paused = case.game(&["pause", GAME]).await?;
    ensure!(
        paused.code == 0 && paused.stderr.contains("the next change to the template waits"),
        "{paused:?}"
    );
    let pause_note =
        "also: paused by a user (spec.updateStrategy.paused is true): the next template change";
    check_contains(&status(case, 0, GAME).await?, &["Complete: ", pause_note])?;
    check_contains(&exits_with(case, 0, &["tree", GAME]).await?, &[pause_note, "Complete,Paused"])?;
    check_contains(&exits_with(case, 0, &["get"]).await?, &["Complete,Paused"])?;
    exits_with(case, 0, &["resume", GAME]).await?;
    let printed = status(case, 0, GAME).await?;
    ensure!(!printed.contains("aused"), "{printed}");
    Ok(())
}

#[e2e::test]
async fn a_refused_template_is_reported(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    case.patch(
        &case.workload(),
        json!([{"op": "add", "path": "/spec/template/spec/hostname", "value": "other"}]),
    )
    .await?;
    let printed = status(case, 2, GAME).await?;
    check_contains(&printed, &["Blocked: the update is blocked (NotInPlace)"])
}

#[e2e::test]
async fn workloads_are_printed_as_kubectl_prints_them(case: &mut Case) -> Result<()> {
    let CommandOutput { code, stdout, stderr } = case.game(&["get"]).await?;
    let no_resources = format!("No resources found in {} namespace.\n", case.namespace);
    ensure!(
        (code, stdout.as_str(), stderr.as_str()) == (0, "", no_resources.as_str()),
        "{code} {stdout} {stderr}"
    );
    case.apply(Game::in_place(1)).await?;
    case.apply(Game::parallel(1)).await?;
    case.until_settled(1).await?;
    case.eventually("both workloads have a revision", async || {
        let revisions = case.list("controllerrevisions").await?;
        ensure!(revisions.len() == 2, "{} revisions", revisions.len());
        Ok(())
    })
    .await?;
    let object: Value =
        serde_json::from_str(&exits_with(case, 0, &["get", GAME, "-o", "json"]).await?)?;
    let kubectl: Value =
        serde_json::from_str(&case.kubectl(&["get", "gd", GAME, "-o", "json"]).await?)?;
    ensure!(object == kubectl, "{object:#} instead of {kubectl:#}");
    let tree: Value =
        serde_json::from_str(&exits_with(case, 0, &["tree", GAME, "-o", "json"]).await?)?;
    let revision = &tree["children"][0];
    ensure!(tree["kind"] == "GameDeployment" && revision["kind"] == "Revision", "{tree:#}");
    ensure!(revision["children"][0]["kind"] == "Pod", "{tree:#}");
    let list: Value = serde_yaml_ng::from_str(&exits_with(case, 0, &["get", "-o", "yaml"]).await?)?;
    let kinds: Vec<&Value> =
        list["items"].as_array().context("no items")?.iter().map(|it| &it["kind"]).collect();
    ensure!(list["kind"] == "List" && kinds == ["GameDeployment", "GameStatefulSet"], "{list:#}");
    let names = exits_with(case, 0, &["get", "gsts", "-o", "name"]).await?;
    ensure!(names == format!("gamestatefulset.tkex.tencent.com/{SET}\n"), "{names}");
    let all = exits_with(case, 0, &["get", "-A"]).await?;
    ensure!(all.starts_with("NAMESPACE") && all.contains(&case.namespace), "{all}");
    let selected = exits_with(case, 0, &["get", "-l", "app=other", "-o", "name"]).await?;
    ensure!(selected.is_empty(), "{selected}");
    let others = ["get", "gd", "--selector", "app!=other", "-o", "name"];
    let selected = exits_with(case, 0, &others).await?;
    ensure!(selected == format!("gamedeployment.tkex.tencent.com/{GAME}\n"), "{selected}");
    fails_with(case, &["get", GAME, "-l", "app=game"], "are mutually exclusive").await?;
    for format in ["json", "yaml"] {
        // The YAML parser also reads JSON.
        let hooks = exits_with(case, 0, &["hooks", GAME, "-o", format]).await?;
        let runs: Value = serde_yaml_ng::from_str(&hooks)?;
        ensure!(runs["items"] == json!([]), "{runs}");
        let history = exits_with(case, 0, &["history", SET, "-o", format]).await?;
        let revisions: Value = serde_yaml_ng::from_str(&history)?;
        ensure!(revisions["items"][0]["kind"] == "ControllerRevision", "{revisions}");
    }
    let changed: Value =
        serde_json::from_str(&exits_with(case, 0, &["pause", GAME, "-o", "json"]).await?)?;
    ensure!(changed["spec"]["updateStrategy"]["paused"] == true, "{changed}");
    let managers =
        case.kubectl(&["get", "gd", GAME, "-o", "yaml", "--show-managed-fields"]).await?;
    check_contains(&managers, &["manager: kubectl-game"])
}

#[e2e::test]
async fn symbols_and_colors_follow_the_terminal_and_environment(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    let tree = ["game", "tree", GAME];
    for (name, value, symbols, colors) in [
        ("TERM", "xterm", true, true),
        ("NO_COLOR", "", true, true),
        ("NO_COLOR", "1", true, false),
        ("TERM", "dumb", false, false),
        ("TERM", "", false, false),
    ] {
        let mut terminal = terminal(case, &tree).await?;
        let shown = run_unchecked(terminal.env(name, value)).await?;
        let text = shown.stdout.as_str();
        ensure!(shown.code == 0 && text.contains(GAME), "{name}={value}: {shown:?}");
        let drawn = text.contains("└─ ") && text.contains("✔ ");
        ensure!(drawn == symbols, "{name}={value}: {text}");
        ensure!(text.is_ascii() != symbols, "{name}={value}: {text}");
        let colored = text.contains("\x1b[32m") && text.contains("\x1b[0m");
        ensure!(colored == colors, "{name}={value}: {text:?}");
        ensure!(text.contains('\x1b') == colors, "{name}={value}: {text:?}");
    }
    let mut piped = case.kubectl_command(&tree).await?;
    let piped = run(piped.env("TERM", "xterm").env_remove("NO_COLOR"), "").await?;
    ensure!(piped.is_ascii() && !piped.contains('\x1b'), "{piped:?}");
    check_contains(&piped, &["`- "])
}

/// kubectl on a terminal that supports symbols and colors, simulated by `script`.
async fn terminal(case: &Case, args: &[&str]) -> Result<Command> {
    let line = format!("script -qec 'kubectl {}' /dev/null", args.join(" "));
    let mut terminal = case.shell().await?.command(&line);
    terminal.env("SHELL", "/bin/sh").env("TERM", "xterm").env_remove("NO_COLOR");
    Ok(terminal)
}

#[e2e::test]
async fn mistakes_get_a_suggestion(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1).named("lobby")).await?;
    case.apply(Game::in_place(1).named("world")).await?;
    case.apply(Game::parallel(1).named("world")).await?;
    fails_with(case, &["tree", "loby"], "did you mean gd/lobby?").await?;
    fails_with(case, &["tree", "gsts/lobby"], "did you mean gd/lobby?").await?;
    fails_with(
        case,
        &["status", "arena"],
        "no GameDeployment or GameStatefulSet \"arena\" in namespace",
    )
    .await?;
    fails_with(case, &["pause", "world"], "write gd/world or gsts/world").await?;
    fails_with(case, &["pause", "gamedeploymnt", "lobby"], "did you mean gamedeployment?").await?;
    fails_with(case, &["pause", "deploy/lobby"], "use kubectl rollout").await?;
    fails_with(case, &["lobby", "-n", "default"], "unrecognized subcommand").await?;
    fails_with(case, &["resum", "lobby"], "'resume'").await?;
    let hint = "did you mean gd/lobby -n plugin--show--mistakes";
    fails_with(case, &["tree", "gd/lobby", "-n", "default"], hint).await?;
    fails_with(case, &["get", "--context", "nowhere"], "context \"nowhere\" does not exist")
        .await?;
    fails_with(case, &["get", "--kubeconfig", "/nowhere"], "kubeconfig: ").await?;
    fails_with(case, &["set", "image", "lobby", "gaem=game:v2"], "did you mean \"game\"?").await?;
    case.until_of("lobby", "the operator has observed it", View::is_observed).await?;
    fails_with(case, &["undo", "lobby"], "no earlier revision").await
}

#[e2e::test]
async fn completion_knows_commands_and_workloads(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    for shell in ["bash", "zsh", "fish"] {
        check_contains(
            &exits_with(case, 0, &["completion", shell]).await?,
            &["kubectl-game", "resume"],
        )?;
    }
    // kubectl's completion script calls kubectl this way, and kubectl calls its plugin.
    let complete = async |words: &[&str]| {
        let words = [&["__complete", "game"], words].concat();
        run(&mut case.kubectl_command(&words).await?, "").await
    };
    check_contains(
        &complete(&["re"]).await?,
        &["resume\n", "retry\n", "release\n", "restart\n", ":4"],
    )?;
    check_contains(&complete(&["tree", "gd/"]).await?, &["gd/test-gamedeployment\n"])?;
    check_contains(&complete(&["status", "--ti"]).await?, &["--timeout\n"])
}

#[e2e::test]
async fn lint_finds_what_the_server_refuses(case: &mut Case) -> Result<()> {
    let file = |path: &str| repository().join(path).to_string_lossy().into_owned();
    let bad = file("e2e/manifests/bad/replicas-negative.yaml");
    let printed = exits_with(case, 1, &["lint", &bad]).await?;
    check_contains(&printed, &["replicas-negative.yaml:", "spec.replicas"])?;
    ensure!(exits_with(case, 0, &["lint", &file("examples/canary")]).await?.is_empty());
    let CommandOutput { code, stderr, .. } = case.game(&["lint", "/nowhere.yaml"]).await?;
    ensure!(code == 2 && stderr.contains("/nowhere.yaml"), "{code}: {stderr}");
    Ok(())
}

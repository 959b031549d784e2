//! `docs/kubectl-game.md` shows what the plugin prints. Here that is typed, in a namespace that has come to
//! where the document is, and compared.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::documents::transcript::{Typed, commands, lasting};
use e2e::process::command::run_to_end;
use e2e::servers::hook_server::Answer;
use e2e::wait::eventually;
use e2e::workload::manifest::{Game, hook_template};
use serde_json::json;

use super::{ends, status};

e2e::tests![the_document_shows_what_is_printed];

/// How long something may take to show.
const LIMIT: Duration = Duration::from_secs(90);
/// The document's namespace.
const NAMESPACE: &str = "prod";

async fn the_document_shows_what_is_printed(case: &mut Case) -> Result<()> {
    let document = std::fs::read_to_string(repository().join("docs/kubectl-game.md"))?;
    let mut document = Document(commands(&document)?);
    // How to install it shows nothing that is printed.
    document.0.retain(|typed| !typed.printed.is_empty());
    two_workloads(case).await?;
    for look in ["get", "tree wrld", "status world"] {
        document.keeps_its_word(case, look).await?;
    }
    document
        .keeps_its_word(case, "lint e2e/manifests/bad/replicas-negative.yaml")
        .await?;

    document
        .keeps_its_word(case, "set image gd/game game=game:v2")
        .await?;
    document
        .keeps_its_word(case, "status game --watch --timeout 5m")
        .await?;
    document.keeps_its_word(case, "promote game").await?;
    for look in ["tree game", "hooks game", "history game"] {
        document.keeps_its_word(case, look).await?;
    }
    for refused in ["restart game", "retry game"] {
        document.keeps_its_word(case, refused).await?;
    }
    document.keeps_its_word(case, "undo game").await?;
    status(case, 0, "game").await?;

    ends(case, 0, &["set", "image", "game", "game=game:v3"]).await?;
    status(case, 2, "game").await?;
    document.keeps_its_word(case, "promote game --full").await?;
    document.keeps_its_word(case, "retry world").await?;
    ensure!(document.0.is_empty(), "nobody typed {:#?}", document.0);
    Ok(())
}

/// A complete game of four servers, and a world of three that is to be one of two, and may not.
async fn two_workloads(case: &Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 45})));
    let mut template = hook_template("test", &case.hooks.url("/"));
    template["spec"]["metrics"][0]["successCondition"] = json!("asInt(result) < 30");
    case.apply(template).await?;
    let steps = json!([
        {"partition": 3}, {"pause": {}}, {"partition": 2}, {"pause": {"duration": "20s"}},
        {"hook": {"templateName": "test"}},
    ]);
    case.apply(Game::in_place(4).named("game").steps(steps))
        .await?;
    case.apply(Game::parallel(3).named("world").pre_delete("test"))
        .await?;
    for name in ["game", "world"] {
        status(case, 0, name).await?;
    }
    let world = ["scale", "--replicas=2", "gamestatefulset/world"];
    case.kubectl(&world).await?;
    Ok(())
}

/// What the document shows, and nobody has typed yet.
struct Document(Vec<Typed>);

impl Document {
    /// Types a command, and compares. What only looks is looked at until it is so.
    async fn keeps_its_word(&mut self, case: &Case, command: &str) -> Result<()> {
        let command = format!("kubectl game {command}");
        let place = self.0.iter().position(|typed| typed.command == command);
        let typed = self
            .0
            .remove(place.with_context(|| format!("no $ {command}"))?);
        let looks = ["get", "tree", "status", "hooks", "history"];
        let mut looks = looks.iter().map(|look| format!("kubectl game {look}"));
        if !looks.any(|look| command.starts_with(&look)) {
            return shows(case, &typed).await;
        }
        eventually(&command, LIMIT, async || shows(case, &typed).await).await
    }
}

async fn shows(case: &Case, typed: &Typed) -> Result<()> {
    let shell = case.shell().await?;
    let ended = run_to_end(&mut shell.command(&typed.command)).await?;
    let printed = (ended.stdout + &ended.stderr).replace(&case.namespace, NAMESPACE);
    let mut printed: Vec<&str> = printed.lines().collect();
    let mut expected: Vec<&str> = typed.printed.iter().map(String::as_str).collect();
    if typed.command.contains(" --watch ") {
        // What it waits for on the way is as it comes.
        let end = |lines: &mut Vec<&str>| drop(lines.drain(..lines.len().saturating_sub(2)));
        end(&mut printed);
        end(&mut expected);
    }
    let (printed, expected) = (comparable(&printed), comparable(&expected));
    ensure!(
        printed == expected,
        "$ {}\n{}\nis not\n{}",
        typed.command,
        printed.join("\n"),
        expected.join("\n")
    );
    Ok(())
}

/// What stays of it from run to run.
fn comparable(lines: &[&str]) -> Vec<String> {
    let of_game = lasting(lines.iter().copied(), "game");
    lasting(of_game.iter().map(String::as_str), "world")
}

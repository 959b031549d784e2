//! Runs the commands of `docs/kubectl-game.md` on workloads in the documented state, and compares the output
//! with what the document shows.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::documents::transcript::{DocCommand, commands, normalized};
use e2e::process::command::run_unchecked;
use e2e::servers::hook_server::Answer;
use e2e::wait::{LIMIT, eventually};
use e2e::workload::manifest::{Game, hook_template};
use serde_json::json;

use super::{exits_with, status};

/// The document's namespace.
const NAMESPACE: &str = "prod";

#[e2e::test]
async fn the_plugin_prints_what_its_document_shows(case: &mut Case) -> Result<()> {
    let document = std::fs::read_to_string(repository().join("docs/kubectl-game.md"))?;
    let mut document = Document(commands(&document)?);
    // The commands of the installation have no output.
    document.0.retain(|command| !command.output.is_empty());
    create_two_workloads(case).await?;
    for command in ["get", "tree wrld", "status world"] {
        document.check(case, command).await?;
    }
    document.check(case, "lint e2e/manifests/bad/replicas-negative.yaml").await?;

    document.check(case, "set image gd/game game=game:v2").await?;
    document.check(case, "status game --watch --timeout 5m").await?;
    document.check(case, "promote game").await?;
    for command in ["tree game", "hooks game", "history game"] {
        document.check(case, command).await?;
    }
    document.check(case, "restart game").await?;
    document.check(case, "undo game").await?;
    status(case, 0, "game").await?;

    exits_with(case, 0, &["set", "image", "game", "game=game:v3"]).await?;
    status(case, 2, "game").await?;
    document.check(case, "promote game --full").await?;
    document.check(case, "retry world").await?;
    ensure!(document.0.is_empty(), "not tested: {:#?}", document.0);
    Ok(())
}

/// Creates `game`, which is complete, and `world`, whose scale-in is blocked by a hook.
async fn create_two_workloads(case: &Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 45})));
    let mut template = hook_template("test", &case.hooks.url("/"));
    template["spec"]["metrics"][0]["successCondition"] = json!("asInt(result) < 30");
    case.apply(template).await?;
    let steps = json!([
        {"partition": 3}, {"pause": {}}, {"partition": 2}, {"pause": {"duration": "20s"}},
        {"hook": {"templateName": "test"}},
    ]);
    case.apply(Game::in_place(4).named("game").steps(steps)).await?;
    case.apply(Game::parallel(3).named("world").pre_delete("test")).await?;
    for name in ["game", "world"] {
        status(case, 0, name).await?;
    }
    let scale_in = ["scale", "--replicas=2", "gamestatefulset/world"];
    case.kubectl(&scale_in).await?;
    Ok(())
}

/// The commands of the document that have not been run yet.
struct Document(Vec<DocCommand>);

impl Document {
    /// Runs a command and compares its output. A command that changes nothing is repeated until its output matches.
    async fn check(&mut self, case: &Case, command: &str) -> Result<()> {
        let command = format!("kubectl game {command}");
        let index = self.0.iter().position(|it| it.command == command);
        let index = index.with_context(|| format!("the document has no `{command}`"))?;
        let documented = self.0.remove(index);
        let read_only = ["get", "tree", "status", "hooks", "history"];
        let mut read_only = read_only.iter().map(|it| format!("kubectl game {it}"));
        if !read_only.any(|start| command.starts_with(&start)) {
            return check_output(case, &documented).await;
        }
        eventually(&command, LIMIT, async || check_output(case, &documented).await).await
    }
}

async fn check_output(case: &Case, documented: &DocCommand) -> Result<()> {
    let shell = case.shell().await?;
    let output = run_unchecked(&mut shell.command(&documented.command)).await?;
    let printed = (output.stdout + &output.stderr).replace(&case.namespace, NAMESPACE);
    let mut printed: Vec<&str> = printed.lines().collect();
    let mut expected: Vec<&str> = documented.output.iter().map(String::as_str).collect();
    if documented.command.contains(" --watch ") {
        // The progress before the last lines varies.
        let keep_end = |lines: &mut Vec<&str>| drop(lines.drain(..lines.len().saturating_sub(2)));
        keep_end(&mut printed);
        keep_end(&mut expected);
    }
    let (printed, expected) = (comparable(&printed), comparable(&expected));
    ensure!(
        printed == expected,
        "$ {}\n{}\nis not\n{}",
        documented.command,
        printed.join("\n"),
        expected.join("\n")
    );
    Ok(())
}

/// The lines, with the parts that differ from run to run replaced.
fn comparable(lines: &[&str]) -> Vec<String> {
    let partly_normalized = normalized(lines.iter().copied(), "game");
    normalized(partly_normalized.iter().map(String::as_str), "world")
}

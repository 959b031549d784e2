//! Commands of `kubectl game` that watch a rollout.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::cluster::link::Link;
use e2e::servers::hook_server::Answer;
use e2e::wait::LIMIT;
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, retrying_hook_template};
use e2e::workload::view::View;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::{Instant, timeout};

use super::{check_contains, exits_with, fails_with, kubeconfig};

/// A running command with its output.
pub(super) struct RunningCommand {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: Lines<BufReader<ChildStderr>>,
}

impl RunningCommand {
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let stdout = child.stdout.take().context("no pipe")?;
        let stderr = child.stderr.take().context("no pipe")?;
        Ok(RunningCommand {
            child,
            stdout: BufReader::new(stdout).lines(),
            stderr: BufReader::new(stderr).lines(),
        })
    }

    /// Waits for a line of standard output that contains these words.
    pub(super) async fn until_printed(&mut self, words: &str) -> Result<String> {
        next_line_with(&mut self.stdout, words).await
    }

    /// Waits for a line of standard error that contains these words.
    async fn until_reported(&mut self, words: &str) -> Result<String> {
        next_line_with(&mut self.stderr, words).await
    }
}

async fn next_line_with(
    lines: &mut Lines<impl AsyncBufRead + Unpin>,
    words: &str,
) -> Result<String> {
    let found = timeout(LIMIT, async {
        while let Some(line) = lines.next_line().await? {
            if line.contains(words) {
                return Ok(line);
            }
        }
        anyhow::bail!("ended without {words:?}")
    });
    found.await.with_context(|| format!("no {words:?}"))?
}

#[e2e::test]
async fn tree_follows_a_rollout(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2).steps(json!([{"partition": 1}, {"pause": {}}]))).await?;
    case.until_settled(2).await?;
    let mut command = case.kubectl_command(&["game", "tree", GAME, "-w"]).await?;
    let mut tree = RunningCommand::start(&mut command)?;
    tree.until_printed("Complete").await?;
    case.set_image("game:v2").await?;
    tree.until_printed("canary step 1 is paused until resumed").await?;
    tree.until_printed("game:v2").await?;
    exits_with(case, 0, &["resume", GAME]).await?;
    tree.until_printed("rollout complete: 2 of 2 pods").await?;
    case.kubectl(&["delete", "gamedeployment", GAME]).await?;
    tree.until_printed("gamedeployment.tkex.tencent.com/test-gamedeployment was deleted").await?;
    ensure!(tree.child.wait().await?.success());
    Ok(())
}

#[e2e::test]
async fn the_first_tree_waits_briefly_for_the_operator(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    case.operator.freeze().await?;
    case.set_image("game:v2").await?;
    let mut command = case.kubectl_command(&["game", "tree", GAME, "-w"]).await?;
    let started = Instant::now();
    let mut tree = RunningCommand::start(&mut command)?;
    let first = tree.until_printed("Status: ").await?;
    ensure!(first.ends_with(" Unseen"), "{first}");
    let waited = started.elapsed();
    ensure!(waited >= Duration::from_secs(1), "{waited:?}");
    case.operator.thaw().await?;
    let second = tree.until_printed("Status: ").await?;
    ensure!(!second.ends_with(" Unseen"), "{second}");
    Ok(())
}

#[e2e::test]
async fn a_lost_connection_is_reported_and_restored(case: &mut Case) -> Result<()> {
    let steps = json!([{"partition": 1}, {"pause": {"duration": "10m"}}]);
    case.apply(Game::in_place(2).steps(steps)).await?;
    case.until_settled(2).await?;
    case.set_image("game:v2").await?;
    case.until("the step pauses", View::is_paused).await?;
    let link = Link::to(case.plane()).await?;
    let config = kubeconfig(case, "through-link", |config| {
        config["clusters"][0]["cluster"]["server"] = json!(link.url());
    })?;
    let follow = async |args: &[&str]| {
        let mut command = case.kubectl_command(args).await?;
        RunningCommand::start(command.env("KUBECONFIG", &config))
    };
    let mut tree = follow(&["game", "tree", GAME, "-w"]).await?;
    let mut status = follow(&["game", "status", GAME, "--watch"]).await?;
    for command in [&mut tree, &mut status] {
        command.until_printed("canary step 1 is paused until 20").await?;
    }
    link.cut();
    for command in [&mut tree, &mut status] {
        command.until_reported("no connection since 20").await?;
    }
    case.resume().await?;
    case.until_settled(2).await?;
    link.restore();
    for command in [&mut tree, &mut status] {
        command.until_reported("connection restored").await?;
        command.until_printed("rollout complete: 2 of 2 pods").await?;
    }
    ensure!(status.child.wait().await?.success());
    Ok(())
}

#[e2e::test]
async fn status_waits_no_longer_than_its_timeout(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Never);
    // Its hook is in progress for longer than all commands take.
    case.apply(retrying_hook_template("slow", &case.hooks.url("/"))).await?;
    case.apply(Game::rolling(1).pre_delete("slow")).await?;
    case.until_settled(1).await?;
    case.scale(0).await?;
    case.until("the hook runs", |view| view.phases("PreDelete") == ["Running"]).await?;
    let printed = exits_with(case, 3, &["status", GAME, "--watch", "--timeout=20s"]).await?;
    check_contains(&printed, &["Waiting: waits for PreDelete hook of pod test-gamedeployment-"])?;
    let data: Value =
        serde_json::from_str(&exits_with(case, 3, &["status", GAME, "-o", "json"]).await?)?;
    ensure!(
        data["end"] == "UnderWay" && data["exitCode"] == 3 && data["status"] == "Waiting",
        "{data}"
    );
    fails_with(case, &["status", GAME, "--watch", "--timeout=soon"], "is not a duration").await
}

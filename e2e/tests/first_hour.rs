//! A stranger's first hour: what the README tells him to type, typed on an empty cluster, prints what
//! the README shows.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::command::run;
use e2e::control_plane::{ControlPlane, repository};
use e2e::operator::Operator;
use e2e::transcript::{Typed, commands, lasting};
use e2e::wait::eventually;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

e2e::tests![the_readme_keeps_its_word];

/// The workload of the README.
const ARENA: &str = "arena";
/// How long something may take to show.
const LIMIT: Duration = Duration::from_secs(90);

async fn the_readme_keeps_its_word(case: &mut Case) -> Result<()> {
    case.operator.terminate().await?;
    let plane = ControlPlane::empty("first-hour").await?;
    let outcome = follow(&plane, case).await;
    plane.stop().await?;
    outcome
}

async fn follow(plane: &ControlPlane, case: &Case) -> Result<()> {
    let readme = std::fs::read_to_string(repository().join("README.md"))?;
    let typed = commands(&readme, "The first hour")?;
    ensure!(typed.len() > 10, "{typed:#?}");
    let mut operator = None;
    for typed in &typed {
        play(plane, typed)
            .await
            .with_context(|| format!("$ {}", typed.command))?;
        if typed.command.starts_with("helm install") {
            // Nodes are simulated, so what the Deployment's pods would run is started here.
            let folder = case.folder();
            let system = "gamekeeper-system";
            let mut installed = Operator::installed(plane, system, "gamekeeper", folder).await?;
            installed.start().await?;
            operator = Some(installed);
        }
    }
    operator.context("helm install")?.terminate().await
}

/// Types a command. What only looks is looked at until it shows what is expected.
async fn play(plane: &ControlPlane, typed: &Typed) -> Result<()> {
    let mut command = Command::new("bash");
    command
        .args(["-c", &typed.command])
        .current_dir(repository())
        .env("PATH", plane.path().await?)
        .env("KUBECONFIG", &plane.kubeconfig)
        .kill_on_drop(true);
    if typed.command.ends_with(" -w") {
        return timeout(LIMIT, watched(command, &typed.printed)).await?;
    }
    if typed.command.contains(" --watch ") {
        // What it waits for on the way is as it comes; how it ends is not.
        let printed = run(&mut command, "").await?;
        let end = printed.lines().last().unwrap_or_default();
        return shows(end, &typed.printed);
    }
    let looks = ["get", "game tree", "game hooks"];
    let looks = looks.map(|look| format!("kubectl {look} "));
    if !looks.iter().any(|look| typed.command.starts_with(look)) {
        return shows(&run(&mut command, "").await?, &typed.printed);
    }
    eventually("it shows that", LIMIT, async || {
        shows(&run(&mut command, "").await?, &typed.printed)
    })
    .await
}

/// Whether a text is what the README shows, if it shows any.
fn shows(text: &str, expected: &[String]) -> Result<()> {
    let expected = lasting(expected.iter().map(String::as_str), ARENA);
    let shown = lasting(text.lines(), ARENA);
    ensure!(
        expected.is_empty() || shown == expected,
        "{}\nis not\n{}\nprinted:\n{text}",
        shown.join("\n"),
        expected.join("\n")
    );
    Ok(())
}

/// Follows a command that never ends until a frame of it is what is expected.
async fn watched(mut command: Command, expected: &[String]) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("its output")?;
    let mut lines = BufReader::new(output).lines();
    let mut frame = String::new();
    while let Some(line) = lines.next_line().await? {
        // Each frame stands under a line with its time.
        if line.starts_with("---") {
            frame.clear();
            continue;
        }
        frame.push_str(&line);
        frame.push('\n');
        if shows(&frame, expected).is_ok() {
            return Ok(());
        }
    }
    anyhow::bail!("it ended")
}

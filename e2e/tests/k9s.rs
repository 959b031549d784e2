//! The plugins and views of k9s.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::workload::manifest::Game;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

/// Runs the commands of the plugins as k9s would, with dry runs in place of changes.
#[e2e::test]
async fn k9s_runs_commands_that_the_plugin_has(case: &mut Case) -> Result<()> {
    let steps = json!([{"partition": 1}, {"pause": {"duration": 600}}]);
    case.apply(Game::in_place(2).steps(steps)).await?;
    case.until_settled(2).await?;
    case.set_image("game:v2").await?;
    case.until("paused at step 1", |view| view.step() == 1 && view.is_paused()).await?;
    let context = case.kubectl(&["config", "current-context"]).await?;
    let workload = case.workload();
    let (kind, name) = workload.split_once('/').context("not KIND/NAME")?;
    let text = std::fs::read_to_string(repository().join("kubectl-game/k9s/plugins.yaml"))?;
    let file: Value = serde_yaml_ng::from_str(&text)?;
    let plugins = file["plugins"].as_object().context("no plugins")?;
    ensure!(plugins.len() > 4, "{plugins:#?}");
    for (plugin, settings) in plugins {
        let mut arguments = Vec::new();
        for argument in settings["args"].as_array().context("no arguments")?.iter().skip(1) {
            let argument = argument.as_str().context("no text")?;
            let argument = argument.replace("$RESOURCE_NAME", &format!("{kind}s"));
            let argument = argument.replace("$NAMESPACE", &case.namespace);
            let argument = argument.replace("$CONTEXT", context.trim());
            arguments.push(argument.replace("$NAME", name));
        }
        if settings["confirm"] == true {
            arguments.push("--dry-run".to_owned());
        }
        arguments.retain(|it| it != "--watch");
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = case.game(&words).await?;
        let is_done = output.code == 0 || output.stderr.contains("nothing to retry");
        ensure!(settings["command"] == "kubectl" && is_done, "{plugin}: {output:?}");
    }
    Ok(())
}

/// k9s itself, which only `make release-check` builds.
const K9S: &str = "GAMEKEEPER_K9S";

/// Types into k9s as a user would: the list of workloads has the columns of our views, and a key pauses the selected one.
#[e2e::test]
async fn k9s_shows_and_pauses_a_workload(case: &mut Case) -> Result<()> {
    let Some(program) = std::env::var_os(K9S) else {
        eprintln!("skipped: {K9S} is not set (make release-check)");
        return Ok(());
    };
    case.apply(Game::in_place(2)).await?;
    case.until_settled(2).await?;
    let mut k9s = Terminal::start(case, &program.to_string_lossy()).await?;
    k9s.until_shown(case, &["UPDATED_READY", "PAUSED", "STEP", "game"]).await?;
    for (key, description, is_paused) in [("U", "Pause", true), ("R", "Resume", false)] {
        k9s.press(key).await?;
        k9s.until_shown(case, &[description, "Cancel"]).await?;
        // The dialog begins with Cancel.
        k9s.press("\t\r").await?;
        case.until(description, |view| view.is_paused() == is_paused).await?;
    }
    let log = std::fs::read_to_string(case.folder().join("k9s/k9s.log"))?;
    ensure!(!log.contains("lugin load failed"), "{log}");
    k9s.child.kill().await?;
    Ok(())
}

/// A program in a terminal.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    /// All that the program has written.
    written: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts k9s with our plugins and views, in the list of GameDeployments.
    async fn start(case: &Case, program: &str) -> Result<Self> {
        let folder = case.folder().join("k9s");
        std::fs::create_dir_all(&folder)?;
        for file in ["plugins.yaml", "views.yaml"] {
            std::fs::copy(repository().join("kubectl-game/k9s").join(file), folder.join(file))?;
        }
        let log = folder.join("k9s.log");
        let (namespace, log) = (&case.namespace, log.display());
        let line = format!(
            "stty rows 50 cols 220; exec {program} -n {namespace} -c gamedeployments --splashless --logFile {log}"
        );
        let kubectl = case.kubectl_command(&[]).await?;
        let mut command = Command::new("script");
        command.args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"]);
        command.env("TERM", "xterm-256color").env("K9S_CONFIG_DIR", &folder);
        for (key, value) in kubectl.as_std().get_envs() {
            command.env(key, value.unwrap_or_default());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("script (bsdutils) is missing")?;
        let keys = child.stdin.take().context("no standard input")?;
        let mut output = child.stdout.take().context("no standard output")?;
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let shared = Arc::clone(&written);
        tokio::spawn(async move {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes).await {
                let mut written = shared.lock().unwrap_or_else(PoisonError::into_inner);
                written.extend(&bytes[..length]);
            }
        });
        Ok(Self { child, keys, written })
    }

    async fn press(&mut self, keys: &str) -> Result<()> {
        // What was written before does not show what the keys do.
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(self.keys.write_all(keys.as_bytes()).await?)
    }

    /// Waits until the program has written all these words.
    async fn until_shown(&self, case: &Case, words: &[&str]) -> Result<()> {
        case.eventually(&format!("k9s shows {words:?}"), async || {
            let written = self.written.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let text = without_escapes(&String::from_utf8_lossy(&written));
            let missing = words.iter().find(|word| !text.contains(**word));
            ensure!(missing.is_none(), "no {missing:?} in {text}");
            Ok(())
        })
        .await
    }
}

/// Text without the terminal's control sequences.
fn without_escapes(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        text + &part[end..]
    })
}

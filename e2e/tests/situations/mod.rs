//! Why it does not move, and what to type: situations as users meet them, all played with the real kubectl. For each,
//! `kubectl game status` names the cause and the pod, exits with the code for scripts, and prints commands that work as they
//! are printed; the condition says the same; and STATUS is never Complete while something waits.

mod hooks;
mod pods;
mod rollouts;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::process::command::run_unchecked;
use e2e::servers::hook_server::Answer;
use e2e::wait::{LIMIT, eventually};
use e2e::workload::manifest::{Game, hook_template, retrying_hook_template};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use tokio::process::Command;

/// In how many seconds each situation must be shown. A user is to see it within ten, which a loaded machine may miss, so that
/// is not demanded by default.
const SHOWN_WITHIN: &str = "SITUATIONS_WITHIN";
/// How many situations are played at a time.
const CONCURRENCY: usize = 4;

/// A situation.
struct Situation {
    /// The name of its workload.
    name: &'static str,
    /// The workload before, which completes first.
    before: Option<Game>,
    /// The workload in this situation; that from before if there is none.
    game: Option<Game>,
    /// What is typed then. NAME is `KIND/NAME` of the workload, POD its first pod.
    typed: Vec<&'static str>,
    /// The reason of its cause; empty for none.
    reason: &'static str,
    /// Words that `status` contains; the first ones are in `tree`, too.
    words: Vec<&'static str>,
    /// The exit code of `status`.
    code: i32,
    /// Whether the commands end the situation.
    recovers: bool,
}

impl Situation {
    /// A workload that gets into the situation as soon as it is created.
    fn at_once(name: &'static str, game: Game) -> Self {
        Self {
            name,
            before: None,
            game: Some(game),
            typed: Vec::new(),
            reason: "",
            words: Vec::new(),
            code: 3,
            recovers: false,
        }
    }

    /// A complete workload that gets into the situation by a change.
    fn by_change(name: &'static str, before: Game, game: Game) -> Self {
        Self { before: Some(before), ..Self::at_once(name, game) }
    }

    /// A complete workload that gets into the situation by a new image.
    fn by_update(name: &'static str, game: Game) -> Self {
        Self::by_change(name, game.clone(), game.image("game:v2"))
    }

    /// A complete workload that gets into the situation by commands.
    fn by_typing(name: &'static str, before: Game, typed: &[&'static str]) -> Self {
        Self {
            before: Some(before.clone()),
            game: None,
            typed: typed.to_vec(),
            ..Self::at_once(name, before)
        }
    }

    fn expect(self, reason: &'static str, words: &[&'static str], code: i32) -> Self {
        Self { reason, words: words.to_vec(), code, ..self }
    }

    fn recovers(self) -> Self {
        Self { recovers: true, ..self }
    }

    /// `KIND/NAME` as kubectl prints it.
    fn workload(&self) -> String {
        let game = self.before.as_ref().or(self.game.as_ref()).cloned().map(Value::from);
        let is_set = game.is_some_and(|it| it["kind"] == "GameStatefulSet");
        format!("{}/{}", if is_set { "gsts" } else { "gd" }, self.name)
    }
}

/// Templates of hooks that wait, refuse and cannot be reached.
async fn prepare_hooks(case: &Case) -> Result<()> {
    case.hooks.answer_all(Answer::Json(json!({"age": 0})));
    case.apply(retrying_hook_template("waits", &case.hooks.url("/"))).await?;
    case.apply(hook_template("refuses", &case.hooks.url("/"))).await?;
    case.apply(hook_template("unreachable", "http://127.0.0.1:1/")).await?;
    let mut template = hook_template("errs", "http://127.0.0.1:1/");
    template["spec"]["metrics"][0]["consecutiveErrorLimit"] = json!(0);
    case.apply(template).await?;
    let mut template = hook_template("needs-argument", "http://127.0.0.1:1/{{ args.zone }}");
    template["spec"]["args"] = json!([{"name": "zone"}]);
    case.apply(template).await?;
    let mut template = hook_template("endless", &case.hooks.url("/"));
    template["spec"]["metrics"][0]["interval"] = json!("1s");
    case.apply(template).await?;
    Ok(())
}

/// Plays all situations, and fails with all that are not as expected.
async fn play(case: &Case, situations: Vec<Situation>) -> Result<()> {
    let count = situations.len();
    let played = stream::iter(situations).map(|it| async move {
        let played = Box::pin(play_one(case, &it)).await;
        Ok::<_, anyhow::Error>(played.with_context(|| it.name).err())
    });
    let failed: Vec<_> = played.buffer_unordered(CONCURRENCY).try_collect().await?;
    let failed: Vec<String> = failed.into_iter().flatten().map(|it| format!("{it:#}")).collect();
    ensure!(failed.is_empty(), "{} of {count}:\n{}", failed.len(), failed.join("\n\n"));
    Ok(())
}

async fn play_one(case: &Case, situation: &Situation) -> Result<()> {
    let workload = situation.workload();
    if let Some(before) = &situation.before {
        case.apply(before.clone().named(situation.name)).await?;
        until_complete(case, &workload).await?;
    }
    if let Some(game) = &situation.game {
        case.apply(game.clone().named(situation.name)).await?;
    }
    for line in &situation.typed {
        let pod = first_pod(case, situation.name).await?;
        let line = line.replace("NAME", &workload).replace("POD", &pod);
        let (code, output) = typed(case, &line, "y\n").await?;
        ensure!(code == 0, "{line}: {code}: {output}");
    }
    let began = tokio::time::Instant::now();
    let status = until_shown(case, situation, &workload).await?;
    eprintln!("{}: shown after {:.1} s", situation.name, began.elapsed().as_secs_f32());
    // Another pod may get into the situation between two commands, and be named first.
    let check = async || check_texts(case, situation, &workload).await;
    eventually("all texts say the same", LIMIT, check).await?;
    check_commands(case, situation, &workload, &status).await
}

/// Waits until the workload is complete, or its update is as complete as its spec allows.
async fn until_complete(case: &Case, workload: &str) -> Result<()> {
    let args = ["status", workload, "--watch", "--timeout", "300s"];
    let output = case.game(&args).await?;
    ensure!(output.code == 0, "{workload} does not become complete: {output:?}");
    Ok(())
}

async fn first_pod(case: &Case, name: &str) -> Result<String> {
    eventually("a pod", LIMIT, async || {
        let pods = case.list(&format!("pods?labelSelector=app={name}")).await?;
        let name = pods.first().and_then(|pod| pod["metadata"]["name"].as_str());
        name.map(str::to_owned).context("no pod")
    })
    .await
}

/// Waits until `status` shows what is expected, and returns it.
async fn until_shown(case: &Case, situation: &Situation, workload: &str) -> Result<Value> {
    let limit = match std::env::var(SHOWN_WITHIN) {
        Ok(seconds) => Duration::from_secs(seconds.parse().context(SHOWN_WITHIN)?),
        Err(_) => LIMIT,
    };
    eventually("the situation is shown", limit, async || {
        let output = case.game(&["status", workload, "-o", "json"]).await?;
        let status: Value = serde_json::from_str(&output.stdout)
            .with_context(|| format!("{}{}", output.stdout, output.stderr))?;
        ensure!(output.code == situation.code, "exit code {}: {status:#}", output.code);
        let is_complete = status["status"] == "Complete";
        ensure!(is_complete == (situation.code == 0), "{status:#}");
        let causes = status["causes"].as_array().context("no causes")?;
        if !situation.reason.is_empty() {
            let cause = causes.iter().find(|it| it["reason"] == situation.reason);
            let cause =
                cause.with_context(|| format!("no cause {}: {status:#}", situation.reason))?;
            ensure!(cause["since"].is_string() && cause["actor"].is_string(), "{cause:#}");
        }
        for words in &situation.words {
            let lines = [&status["message"], &status["also"], &status["commands"]];
            let text = lines.map(Value::to_string).join("\n").replace("\\\"", "\"");
            ensure!(text.contains(words), "no {words:?} in {status:#}");
        }
        Ok(status)
    })
    .await
}

/// Checks what people read: `status`, `get`, `tree` and the conditions.
async fn check_texts(case: &Case, situation: &Situation, workload: &str) -> Result<()> {
    let status = case.game(&["status", workload]).await?;
    let tree = case.game(&["tree", workload]).await?;
    let (kind, name) = workload.split_once('/').context("not KIND/NAME")?;
    let plural = if kind == "gd" { "gamedeployments" } else { "gamestatefulsets" };
    let object = case.get(&format!("{plural}/{name}")).await?;
    let conditions = object["status"]["conditions"].as_array().context("no conditions")?;
    let problems = case.game(&["get", "--problems", "--no-headers"]).await?;
    let is_listed = problems.stdout.contains(&format!("{workload} "));
    ensure!(is_listed == (situation.code != 0), "get --problems: {}", problems.stdout);
    let texts = [("status", &status.stdout), ("tree", &tree.stdout)];
    for words in situation.words.iter().take(1) {
        for (command, text) in texts {
            ensure!(text.contains(words), "no {words:?} in {command}:\n{text}");
        }
    }
    let is_ready = conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
    // What keeps a pod that was replaced is no condition of the workload.
    if situation.reason.is_empty() || is_ready {
        return Ok(());
    }
    // A condition says the same as the cause, and names the pod.
    let causes = object["status"]["causes"].as_array().context("no causes")?;
    let cause = causes.iter().find(|it| it["reason"] == situation.reason).context("no cause")?;
    for pod in cause["pods"].as_array().into_iter().flatten().take(1) {
        let pod = pod.as_str().context("no name")?;
        let is_named = object["status"]["conditions"].to_string().contains(pod);
        ensure!(is_named, "{pod} is not in {conditions:#?}");
        for (command, text) in texts {
            ensure!(text.contains(pod), "no {pod} in {command}:\n{text}");
        }
    }
    let has_cause = |it: &Value| it["reason"] == cause["reason"] || says(it, cause);
    ensure!(conditions.iter().any(has_cause), "no condition says {cause}: {conditions:#?}");
    Ok(())
}

/// Whether a condition contains what a cause says.
fn says(condition: &Value, cause: &Value) -> bool {
    let text = |value: &Value| value["message"].as_str().unwrap_or_default().to_owned();
    text(condition).contains(&text(cause))
}

/// Types each command exactly as it is printed. Those that change something are first tried with a server-side dry run, and
/// then the first of them is carried out.
async fn check_commands(
    case: &Case,
    situation: &Situation,
    workload: &str,
    status: &Value,
) -> Result<()> {
    let commands = status["commands"].as_array().context("no commands")?;
    ensure!(situation.code == 0 || !commands.is_empty(), "no command: {status:#}");
    let mut change = None;
    for command in commands {
        let line = command["command"].as_str().context("not a text")?;
        ensure!(line.contains(&format!(" -n {}", case.namespace)), "{line} has no namespace");
        // The simulated nodes have no logs; the real one has.
        if line.starts_with("kubectl logs ") {
            continue;
        }
        let changes = ["undo", "resume", "retry", "release", "move"];
        if changes.iter().any(|verb| line.starts_with(&format!("kubectl game {verb} "))) {
            let (code, output) = typed(case, &format!("{line} --dry-run=server"), "").await?;
            ensure!(code == 0, "{line}: {code}: {output}");
            change.get_or_insert(line);
        } else if !line.contains(" -w") {
            let (code, output) = typed(case, line, "").await?;
            // What it finds decides the exit code of doctor.
            let works = code == 0 || (code == 2 && line.starts_with("kubectl game doctor"));
            ensure!(works && !output.trim().is_empty(), "{line}: {code}: {output}");
        }
    }
    if let Some(line) = change {
        let (code, output) = typed(case, line, "y\n").await?;
        ensure!(code == 0, "{line}: {code}: {output}");
    }
    if situation.recovers {
        ensure!(change.is_some(), "no command ends it: {status:#}");
        until_complete(case, workload).await?;
    }
    Ok(())
}

/// Runs a line in a shell, as a user of this namespace, and returns the exit code and all output.
async fn typed(case: &Case, line: &str, answer: &str) -> Result<(i32, String)> {
    let kubectl = case.kubectl_command(&[]).await?;
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("printf '{answer}' | {line}")]);
    for (key, value) in kubectl.as_std().get_envs() {
        if let Some(value) = value {
            shell.env(key, value);
        }
    }
    let output = run_unchecked(&mut shell).await?;
    Ok((output.code, output.stdout + &output.stderr))
}

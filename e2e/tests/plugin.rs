//! The kubectl plugin, called as `kubectl game`: what it shows, what it changes, how it ends.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::{Case, GAME, SET};
use e2e::command::{Ended, run};
use e2e::control_plane::repository;
use e2e::hook_server::Answer;
use e2e::manifest::{Game, hook_template};
use e2e::view::View;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

e2e::tests![
    a_canary_is_followed_and_steered,
    a_canary_of_a_set_is_followed_and_steered,
    a_failed_pod_hook_is_shown_and_retried,
    a_failed_pod_hook_of_a_set_is_shown_and_retried,
    a_pause_with_a_duration_is_taken_over,
    a_full_promotion_skips_what_is_left,
    a_full_promotion_of_a_set_skips_what_is_left,
    an_image_goes_forward_and_back,
    restart_makes_new_pods_or_is_refused,
    tree_follows_a_rollout,
    status_waits_no_longer_than_it_is_told,
    a_refused_template_is_named,
    workloads_are_printed_as_kubectl_prints_them,
    mistakes_get_a_suggestion,
    completion_knows_commands_and_workloads,
    lint_says_what_the_server_would_refuse,
];

/// A command that must end so; returns what it printed.
async fn ends(case: &Case, code: i32, args: &[&str]) -> Result<String> {
    let Ended {
        code: found,
        stdout,
        stderr,
    } = case.game(args).await?;
    ensure!(
        found == code,
        "{args:?} ended with {found}: {stdout}{stderr}"
    );
    Ok(stdout)
}

/// A command that must be refused with these words.
async fn says(case: &Case, args: &[&str], words: &str) -> Result<()> {
    let Ended {
        code,
        stdout,
        stderr,
    } = case.game(args).await?;
    ensure!(
        code == 1 && stdout.is_empty(),
        "{args:?} ended with {code}: {stdout}{stderr}"
    );
    ensure!(
        stderr.contains(words),
        "{args:?} does not say {words:?}: {stderr}"
    );
    Ok(())
}

/// Waits for an end of the rollout, or a stop, and returns what is said then.
async fn status(case: &Case, code: i32, name: &str) -> Result<String> {
    ends(case, code, &["status", name, "--watch", "--timeout", "60s"]).await
}

fn has(text: &str, words: &[&str]) -> Result<()> {
    for word in words {
        ensure!(text.contains(word), "no {word:?} in:\n{text}");
    }
    Ok(())
}

/// A line of a table that begins so, in words.
fn line<'t>(text: &'t str, start: &str) -> Result<Vec<&'t str>> {
    let mut lines = text.lines();
    let found = lines.find(|line| {
        line.trim_start_matches(['|', '`', '-', ' '])
            .starts_with(start)
    });
    let found = found.with_context(|| format!("no line {start:?} in:\n{text}"))?;
    Ok(found
        .trim_start_matches(['|', '`', '-', ' '])
        .split_whitespace()
        .collect())
}

async fn a_canary_is_followed_and_steered(case: &mut Case) -> Result<()> {
    canary(case, Game::in_place(4).max_unavailable(2)).await
}

async fn a_canary_of_a_set_is_followed_and_steered(case: &mut Case) -> Result<()> {
    case.is_about_a_set();
    canary(
        case,
        Game::parallel(4)
            .updated_by("InplaceUpdate")
            .max_unavailable(2),
    )
    .await
}

async fn canary(case: &mut Case, game: Game) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(hook_template("test", &case.hooks.url("/")))
        .await?;
    let steps = json!([{"partition": 3}, {"pause": {}}, {"hook": {"templateName": "test"}}]);
    case.apply(game.steps(steps)).await?;
    case.until_settled(4).await?;
    let workload = case.workload();
    let (kind, name) = workload.split_once('/').context("KIND/NAME")?;
    let full = format!("{kind}.tkex.tencent.com/{name}");
    has(
        &status(case, 0, name).await?,
        &["Complete: rollout complete: 4 of 4 pods"],
    )?;

    let printed = ends(case, 0, &["set", "image", &full, "game=game:v2"]).await?;
    ensure!(printed == format!("{full} image updated\n"), "{printed}");
    let printed = status(case, 2, name).await?;
    has(
        &printed,
        &[
            "Paused: canary step 1 pauses until somebody resumes",
            "kubectl game resume",
        ],
    )?;
    has(
        &ends(case, 0, &["tree", name]).await?,
        &["1 of 3 behind it: partition 3, [pause], hook test"],
    )?;
    let listed = ends(case, 0, &["get", kind]).await?;
    let short = if kind == "gamedeployment" {
        "gd"
    } else {
        "gsts"
    };
    let shown = line(&listed, &format!("{short}/{name}"))?;
    ensure!(
        shown[1..8] == ["Paused", "1/3", "4", "1", "1", "4", "4"],
        "{listed}"
    );

    let printed = ends(case, 0, &["promote", name]).await?;
    ensure!(
        printed == format!("{full} promoted past canary step 1 (pause)\n"),
        "{printed}"
    );
    let run = case
        .until("the hook failed", |view| view.phases("Step") == ["Failed"])
        .await?;
    let run = run.run_names()[0].to_owned();
    let printed = status(case, 2, name).await?;
    has(
        &printed,
        &[
            "canary step 2 pauses since",
            &run,
            "ended Failed: webtest measured 10",
        ],
    )?;
    let tree = ends(case, 0, &["tree", kind, name]).await?;
    ensure!(line(&tree, &run)?[1..3] == ["HookRun", "Failed"], "{tree}");
    ensure!(line(&tree, &format!("{name}-"))?[1] == "Revision", "{tree}");
    has(
        &tree,
        &[
            "update",
            "stable",
            "#2, game:v2",
            "Step: webtest measured 10",
        ],
    )?;
    let hooks = ends(case, 0, &["hooks", name]).await?;
    ensure!(
        line(&hooks, &run)?[1..8] == ["Step", "step", "2", "Failed", "webtest", "1", "10"],
        "{hooks}"
    );
    says(case, &["retry", name], "that of a canary step").await?;

    let printed = ends(case, 0, &["resume", &workload]).await?;
    ensure!(printed == format!("{full} resumed\n"), "{printed}");
    status(case, 0, name).await?;
    case.until_settled(4).await?;
    says(case, &["resume", name], "is not paused").await?;
    says(case, &["promote", name], "nothing to promote").await?;

    ends(case, 0, &["set", "image", name, "game=game:v3"]).await?;
    status(case, 2, name).await?;
    let history = ends(case, 0, &["history", name]).await?;
    ensure!(
        line(&history, "2 ")?[1..4] == ["stable", "3", "game:v2"],
        "{history}"
    );
    ensure!(
        line(&history, "3 ")?[1..4] == ["update", "1", "game:v3"],
        "{history}"
    );
    let printed = ends(case, 0, &["undo", name]).await?;
    ensure!(
        printed == format!("{full} rolled back to revision 2\n"),
        "{printed}"
    );
    status(case, 0, name).await?;
    let view = case.until_settled(4).await?;
    view.ensure(view.ready_with("game:v2") == 4 && !view.is_paused())
}

async fn a_failed_pod_hook_is_shown_and_retried(case: &mut Case) -> Result<()> {
    pod_hook(case, Game::rolling(3)).await
}

async fn a_failed_pod_hook_of_a_set_is_shown_and_retried(case: &mut Case) -> Result<()> {
    case.is_about_a_set();
    pod_hook(case, Game::parallel(3)).await
}

async fn pod_hook(case: &mut Case, game: Game) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(hook_template("empty", &case.hooks.url("/")))
        .await?;
    case.apply(game.pre_delete("empty")).await?;
    case.until_settled(3).await?;
    let workload = case.workload();
    says(case, &["retry", &workload], "nothing to retry").await?;
    case.scale(2).await?;
    let view = case.until("the hook failed", |view| {
        view.hook_conditions("preDelete")
            .iter()
            .any(|(_, phase)| *phase == "Failed")
    });
    let view = view.await?;
    let (pod, _) = view.hook_conditions("preDelete")[0];
    let run = view.run_names()[0];
    let printed = ends(case, 2, &["status", &workload]).await?;
    has(
        &printed,
        &[
            "Blocked",
            pod,
            run,
            "ended Failed: webtest measured 10",
            "retry",
        ],
    )?;
    let tree = ends(case, 0, &["tree", &workload]).await?;
    ensure!(
        line(&tree, pod)?.ends_with(&["to", "be", "deleted"]),
        "{tree}"
    );
    ensure!(line(&tree, run)?[1..3] == ["HookRun", "Failed"], "{tree}");

    case.hooks.answer("/", Answer::Json(json!({"age": 40})));
    says(
        case,
        &["retry", &workload, "--point", "PreInplace"],
        "no PreInplace hook",
    )
    .await?;
    let printed = ends(case, 0, &["retry", &workload, "--point", "predelete"]).await?;
    has(&printed, &["retried: 1 PreDelete hook\n"])?;
    case.until_settled(2).await?;
    ends(case, 0, &["status", &workload]).await?;
    Ok(())
}

async fn a_pause_with_a_duration_is_taken_over(case: &mut Case) -> Result<()> {
    let steps = json!([{"partition": 1}, {"pause": {"duration": "10m"}}]);
    case.apply(Game::in_place(2).max_unavailable(2).steps(steps))
        .await?;
    case.until_settled(2).await?;
    case.set_image("game:v2").await?;
    let at_step = |view: &View| view.pause_reasons() == ["PausedByCanaryPauseStep"];
    case.until("the step pauses", at_step).await?;
    has(
        &ends(case, 3, &["status", GAME]).await?,
        &["Paused: canary step 1 pauses until 20"],
    )?;
    has(
        &ends(case, 0, &["pause", GAME]).await?,
        &["took over the pause of canary step 1"],
    )?;
    let is_users =
        |view: &View| view.is_paused() && view.step() == 1 && view.pause_reasons().is_empty();
    case.until("the pause is a user's", is_users).await?;
    has(
        &ends(case, 2, &["status", GAME]).await?,
        &["Paused: paused by a user"],
    )?;
    says(case, &["pause", GAME], "already paused").await?;
    says(
        case,
        &["promote", GAME],
        "paused by a user, not by canary step 1",
    )
    .await?;
    ends(case, 0, &["resume", GAME]).await?;
    case.until("the step pauses anew", at_step).await?;
    ends(case, 0, &["promote", GAME]).await?;
    case.until_settled(2).await?;
    Ok(())
}

async fn a_full_promotion_skips_what_is_left(case: &mut Case) -> Result<()> {
    full_promotion(case, Game::in_place(4).max_unavailable(2)).await
}

async fn a_full_promotion_of_a_set_skips_what_is_left(case: &mut Case) -> Result<()> {
    case.is_about_a_set();
    full_promotion(case, Game::ordered(4)).await
}

async fn full_promotion(case: &mut Case, game: Game) -> Result<()> {
    case.hooks.answer("/", Answer::Never);
    let template = hook_template("test", &case.hooks.url("/"));
    case.apply(template).await?;
    let steps = json!([{"partition": 3}, {"hook": {"templateName": "test"}}, {"pause": {}}]);
    let cause = "/metadata/annotations/kubernetes.io~1change-cause";
    let game = game.steps(steps).set(cause, "the first one");
    case.apply(game.clone()).await?;
    case.until_settled(4).await?;
    case.apply(game.image("game:v2").set(cause, "winter event"))
        .await?;
    case.until("the hook runs", |view| view.phases("Step") == ["Running"])
        .await?;
    let name = case.workload();
    says(case, &["promote", &name], "goes on by itself; --full skips").await?;
    let printed = ends(case, 0, &["promote", &name, "--full"]).await?;
    has(&printed, &["fully promoted: skips canary steps 1 to 2"])?;
    let view = case.until_settled(4).await?;
    view.ensure(view.ready_with("game:v2") == 4 && view.step() == 3)?;
    let history = ends(case, 0, &["history", &name]).await?;
    has(&history, &["the first one", "winter event"])?;
    // The next rollout has its steps again.
    case.set_image("game:v3").await?;
    let at_hook = |view: &View| view.step() == 1 && view.with_image("game:v3") == 1;
    case.until("one pod, and the hook", at_hook).await?;
    case.keeps("the steps hold", 2, at_hook).await
}

async fn an_image_goes_forward_and_back(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2)).await?;
    case.until_settled(2).await?;
    let dry = ends(case, 0, &["set", "image", GAME, "*=game:v2", "--dry-run"]).await?;
    has(&dry, &["image updated (server dry run)"])?;
    ends(case, 0, &["set", "image", GAME, "*=game:v2"]).await?;
    case.until_settled(2).await?;
    ends(case, 0, &["pause", GAME]).await?;
    let Ended { code, stderr, .. } = case.game(&["undo", GAME, "--to-revision", "1"]).await?;
    ensure!(
        code == 0 && stderr.contains("no pod moves until"),
        "{stderr}"
    );
    case.keeps("no pod moves", 2, |view| view.with_image("game:v2") == 2)
        .await?;
    ends(case, 0, &["resume", GAME]).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.ready_with("game:v1") == 2)?;
    // The revision that was used again has the highest number now.
    let skipped = ends(case, 0, &["undo", GAME, "--to-revision=3"]).await?;
    has(
        &skipped,
        &["skipped rollback (current template already matches revision 3)"],
    )?;
    says(
        case,
        &["undo", GAME, "--to-revision=1"],
        "no revision 1; there are 2, 3",
    )
    .await?;
    has(
        &ends(case, 0, &["history", GAME, "--revision=2"]).await?,
        &["image: game:v2"],
    )?;
    ends(case, 0, &["undo", GAME]).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.ready_with("game:v2") == 2)
}

async fn restart_makes_new_pods_or_is_refused(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1).named("in-place")).await?;
    says(case, &["restart", "in-place"], "podsToDelete").await?;
    case.apply(Game::rolling(2)).await?;
    let before = case.until_settled(2).await?;
    has(
        &ends(case, 0, &["restart", GAME]).await?,
        &["gamedeployment.tkex.tencent.com/test-gamedeployment restarted"],
    )?;
    let after = case.until("two other pods", |view| {
        view.counts() == [2; 5]
            && view.is_observed()
            && before
                .pod_names()
                .iter()
                .all(|old| !view.pod_names().contains(old))
    });
    after.await?;
    case.is_about_a_set();
    case.apply(Game::ordered(1)).await?;
    let before = case.until_settled(1).await?;
    ends(case, 0, &["restart", SET]).await?;
    let is_new = |view: &View| {
        view.counts() == [1; 5] && view.is_observed() && view.pods[0].uid() != before.pods[0].uid()
    };
    case.until("another pod of that name", is_new).await?;
    Ok(())
}

async fn tree_follows_a_rollout(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2).steps(json!([{"partition": 1}, {"pause": {}}])))
        .await?;
    case.until_settled(2).await?;
    let mut command = case.kubectl_command(&["game", "tree", GAME, "-w"]).await?;
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
    let mut seen = async |words: &str| {
        let looked = timeout(Duration::from_secs(60), async {
            while let Some(line) = lines.next_line().await? {
                if line.contains(words) {
                    return Ok(line);
                }
            }
            anyhow::bail!("ended without {words:?}")
        });
        looked.await.with_context(|| format!("no {words:?}"))?
    };
    seen("Complete").await?;
    case.set_image("game:v2").await?;
    seen("[pause]").await?;
    seen("game:v2").await?;
    ends(case, 0, &["resume", GAME]).await?;
    seen("rollout complete: 2 of 2 pods").await?;
    case.kubectl(&["delete", "gamedeployment", GAME]).await?;
    seen("gamedeployment.tkex.tencent.com/test-gamedeployment is gone").await?;
    ensure!(child.wait().await?.success());
    Ok(())
}

async fn status_waits_no_longer_than_it_is_told(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Never);
    case.apply(hook_template("slow", &case.hooks.url("/")))
        .await?;
    case.apply(Game::rolling(1).pre_delete("slow")).await?;
    case.until_settled(1).await?;
    case.scale(0).await?;
    case.until("the hook runs", |view| {
        view.phases("PreDelete") == ["Running"]
    })
    .await?;
    let printed = ends(case, 3, &["status", GAME, "--watch", "--timeout=1s"]).await?;
    has(
        &printed,
        &["Waiting: waits for PreDelete hooks of pods test-gamedeployment-"],
    )?;
    let data: Value = serde_json::from_str(&ends(case, 3, &["status", GAME, "-o", "json"]).await?)?;
    ensure!(
        data["end"] == "UnderWay" && data["exitCode"] == 3 && data["status"] == "Waiting",
        "{data}"
    );
    says(
        case,
        &["status", GAME, "--watch", "--timeout=soon"],
        "is not a duration",
    )
    .await
}

async fn a_refused_template_is_named(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    case.patch(
        &case.workload(),
        json!([{"op": "add", "path": "/spec/template/spec/hostname", "value": "other"}]),
    )
    .await?;
    let printed = status(case, 2, GAME).await?;
    has(
        &printed,
        &["Blocked: the update does not go on (NotInPlace)"],
    )
}

async fn workloads_are_printed_as_kubectl_prints_them(case: &mut Case) -> Result<()> {
    let Ended {
        code,
        stdout,
        stderr,
    } = case.game(&["get"]).await?;
    let nothing = format!("No resources found in {} namespace.\n", case.namespace);
    ensure!(
        (code, stdout.as_str(), stderr.as_str()) == (0, "", nothing.as_str()),
        "{code} {stdout} {stderr}"
    );
    case.apply(Game::in_place(1)).await?;
    case.apply(Game::parallel(1)).await?;
    case.until_settled(1).await?;
    let object: Value = serde_json::from_str(&ends(case, 0, &["get", GAME, "-o", "json"]).await?)?;
    let kubectl: Value =
        serde_json::from_str(&case.kubectl(&["get", "gd", GAME, "-o", "json"]).await?)?;
    ensure!(object == kubectl, "{object:#} instead of {kubectl:#}");
    let list: Value = serde_yaml_ng::from_str(&ends(case, 0, &["get", "-o", "yaml"]).await?)?;
    let kinds: Vec<&Value> = list["items"]
        .as_array()
        .context("items")?
        .iter()
        .map(|it| &it["kind"])
        .collect();
    ensure!(
        list["kind"] == "List" && kinds == ["GameDeployment", "GameStatefulSet"],
        "{list:#}"
    );
    let names = ends(case, 0, &["get", "gsts", "-o", "name"]).await?;
    ensure!(
        names == format!("gamestatefulset.tkex.tencent.com/{SET}\n"),
        "{names}"
    );
    let all = ends(case, 0, &["get", "-A"]).await?;
    ensure!(
        all.starts_with("NAMESPACE") && all.contains(&case.namespace),
        "{all}"
    );
    let runs: Value = serde_json::from_str(&ends(case, 0, &["hooks", GAME, "-o", "json"]).await?)?;
    ensure!(runs["items"] == json!([]), "{runs}");
    let revisions: Value =
        serde_json::from_str(&ends(case, 0, &["history", SET, "-o", "json"]).await?)?;
    ensure!(
        revisions["items"][0]["kind"] == "ControllerRevision",
        "{revisions}"
    );
    let changed: Value =
        serde_json::from_str(&ends(case, 0, &["pause", GAME, "-o", "json"]).await?)?;
    ensure!(
        changed["spec"]["updateStrategy"]["paused"] == true,
        "{changed}"
    );
    let managers = case
        .kubectl(&["get", "gd", GAME, "-o", "yaml", "--show-managed-fields"])
        .await?;
    has(&managers, &["manager: kubectl-game"])
}

async fn mistakes_get_a_suggestion(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1).named("lobby")).await?;
    case.apply(Game::in_place(1).named("world")).await?;
    case.apply(Game::parallel(1).named("world")).await?;
    says(case, &["tree", "loby"], "did you mean gd/lobby?").await?;
    says(case, &["tree", "gsts/lobby"], "did you mean gd/lobby?").await?;
    says(
        case,
        &["status", "arena"],
        "no GameDeployment or GameStatefulSet \"arena\" in namespace",
    )
    .await?;
    says(case, &["pause", "world"], "write gd/world or gsts/world").await?;
    says(
        case,
        &["pause", "gamedeploymnt", "lobby"],
        "did you mean gamedeployment?",
    )
    .await?;
    says(case, &["pause", "deploy/lobby"], "use kubectl rollout").await?;
    says(case, &["lobby", "-n", "default"], "unrecognized subcommand").await?;
    says(case, &["resum", "lobby"], "'resume'").await?;
    let there = "did you mean gd/lobby -n plugin--mistakes";
    says(case, &["tree", "gd/lobby", "-n", "default"], there).await?;
    says(
        case,
        &["get", "--context", "nowhere"],
        "context \"nowhere\" does not exist",
    )
    .await?;
    says(case, &["get", "--kubeconfig", "/nowhere"], "kubeconfig: ").await?;
    says(
        case,
        &["set", "image", "lobby", "gaem=game:v2"],
        "did you mean \"game\"?",
    )
    .await?;
    says(case, &["undo", "lobby"], "no earlier revision").await
}

async fn completion_knows_commands_and_workloads(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    for shell in ["bash", "zsh", "fish"] {
        has(
            &ends(case, 0, &["completion", shell]).await?,
            &["kubectl-game", "resume"],
        )?;
    }
    // What kubectl's own completion script asks kubectl, and kubectl its plugin.
    let complete = async |words: &[&str]| {
        let words = [&["__complete", "game"], words].concat();
        run(&mut case.kubectl_command(&words).await?, "").await
    };
    has(
        &complete(&["re"]).await?,
        &["resume\n", "retry\n", "restart\n", ":4"],
    )?;
    has(
        &complete(&["tree", "gd/"]).await?,
        &["gd/test-gamedeployment\n"],
    )?;
    has(&complete(&["status", "--ti"]).await?, &["--timeout\n"])
}

async fn lint_says_what_the_server_would_refuse(case: &mut Case) -> Result<()> {
    let file = |path: &str| repository().join(path).to_string_lossy().into_owned();
    let bad = file("e2e/manifests/bad/replicas-negative.yaml");
    let printed = ends(case, 1, &["lint", &bad]).await?;
    has(&printed, &["replicas-negative.yaml:", "spec.replicas"])?;
    ensure!(
        ends(case, 0, &["lint", &file("examples/canary")])
            .await?
            .is_empty()
    );
    let Ended { code, stderr, .. } = case.game(&["lint", "/nowhere.yaml"]).await?;
    ensure!(
        code == 2 && stderr.contains("/nowhere.yaml"),
        "{code}: {stderr}"
    );
    Ok(())
}

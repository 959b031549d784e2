//! Runs the commands of the README, the walkthroughs and the runbooks in order on empty clusters, and compares the
//! output with what the documents show.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::cluster::control_plane::ControlPlane;
use e2e::cluster::operator::Operator;
use e2e::documents::shell::Shell;
use e2e::documents::transcript::{DocCommand, commands};
use e2e::wait::eventually;
use judge::object::is_terminating;

e2e::tests![
    the_first_hour_prints_what_the_readme_shows,
    a_canary_prints_what_the_walkthrough_shows,
    a_guarded_deletion_and_the_runbooks_print_what_the_documents_show,
    every_command_of_the_tutorials_is_tested,
];

const README: &str = "README.md";
const WALKTHROUGHS: &str = "docs/walkthroughs.md";

/// A section of a document: (document, heading).
type Section = (&'static str, &'static str);

/// Sections whose commands are run in order, each list on a cluster of its own.
const SECTIONS: [&[Section]; 3] = [
    &[(README, "The first hour")],
    &[
        (README, "Install"),
        (WALKTHROUGHS, "A canary, step by step"),
        (WALKTHROUGHS, "kubectl game"),
    ],
    &[(WALKTHROUGHS, "A deletion guarded by a hook"), (WALKTHROUGHS, "What kubectl apply refuses")],
];

/// Namespace of the release in the README.
const SYSTEM: &str = "gamekeeper-system";

/// Commands of the documents that are not run here, and why.
const NOT_RUN: [(&str, &str); 12] = [
    (
        "make demo",
        "takes minutes and leaves a cluster behind; walkthroughs.rs tests the same steps",
    ),
    ("make test", "runs this test"),
    ("make bench", "takes an hour on an otherwise idle machine"),
    (
        "make install-plugin",
        "makes a release build; the plugin that the tests built is on the PATH",
    ),
    (
        "docker build",
        "needs a container engine and a registry; e2e/image/check.sh builds what it can",
    ),
    ("gamekeeper lint", "run as kubectl game lint, which is the same code"),
    ("gamekeeper try", "tested by tests/try.rs"),
    (
        "kubectl game status cluster/",
        "lifecycle hooks are disabled by default, so the CRD of Clusters is not installed; run by real_lifecycle.rs",
    ),
    (
        "kubectl delete hookrun -n gamekeeper-hooks",
        "ends a script on a node; run by real_lifecycle.rs",
    ),
    (
        "kubectl game release pod/POD",
        "needs a guarded pod without a workload, and the runbooks leave none; tested by kubectl-game/tests/program",
    ),
    ("kubectl logs", "nodes are simulated and have no logs"),
    ("kubectl -n gamekeeper-system logs", "nodes are simulated and have no logs"),
];

/// Runbooks that other tests follow, because they need a release that cannot be uninstalled, or whose namespace is gone.
const FOLLOWED_ELSEWHERE: [&str; 2] =
    ["The release cannot be uninstalled", "The namespace of the operator was deleted"];

/// Commands in the documents' prose.
const INLINE: [&str; 2] = ["make help", "gamekeeper run --help"];

fn is_run(command: &str) -> bool {
    !NOT_RUN.iter().any(|(prefix, _)| command.starts_with(prefix))
}

fn read(document: &str) -> Result<String> {
    let path = repository().join(document);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

async fn every_command_of_the_tutorials_is_tested(_: &mut Case) -> Result<()> {
    // The minimum guards against a layout in which no commands are found.
    ensure_all_commands_are_run(README, 12)?;
    ensure_all_commands_are_run(WALKTHROUGHS, 16)
}

fn ensure_all_commands_are_run(document: &str, minimum: usize) -> Result<()> {
    let text = read(document)?;
    let mut blocks = commands(&text)?;
    blocks.retain(|it| is_run(&it.command));
    for command in &blocks {
        let mut sections = SECTIONS.iter().copied().flatten();
        let is_listed =
            sections.any(|(name, section)| *name == document && *section == command.section);
        ensure!(is_listed, "{document}: no test runs {command:?}");
    }
    ensure!(blocks.len() >= minimum, "{document}: {blocks:#?}");
    let prose = text.lines().filter(|line| !line.starts_with("    "));
    let code_in_prose = prose.flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_command = |code: &&str| {
        let programs = ["make ", "docker ", "helm ", "cargo ", "gamekeeper "];
        programs.iter().any(|program| code.starts_with(program))
    };
    for command in code_in_prose.filter(is_command).filter(|it| is_run(it)) {
        ensure!(INLINE.contains(&command), "{document}: no test runs `{command}`");
    }
    Ok(())
}

async fn the_first_hour_prints_what_the_readme_shows(case: &mut Case) -> Result<()> {
    on_an_empty_cluster(case, "first-hour", async |reader| {
        reader.follow(SECTIONS[0]).await?;
        for line in INLINE {
            reader.run(&command("Inline", line), "arena").await?;
        }
        Ok(())
    })
    .await
}

async fn a_canary_prints_what_the_walkthrough_shows(case: &mut Case) -> Result<()> {
    on_an_empty_cluster(case, "canary", async |reader| reader.follow(SECTIONS[1]).await).await
}

async fn a_guarded_deletion_and_the_runbooks_print_what_the_documents_show(
    case: &mut Case,
) -> Result<()> {
    on_an_empty_cluster(case, "guarded", async |reader| {
        let install =
            "helm install gamekeeper charts/gamekeeper -n gamekeeper-system --create-namespace";
        reader.run(&command("Before", install), "none").await?;
        reader.follow(SECTIONS[2]).await?;
        reader.follow_operations().await
    })
    .await
}

async fn on_an_empty_cluster(
    case: &mut Case,
    purpose: &str,
    follow: impl AsyncFnOnce(&mut Reader<'_>) -> Result<()>,
) -> Result<()> {
    case.operator.terminate().await?;
    let plane = ControlPlane::empty(purpose).await?;
    let mut reader = Reader {
        shell: Shell::admin(&plane).await?,
        plane: &plane,
        folder: case.folder(),
        operator: None,
    };
    let outcome = follow(&mut reader).await;
    let stopped = reader.stop_operator().await;
    plane.stop().await?;
    outcome.and(stopped)
}

/// A user who follows the documents.
struct Reader<'a> {
    shell: Shell,
    plane: &'a ControlPlane,
    folder: &'a Path,
    /// Nodes are simulated, so the operator runs as a process instead of in the Deployment's pods.
    operator: Option<Operator>,
}

impl Reader<'_> {
    async fn follow(&mut self, sections: &[Section]) -> Result<()> {
        for (document, section) in sections {
            let mut commands = commands(&read(document)?)?;
            commands.retain(|it| it.section == *section);
            let has_commands = !commands.is_empty();
            ensure!(has_commands, "{document} has no commands in {section}");
            let workload = match *section {
                "The first hour" => "arena",
                _ => "test-gamedeployment",
            };
            for command in &commands {
                self.run(command, workload).await?;
            }
        }
        Ok(())
    }

    /// Runs the commands of the runbooks. `NAME` stands for a workload with every kind of hook, and `RUN` for one of
    /// the walkthroughs' HookRuns.
    async fn follow_operations(&mut self) -> Result<()> {
        let example = "kubectl apply -f examples/features/hooks-around-an-update.yaml";
        self.run(&command("Before", example), "checked").await?;
        let first_run = ["get", "hookruns", "-o", "jsonpath={.items[0].metadata.name}"];
        let run = self.plane.kubectl(&first_run, "").await?;
        let (mut steps, mut last) = (Vec::new(), None);
        let mut followed = commands(&read("docs/operations.md")?)?;
        followed.retain(|it| !FOLLOWED_ELSEWHERE.contains(&&*it.section));
        for mut it in followed {
            it.command = it.command.replace("NAME", "checked").replace("RUN", &run);
            match it.command.starts_with("helm uninstall") {
                true => last = Some(it),
                false => steps.push(it),
            }
        }
        ensure!(steps.len() > 15, "{steps:#?}");
        for step in steps.iter().chain(&last) {
            self.run(step, "checked").await?;
        }
        Ok(())
    }

    async fn run(&mut self, command: &DocCommand, workload: &str) -> Result<()> {
        let line = &command.command;
        if !is_run(line) {
            return Ok(());
        }
        if line.starts_with("helm uninstall") {
            self.stop_operator().await?;
        }
        if line.contains("$(kubectl get pods") {
            self.until_no_pod_is_terminating().await?;
        }
        self.shell.check(command, workload).await?;
        if line.starts_with("helm install") {
            let (plane, folder) = (self.plane, self.folder);
            let operator = Operator::installed(plane, SYSTEM, "gamekeeper", folder).await?;
            self.operator.insert(operator).start().await?;
        }
        Ok(())
    }

    /// Waits until the command names one of the pods that the document shows, and not one that was just scaled in.
    async fn until_no_pod_is_terminating(&self) -> Result<()> {
        let limit = Duration::from_secs(120);
        eventually("no pod is Terminating", limit, async || {
            let pods = self.plane.get("/api/v1/namespaces/default/pods").await?;
            let pods = pods["items"].as_array().context("not a list")?;
            ensure!(!pods.iter().any(is_terminating), "{pods:#?}");
            Ok(())
        })
        .await
    }

    async fn stop_operator(&mut self) -> Result<()> {
        match self.operator.take() {
            Some(mut operator) => operator.terminate().await,
            None => Ok(()),
        }
    }
}

fn command(section: &str, line: &str) -> DocCommand {
    DocCommand { section: section.to_owned(), command: line.to_owned(), output: Vec::new() }
}

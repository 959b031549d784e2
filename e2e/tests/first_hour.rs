//! Runs the commands of the README, the walkthroughs and the runbooks in order on empty clusters, and compares the
//! output with what the documents show.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::cluster::control_plane::ControlPlane;
use e2e::documents::reader::{FIRST_HOUR, Reader, Section, is_run, read};
use e2e::documents::transcript::{DocCommand, commands};

const README: &str = "README.md";
const WALKTHROUGHS: &str = "docs/walkthroughs.md";

/// Sections whose commands are run in order, each list on a cluster of its own.
const SECTIONS: [&[Section]; 3] = [
    &[FIRST_HOUR],
    &[
        (README, "Install"),
        (WALKTHROUGHS, "A canary, step by step"),
        (WALKTHROUGHS, "kubectl game"),
    ],
    &[(WALKTHROUGHS, "A deletion guarded by a hook"), (WALKTHROUGHS, "What kubectl apply refuses")],
];

/// Runbooks that other tests follow, because they need a release that cannot be uninstalled, or whose namespace is gone.
const FOLLOWED_ELSEWHERE: [&str; 2] =
    ["The release cannot be uninstalled", "The namespace of the operator was deleted"];

/// Commands in the documents' prose.
const INLINE: [&str; 2] = ["make help", "gamekeeper run --help"];

#[e2e::test]
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

#[e2e::test]
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

#[e2e::test]
async fn a_canary_prints_what_the_walkthrough_shows(case: &mut Case) -> Result<()> {
    on_an_empty_cluster(case, "canary", async |reader| reader.follow(SECTIONS[1]).await).await
}

#[e2e::test]
async fn a_guarded_deletion_and_the_runbooks_print_what_the_documents_show(
    case: &mut Case,
) -> Result<()> {
    on_an_empty_cluster(case, "guarded", async |reader| {
        let install =
            "helm install gamekeeper charts/gamekeeper -n gamekeeper-system --create-namespace";
        reader.run(&command("Before", install), "none").await?;
        reader.follow(SECTIONS[2]).await?;
        follow_operations(reader).await
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
    let mut reader = Reader::new(&plane, case.folder()).await?;
    let outcome = follow(&mut reader).await;
    let stopped = reader.stop_operator().await;
    plane.stop().await?;
    outcome.and(stopped)
}

/// Runs the commands of the runbooks. `NAME` stands for a workload with every kind of hook, and `RUN` for one of the
/// walkthroughs' HookRuns.
async fn follow_operations(reader: &mut Reader<'_>) -> Result<()> {
    let example = "kubectl apply -f examples/features/hooks-around-an-update.yaml";
    reader.run(&command("Before", example), "checked").await?;
    let first_run = ["get", "hookruns", "-o", "jsonpath={.items[0].metadata.name}"];
    let run = reader.plane.kubectl(&first_run, "").await?;
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
        reader.run(step, "checked").await?;
    }
    Ok(())
}

fn command(section: &str, line: &str) -> DocCommand {
    DocCommand { section: section.to_owned(), command: line.to_owned(), output: Vec::new() }
}

//! Types the commands of the README, the walkthroughs and the runbooks from top to bottom on an empty
//! cluster, and compares the output with what the documents show.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::cluster::control_plane::ControlPlane;
use e2e::cluster::operator::Operator;
use e2e::documents::shell::Shell;
use e2e::documents::transcript::{Typed, commands};

e2e::tests![
    the_first_hour_prints_what_the_readme_shows,
    a_canary_prints_what_the_walkthrough_shows,
    a_guarded_deletion_and_the_runbooks_print_what_the_documents_show,
    no_command_of_the_tutorials_is_left_out,
];

const README: &str = "README.md";
const WALKTHROUGHS: &str = "docs/walkthroughs.md";

/// A section of a document: (document, heading).
type Section = (&'static str, &'static str);

/// Sections that are typed one after the other. Each list has a cluster of its own.
const SECTIONS: [&[Section]; 3] = [
    &[(README, "The first hour")],
    &[
        (README, "Install"),
        (WALKTHROUGHS, "A canary, step by step"),
        (WALKTHROUGHS, "kubectl game"),
    ],
    &[
        (WALKTHROUGHS, "A deletion guarded by a hook"),
        (WALKTHROUGHS, "What kubectl apply refuses"),
    ],
];

/// Namespace of the release in the README.
const SYSTEM: &str = "gamekeeper-system";

/// Commands of the documents that are not typed here, and why.
const NOT_TYPED: [(&str, &str); 9] = [
    (
        "make demo",
        "plays what walkthroughs.rs plays, in minutes and on a cluster that stays",
    ),
    ("make test", "is what types all this"),
    (
        "make bench",
        "takes an hour, of a machine that does nothing else",
    ),
    (
        "make install-plugin",
        "a release build; the plugin that the tests built is on the PATH",
    ),
    (
        "docker build",
        "needs a container engine and a registry; e2e/image/check.sh builds what it can",
    ),
    (
        "gamekeeper lint",
        "typed as kubectl game lint, which is the same code",
    ),
    (
        "gamekeeper try",
        "tests/try.rs types it, with files of its own",
    ),
    ("kubectl logs", "nodes are simulated: nothing logs"),
    (
        "kubectl -n gamekeeper-system logs",
        "nodes are simulated: nothing logs",
    ),
];

/// Commands that the documents name in the middle of a sentence.
const IN_PASSING: [&str; 2] = ["make help", "gamekeeper run --help"];

fn is_typed(command: &str) -> bool {
    !NOT_TYPED.iter().any(|(not, _)| command.starts_with(not))
}

fn read(document: &str) -> Result<String> {
    let path = repository().join(document);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

async fn no_command_of_the_tutorials_is_left_out(_: &mut Case) -> Result<()> {
    // The minimum guards against a layout in which no commands are found.
    all_commands_are_typed(README, 12)?;
    all_commands_are_typed(WALKTHROUGHS, 16)
}

fn all_commands_are_typed(document: &str, at_least: usize) -> Result<()> {
    let text = read(document)?;
    let mut blocks = commands(&text)?;
    blocks.retain(|it| is_typed(&it.command));
    for typed in &blocks {
        let mut sections = SECTIONS.iter().copied().flatten();
        let is_there =
            sections.any(|(name, section)| *name == document && *section == typed.section);
        ensure!(is_there, "{document}: no test types {typed:?}");
    }
    ensure!(blocks.len() >= at_least, "{document}: {blocks:#?}");
    let prose = text.lines().filter(|line| !line.starts_with("    "));
    let in_prose = prose.flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_command = |code: &&str| {
        let programs = ["make ", "docker ", "helm ", "cargo ", "gamekeeper "];
        programs.iter().any(|program| code.starts_with(program))
    };
    for command in in_prose.filter(is_command).filter(|it| is_typed(it)) {
        ensure!(
            IN_PASSING.contains(&command),
            "{document}: no test types `{command}`"
        );
    }
    Ok(())
}

async fn the_first_hour_prints_what_the_readme_shows(case: &mut Case) -> Result<()> {
    on_an_empty_cluster(case, "first-hour", async |reader| {
        reader.reads(SECTIONS[0]).await?;
        for line in IN_PASSING {
            reader.types(&typed("In passing", line), "arena").await?;
        }
        Ok(())
    })
    .await
}

async fn a_canary_prints_what_the_walkthrough_shows(case: &mut Case) -> Result<()> {
    on_an_empty_cluster(case, "canary", async |reader| {
        reader.reads(SECTIONS[1]).await
    })
    .await
}

async fn a_guarded_deletion_and_the_runbooks_print_what_the_documents_show(
    case: &mut Case,
) -> Result<()> {
    on_an_empty_cluster(case, "guarded", async |reader| {
        let install =
            "helm install gamekeeper charts/gamekeeper -n gamekeeper-system --create-namespace";
        reader.types(&typed("Before", install), "none").await?;
        reader.reads(SECTIONS[2]).await?;
        reader.reads_operations().await
    })
    .await
}

async fn on_an_empty_cluster(
    case: &mut Case,
    purpose: &str,
    read: impl AsyncFnOnce(&mut Reader<'_>) -> Result<()>,
) -> Result<()> {
    case.operator.terminate().await?;
    let plane = ControlPlane::empty(purpose).await?;
    let mut reader = Reader {
        shell: Shell::of(&plane).await?,
        plane: &plane,
        folder: case.folder(),
        operator: None,
    };
    let outcome = read(&mut reader).await;
    let ended = reader.ends_the_operator().await;
    plane.stop().await?;
    outcome.and(ended)
}

/// A user who types the commands of the documents.
struct Reader<'a> {
    shell: Shell,
    plane: &'a ControlPlane,
    folder: &'a Path,
    /// Nodes are simulated, so what the Deployment's pods would run is started here.
    operator: Option<Operator>,
}

impl Reader<'_> {
    async fn reads(&mut self, sections: &[Section]) -> Result<()> {
        for (document, section) in sections {
            let mut typed = commands(&read(document)?)?;
            typed.retain(|it| it.section == *section);
            ensure!(!typed.is_empty(), "{document} has no commands in {section}");
            let workload = match *section {
                "The first hour" => "arena",
                _ => "test-gamedeployment",
            };
            for typed in &typed {
                self.types(typed, workload).await?;
            }
        }
        Ok(())
    }

    /// `NAME` is a workload with each kind of hook, `RUN` one of the HookRuns that the walkthroughs left.
    async fn reads_operations(&mut self) -> Result<()> {
        let example = "kubectl apply -f examples/features/hooks-around-an-update.yaml";
        self.types(&typed("Before", example), "checked").await?;
        let run = [
            "get",
            "hookruns",
            "-o",
            "jsonpath={.items[0].metadata.name}",
        ];
        let run = self.plane.kubectl(&run, "").await?;
        let (mut steps, mut last) = (Vec::new(), None);
        for mut it in commands(&read("docs/operations.md")?)? {
            it.command = it.command.replace("NAME", "checked").replace("RUN", &run);
            match it.command.starts_with("helm uninstall") {
                true => last = Some(it),
                false => steps.push(it),
            }
        }
        ensure!(steps.len() > 15, "{steps:#?}");
        for typed in steps.iter().chain(&last) {
            self.types(typed, "checked").await?;
        }
        Ok(())
    }

    async fn types(&mut self, typed: &Typed, workload: &str) -> Result<()> {
        let line = &typed.command;
        if !is_typed(line) {
            return Ok(());
        }
        if line.starts_with("helm uninstall") {
            self.ends_the_operator().await?;
        }
        self.shell.play(typed, workload).await?;
        if line.starts_with("helm install") {
            let (plane, folder) = (self.plane, self.folder);
            let operator = Operator::installed(plane, SYSTEM, "gamekeeper", folder).await?;
            self.operator.insert(operator).start().await?;
        }
        Ok(())
    }

    async fn ends_the_operator(&mut self) -> Result<()> {
        match self.operator.take() {
            Some(mut operator) => operator.terminate().await,
            None => Ok(()),
        }
    }
}

fn typed(section: &str, line: &str) -> Typed {
    Typed {
        section: section.to_owned(),
        command: line.to_owned(),
        printed: Vec::new(),
    }
}

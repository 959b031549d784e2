//! A user who types the commands of the documents on a cluster, one after the other, and compares what they print.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use judge::object::is_terminating;

use crate::checkout::repository;
use crate::cluster::chart::CHART;
use crate::cluster::control_plane::ControlPlane;
use crate::cluster::operator::Operator;
use crate::documents::shell::Shell;
use crate::documents::transcript::{DocCommand, commands};
use crate::wait::eventually;

/// A section of a document: (document, heading).
pub type Section = (&'static str, &'static str);

/// The first hour of the README.
pub const FIRST_HOUR: Section = ("README.md", "The first hour");

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

/// Whether a command of the documents is run.
pub fn is_run(command: &str) -> bool {
    !NOT_RUN.iter().any(|(prefix, _)| command.starts_with(prefix))
}

/// The text of a document.
pub fn read(document: &str) -> Result<String> {
    let path = repository().join(document);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// A user who follows the documents.
pub struct Reader<'a> {
    shell: Shell,
    /// The cluster.
    pub plane: &'a ControlPlane,
    folder: &'a Path,
    /// What the user types in place of the chart's folder.
    chart: &'a str,
    /// Nodes are simulated, so the operator runs as a process instead of in the Deployment's pods.
    operator: Option<Operator>,
}

impl<'a> Reader<'a> {
    /// A user in this repository. The operator's files are kept in `folder`.
    pub async fn new(plane: &'a ControlPlane, folder: &'a Path) -> Result<Self> {
        let shell = Shell::admin(plane).await?;
        Ok(Self { shell, plane, folder, chart: CHART, operator: None })
    }

    /// A user who has only a release: its chart, as helm finds it, and a folder with its examples.
    pub async fn of_release(
        plane: &'a ControlPlane,
        folder: &'a Path,
        chart: &'a str,
        examples: &Path,
    ) -> Result<Self> {
        let shell = Shell::admin(plane).await?.in_folder(examples);
        Ok(Self { shell, plane, folder, chart, operator: None })
    }

    /// Runs the commands of these sections.
    pub async fn follow(&mut self, sections: &[Section]) -> Result<()> {
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

    /// Runs a command, unless it is one that is not run, and checks its output.
    pub async fn run(&mut self, command: &DocCommand, workload: &str) -> Result<()> {
        let line = command.command.replace(CHART, self.chart);
        if !is_run(&line) {
            return Ok(());
        }
        let command = &DocCommand { command: line.clone(), ..command.clone() };
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

    /// Stops the operator, if it runs.
    pub async fn stop_operator(&mut self) -> Result<()> {
        match self.operator.take() {
            Some(mut operator) => operator.terminate().await,
            None => Ok(()),
        }
    }
}

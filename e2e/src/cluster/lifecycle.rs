//! A separate control plane for tests of Clusters. The chart is installed on it with lifecycle hooks enabled.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use judge::object::text;
use judge::{Event, Witness, lifecycle_violations, violations};
use serde_json::{Value, json};

use crate::cluster::chart::CHART;
use crate::cluster::control_plane::ControlPlane;
use crate::cluster::operator::Operator;
use crate::process::command::{CommandOutput, go_command, run_unchecked};
use crate::wait::{LIMIT, eventually};

/// Namespace of the release.
pub const SYSTEM: &str = "gamekeeper-system";
/// Namespace in which the scripts run.
pub const HOOKS: &str = "gamekeeper-hooks";
/// Namespace of the games.
const GAMES: &str = "default";
/// The registry of the operator's image, which only the real node pulls.
const REGISTRY: &str = "registry.test/";

/// A control plane with the chart's operator.
pub struct Stage {
    /// The control plane. It is never dropped, because a node may need it until the process ends.
    pub plane: &'static ControlPlane,
    /// The operator.
    pub operator: Operator,
    witness: Witness,
    folder: PathBuf,
}

impl Stage {
    /// Starts a stage, runs a test on it, and stops it. Fails if the judge finds a violation.
    pub async fn play(
        name: &str,
        folder: &Path,
        test: impl AsyncFnOnce(&mut Stage) -> Result<()>,
    ) -> Result<()> {
        let plane: &'static _ = Box::leak(Box::new(ControlPlane::empty(name).await?));
        let outcome = match Self::install(plane, folder).await {
            Ok(mut stage) => {
                let outcome = test(&mut stage).await;
                stage.close(outcome).await
            }
            Err(error) => Err(error),
        };
        plane.stop().await?;
        outcome
    }

    async fn install(plane: &'static ControlPlane, folder: &Path) -> Result<Self> {
        let image = format!("--set=image.repository={REGISTRY}gamekeeper");
        let install = [
            "install",
            "gamekeeper",
            CHART,
            "--namespace",
            SYSTEM,
            "--create-namespace",
            "--set=lifecycleHooks.enabled=true",
            // The webhook's Service could not reach the operator, which runs outside the cluster.
            "--set=admission.enabled=false",
            &image,
        ];
        plane.helm(&install).await?;
        plane.wait_for_crds().await?;
        let mut operator = Operator::installed(plane, SYSTEM, "gamekeeper", folder).await?;
        // With leader election, a new operator would wait until the lease of a killed one expires.
        operator.disable_leader_election();
        operator.start().await?;
        let witness = Witness::start_for_lifecycle(&plane.client()).await?;
        let folder = folder.to_owned();
        Ok(Self { plane, operator, witness, folder })
    }

    /// Kills the operator (kill -9) and starts another one.
    pub async fn replace_operator(&mut self) -> Result<()> {
        self.operator.kill().await?;
        self.operator.start().await
    }

    /// Combines a test's outcome with the judge's verdict. If either is a failure, saves objects and writes for
    /// debugging.
    async fn close(&mut self, outcome: Result<()>) -> Result<()> {
        let outcome = match (outcome, self.verdict().await) {
            (Err(error), Err(verdict)) => Err(anyhow!("{error:#}\n{verdict:#}")),
            (outcome, verdict) => outcome.and(verdict),
        };
        if outcome.is_err() {
            let objects = "clusters,nodes,hookruns,jobs,pods,gamedeployments,events";
            let objects = ["get", objects, "-A", "-o", "yaml"];
            let objects = self.plane.kubectl(&objects, "").await;
            let objects = objects.unwrap_or_else(|error| format!("{error:#}"));
            std::fs::write(self.folder.join("lifecycle.yaml"), objects)?;
            let writes = ["", HOOKS, GAMES].map(|name| self.plane.writes_as_text(name));
            let writes: String = writes.into_iter().collect::<Result<_>>()?;
            std::fs::write(self.folder.join("lifecycle-writes.txt"), writes)?;
        }
        outcome
    }

    /// Fails if the operator violated a rule, or lacked a permission.
    async fn verdict(&mut self) -> Result<()> {
        if self.operator.is_running() {
            self.operator.terminate().await?;
        }
        let mut events = self.plane.audit.writes("")?;
        events.extend(self.plane.audit.writes(HOOKS)?);
        let unanswered = self.witness.unanswered(&events).await?;
        events.extend(unanswered);
        let username = self.operator.username();
        let is_operator = |user: &str| user == username;
        let mut games = self.plane.audit.writes(GAMES)?;
        // Events about cluster-scoped objects are in this namespace, too.
        games.retain(|event| event.resource() != "events");
        let all = || events.iter().chain(&games);
        let refused: Vec<&str> = all()
            .filter(|event| is_operator(&event.user.username))
            .filter_map(Event::missing_permission)
            .collect();
        ensure!(refused.is_empty(), "the operator lacks permissions: {refused:#?}");
        let runs = events.iter().filter(|event| event.resource() == "hookruns");
        ensure!(runs.count() > 0, "the audit log shows no HookRun");
        let mut found = lifecycle_violations(&events, is_operator);
        found.extend(violations(&games, self.operator.starts(), is_operator));
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        ensure!(lines.is_empty(), "violations:\n{}", lines.join("\n"));
        Ok(())
    }

    /// The name and tag of the operator's image, without the registry.
    pub async fn image(&self) -> Result<String> {
        let path = format!("/apis/apps/v1/namespaces/{SYSTEM}/deployments/gamekeeper");
        let deployment = self.plane.get(&path).await?;
        let image = text(&deployment, "/spec/template/spec/containers/0/image");
        let image = image.strip_prefix(REGISTRY);
        Ok(image.context("the chart's image is not in the registry")?.to_owned())
    }

    /// Runs kubectl with the words of a line as arguments.
    pub async fn kubectl(&self, line: &str) -> Result<String> {
        self.plane.kubectl_line(line).await
    }

    /// Runs `kubectl game` with the words of a line as arguments. The command may fail.
    pub async fn game(&self, line: &str) -> Result<CommandOutput> {
        let mut command = go_command(&self.plane.kubectl);
        command
            .arg("game")
            .args(line.split(' '))
            .env("PATH", self.plane.path().await?)
            .env("KUBECONFIG", &self.plane.kubeconfig);
        run_unchecked(&mut command).await
    }

    /// Applies an object.
    pub async fn apply(&self, object: &Value) -> Result<String> {
        let object = object.to_string();
        self.plane.kubectl(&["apply", "-f", "-"], &object).await
    }

    /// Merges fields into a Cluster's spec.
    pub async fn patch(&self, cluster: &str, spec: Value) -> Result<()> {
        let patch = json!({"spec": spec}).to_string();
        let words = ["patch", "cluster", cluster, "--type=merge", "-p", &patch];
        self.plane.kubectl(&words, "").await?;
        Ok(())
    }

    /// Reads a Cluster.
    pub async fn cluster(&self, name: &str) -> Result<Value> {
        let path = format!("/apis/tkex.tencent.com/v1alpha1/clusters/{name}");
        self.plane.get(&path).await
    }

    /// Status, reason and message of a condition.
    pub async fn condition(&self, cluster: &str, type_: &str) -> Result<String> {
        let cluster = self.cluster(cluster).await?;
        let conditions = cluster["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let found = conditions.find(|condition| condition["type"] == type_);
        let found = found.with_context(|| format!("no {type_} in {:#}", cluster["status"]))?;
        let [status, reason, message] =
            ["/status", "/reason", "/message"].map(|field| text(found, field));
        Ok(format!("{status} {reason}: {message}"))
    }

    /// Waits until a condition contains these words.
    pub async fn until_condition(&self, cluster: &str, type_: &str, words: &str) -> Result<String> {
        eventually(&format!("{type_} has {words:?}"), LIMIT, async || {
            let condition = self.condition(cluster, type_).await?;
            ensure!(condition.contains(words), "{condition}");
            Ok(condition)
        })
        .await
    }

    /// The names of all HookRuns, in order of creation.
    pub fn created_runs(&self) -> Result<Vec<String>> {
        let writes = self.plane.audit.writes(HOOKS)?;
        let created = writes.iter().filter(|event| {
            event.verb == "create" && event.resource() == "hookruns" && event.succeeded()
        });
        let objects = created.filter_map(|event| event.response_object.as_ref());
        Ok(objects.map(|run| text(run, "/metadata/name").to_owned()).collect())
    }

    /// The Jobs that run scripts.
    pub async fn jobs(&self) -> Result<Vec<Value>> {
        let path = format!("/apis/batch/v1/namespaces/{HOOKS}/jobs");
        let jobs = self.plane.get(&path).await?;
        Ok(jobs["items"].as_array().cloned().unwrap_or_default())
    }
}

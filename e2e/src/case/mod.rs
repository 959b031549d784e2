//! The environment of a test: its own namespace, operator, kubeconfig and hook server.

pub mod bad_manifest;
pub(crate) mod evidence;
pub mod gitops;
mod observe;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use judge::object::text;
use judge::{Counts, Event, Violation, Witness};
use serde_json::{Value, json};
use tokio::process::Command;

use self::gitops::{GitOps, Sender, Style};
use crate::cluster::control_plane::ControlPlane;
use crate::cluster::operator::{ACCOUNT, Operator};
use crate::documents::shell::Shell;
use crate::faults::FaultProxy;
use crate::process::command::{CommandOutput, go_command, run, run_unchecked};
use crate::servers::hook_server::HookServer;
use crate::wait::{LIMIT, eventually};
use crate::workload::view::View;
use crate::workload::{GAME, SET};

/// The environment of a test.
pub struct Case {
    plane: &'static ControlPlane,
    /// The test's namespace.
    pub namespace: String,
    folder: PathBuf,
    kubeconfig: PathBuf,
    /// Kind of the workload under test, as kubectl accepts it.
    kind: &'static str,
    /// Name of the workload under test.
    name: &'static str,
    /// The test's hook server.
    pub hooks: HookServer,
    /// The test's operator. Other tests are not affected when it is killed.
    pub operator: Operator,
    /// Records which of the writes without a response took effect. None until `start_witness` is called.
    witness: Option<Witness>,
    /// Whether a mesh injects its proxy into the pods of the namespace.
    pub has_mesh: bool,
    /// How a GitOps tool is to send the manifest of the workload under test. None if users apply it.
    pub delivery: Option<Style>,
    /// The tool, once it has created the workload.
    gitops: Option<GitOps>,
}

impl Case {
    /// Creates the namespace and starts the operator. The test's files are kept in `folder`.
    pub async fn open(plane: &'static ControlPlane, name: &str, folder: &Path) -> Result<Self> {
        let mut case = Self::prepare(plane, name, folder).await?;
        case.operator.start().await?;
        Ok(case)
    }

    /// Like `open`, but does not start the operator.
    pub async fn prepare(plane: &'static ControlPlane, name: &str, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let namespace = namespace(name);
        plane.create_namespace(&namespace).await?;
        // Without it, the API server refuses pods.
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        eventually("the default service account exists", LIMIT, async || plane.get(&account).await)
            .await?;
        let kubeconfig = folder.join("kubeconfig");
        std::fs::write(&kubeconfig, user_config(plane, &namespace)?)?;
        let operator = Operator::prepare(plane, &namespace, ACCOUNT, folder).await?;
        Ok(Case {
            plane,
            namespace,
            folder: folder.to_owned(),
            kubeconfig,
            kind: "gamedeployment",
            name: GAME,
            hooks: HookServer::start().await?,
            operator,
            witness: None,
            has_mesh: false,
            delivery: None,
            gitops: None,
        })
    }

    /// Makes the GameStatefulSet [`SET`] the workload under test.
    pub fn use_stateful_set(&mut self) {
        (self.kind, self.name) = ("gamestatefulset", SET);
    }

    /// The workload under test, as KIND/NAME.
    pub fn workload(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    /// The API path of the workload under test.
    pub fn path(&self) -> String {
        let (namespace, kind, name) = (&self.namespace, self.kind, self.name);
        format!("/apis/tkex.tencent.com/v1alpha1/namespaces/{namespace}/{kind}s/{name}")
    }

    /// Stops the operator and lets the judge check its writes. Fails on a violation.
    pub async fn close(&mut self) -> Result<()> {
        let violations = self.violations().await?;
        let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
        ensure!(lines.is_empty(), "violations:\n{}", lines.join("\n"));
        Ok(())
    }

    /// Stops the operator and returns what the judge finds. Fails if the operator lacked a permission.
    pub async fn violations(&mut self) -> Result<Vec<Violation>> {
        if self.operator.is_running() {
            self.operator.terminate().await?;
        }
        let mut events = self.plane.audit.evidence(&self.namespace)?;
        if let Some(witness) = &self.witness {
            let unanswered = witness.unanswered(&events).await?;
            events.extend(unanswered);
        }
        let operator = self.operator.username();
        let (namespace, _) =
            operator.rsplit_once(':').context("the operator's user is not a service account")?;
        let prefix = format!("{namespace}:");
        let operator_events =
            events.iter().filter(|event| event.user.username.starts_with(&prefix));
        let missing: Vec<&str> = operator_events.filter_map(Event::missing_permission).collect();
        ensure!(missing.is_empty(), "the operator lacks permissions:\n{}", missing.join("\n"));
        Ok(judge::violations(&events, self.operator.starts(), |user| user.starts_with(&prefix)))
    }

    /// Kills the operator (kill -9).
    pub async fn kill_operator(&mut self) -> Result<()> {
        self.start_witness().await?;
        self.operator.kill().await
    }

    /// Restarts the operator so that it reaches the API server through a proxy.
    pub async fn restart_behind_proxy(&mut self) -> Result<FaultProxy> {
        let proxy = self.plane().fault_proxy().await?;
        self.operator.terminate().await?;
        self.operator.use_proxy(&proxy)?;
        self.operator.start().await?;
        Ok(proxy)
    }

    /// Starts a witness, so that the judge knows which writes without a response took effect. For tests
    /// that kill or disconnect an operator.
    pub async fn start_witness(&mut self) -> Result<()> {
        if self.witness.is_none() {
            self.witness = Some(Witness::start(&self.plane.client(), &self.namespace).await?);
        }
        Ok(())
    }

    /// A second operator, with its own service account.
    pub async fn prepare_operator(&self, account: &str) -> Result<Operator> {
        Operator::prepare(self.plane, &self.namespace, account, &self.folder).await
    }

    /// The control plane.
    pub fn plane(&self) -> &'static ControlPlane {
        self.plane
    }

    /// Where the test keeps its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs kubectl as a user of this namespace and returns its output.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with(args, "").await
    }

    /// Runs kubectl as a user of this namespace, with this standard input.
    pub async fn kubectl_with(&self, args: &[&str], stdin: &str) -> Result<String> {
        let mut command = go_command(&self.plane.kubectl);
        command.args(args).env("KUBECONFIG", &self.kubeconfig);
        run(&mut command, stdin).await
    }

    /// Runs a kubectl command that must fail, and returns the error.
    pub async fn refused(&self, args: &[&str], stdin: &str) -> Result<String> {
        match self.kubectl_with(args, stdin).await {
            Ok(stdout) => anyhow::bail!("kubectl {args:?} was not refused: {stdout}"),
            Err(error) => Ok(format!("{error:#}")),
        }
    }

    /// Deletes a pod, and waits until it no longer exists. kubectl's own wait may never end if a pod with the same name is
    /// created at once.
    pub async fn delete_pod(&self, name: &str) -> Result<()> {
        let path = format!("pods/{name}");
        let uid = text(&self.get(&path).await?, "/metadata/uid").to_owned();
        self.kubectl(&["delete", "pod", name, "--wait=false"]).await?;
        let find = ["get", &path, "--ignore-not-found", "-o=jsonpath={.metadata.uid}"];
        self.eventually(&format!("pod {name} is gone"), async || {
            ensure!(self.kubectl(&find).await? != uid, "it still exists");
            Ok(())
        })
        .await
    }

    /// Waits until a kubectl command is refused with an error that contains these words.
    pub async fn until_refused(
        &self,
        description: &str,
        args: &[&str],
        stdin: &str,
        words: &str,
    ) -> Result<()> {
        self.eventually(description, async || {
            let error = self.refused(args, stdin).await?;
            ensure!(error.contains(words), "{error}");
            Ok(())
        })
        .await
    }

    /// Waits until the API server's authorizer, which caches roles and bindings, forbids an operator a request.
    pub async fn until_forbidden(&self, operator: &Operator, attributes: &Value) -> Result<()> {
        let spec = json!({"user": operator.username(), "resourceAttributes": attributes});
        let review = json!({"spec": spec});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        self.eventually("the permission is gone", async || {
            let response = self.plane.create(path, &review).await?;
            ensure!(response["status"]["allowed"] == false, "{response:#}");
            Ok(())
        })
        .await
    }

    /// A shell for a user of this namespace.
    pub async fn shell(&self) -> Result<Shell> {
        Shell::with(self.plane, self.kubeconfig.clone()).await
    }

    /// A kubectl command, not yet started, with the plugin on PATH.
    pub async fn kubectl_command(&self, args: &[&str]) -> Result<Command> {
        let mut command = go_command(&self.plane.kubectl);
        command.args(args);
        command.env("PATH", self.plane.path().await?).env("KUBECONFIG", &self.kubeconfig);
        Ok(command)
    }

    /// Runs `kubectl game` as a user of this namespace. It may fail.
    pub async fn game(&self, args: &[&str]) -> Result<CommandOutput> {
        let args = [&["game"], args].concat();
        run_unchecked(&mut self.kubectl_command(&args).await?).await
    }

    /// Creates an object of one of the operator's kinds, without the cost of starting kubectl.
    pub async fn create(&self, object: &Value) -> Result<()> {
        let plural = format!("{}s", text(object, "/kind").to_lowercase());
        let namespace = &self.namespace;
        let path = format!("/apis/tkex.tencent.com/v1alpha1/namespaces/{namespace}/{plural}");
        self.plane.create(&path, object).await?;
        Ok(())
    }

    /// Runs kubectl apply with a manifest.
    pub async fn apply(&self, manifest: impl ToString) -> Result<String> {
        let manifest = manifest.to_string();
        self.kubectl_with(&["apply", "-f", "-"], &manifest).await
    }

    /// Runs kubectl apply --server-side with a manifest.
    pub async fn server_side_apply(&self, manifest: impl ToString) -> Result<String> {
        let manifest = manifest.to_string();
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.kubectl_with(&apply, &manifest).await
    }

    /// Runs kubectl patch --type=json on KIND/NAME.
    pub async fn patch(&self, resource: &str, operations: Value) -> Result<String> {
        let operations = format!("-p={operations}");
        let (kind, name) = resource.split_once('/').context("not KIND/NAME")?;
        self.kubectl(&["patch", kind, name, "--type=json", &operations]).await
    }

    /// Replaces one field of the workload with kubectl patch.
    pub async fn replace(&self, path: &str, value: impl Into<Value>) -> Result<()> {
        let operation = json!([{"op": "replace", "path": path, "value": value.into()}]);
        let printed = self.patch(&self.workload(), operation).await?;
        let expected = format!("{}.tkex.tencent.com/{} patched\n", self.kind, self.name);
        ensure!(printed == expected || printed.ends_with("patched (no change)\n"), "{printed}");
        Ok(())
    }

    /// Lets a GitOps tool create the workload under test, and send its manifest again every few seconds.
    pub async fn deliver(&mut self, style: Style, manifest: Value) -> Result<()> {
        let sender = Sender {
            kubectl: self.plane.kubectl.clone(),
            kubeconfig: self.kubeconfig.clone(),
            file: self.folder.join("in-git.json"),
            style,
        };
        self.gitops = Some(GitOps::start(sender, manifest).await?);
        Ok(())
    }

    /// Stops the GitOps tool. Fails if it has stopped before.
    pub fn stop_delivery(&mut self) -> Result<()> {
        self.gitops.take().map_or(Ok(()), |gitops| gitops.ensure_running())
    }

    /// Changes one field of the workload in its manifest: in Git, or with kubectl patch.
    pub async fn change(&self, path: &str, value: impl Into<Value>) -> Result<()> {
        match &self.gitops {
            Some(gitops) => gitops.commit(path, value.into()).await,
            None => self.replace(path, value).await,
        }
    }

    /// Changes one field of the workload that is not in its manifest. With a GitOps tool, the operator must have seen the
    /// change before the next sync undoes it.
    pub async fn act(&self, path: &str, value: impl Into<Value>) -> Result<()> {
        let Some(gitops) = &self.gitops else {
            return self.replace(path, value).await;
        };
        let seen = async {
            self.replace(path, value).await?;
            self.until("the change is observed", View::is_observed).await
        };
        gitops.between(seen).await.map(drop)
    }

    /// Sets the image of the workload.
    pub async fn set_image(&self, image: &str) -> Result<()> {
        self.replace("/spec/template/spec/containers/0/image", image).await
    }

    /// Runs kubectl scale on the workload.
    pub async fn scale(&self, replicas: u32) -> Result<()> {
        let replicas = format!("--replicas={replicas}");
        self.kubectl(&["scale", &replicas, &self.workload()]).await?;
        Ok(())
    }

    /// Ends a pause, as a user does.
    pub async fn resume(&self) -> Result<()> {
        self.act("/spec/updateStrategy/paused", false).await
    }

    /// Reports the end of a pod's containers, as its kubelet would.
    pub async fn end_pod(&self, name: &str, phase: &str) -> Result<()> {
        let exit_code = i32::from(phase == "Failed");
        let container = json!({
            "name": "game", "image": "game:v1", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": exit_code}},
        });
        let status = json!({"phase": phase, "containerStatuses": [container]});
        let patch = format!("-p={}", json!({"status": status}));
        let args = ["patch", "pod", name, "--subresource=status", "--type=merge"];
        self.kubectl(&[&args[..], &[&patch]].concat()).await?;
        Ok(())
    }

    /// The audit events of the operator's writes so far.
    pub fn events(&self) -> Result<Vec<Event>> {
        let operator = self.operator.username();
        let mut events = self.plane.audit.writes(&self.namespace)?;
        events.retain(|event| event.user.username == operator);
        Ok(events)
    }

    /// Counts of the operator's writes so far.
    pub fn writes(&self) -> Result<Counts> {
        Ok(Counts::of(&self.events()?, |_| true))
    }
}

/// The name of a test's namespace. It is unique to this run.
fn namespace(test: &str) -> String {
    let name: String = test
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
        .collect();
    let name = name.to_lowercase();
    let end = format!("{:x}", std::process::id());
    let start = &name[..name.len().min(60 - end.len())];
    format!("{}-{end}", start.trim_matches('-'))
}

fn user_config(plane: &ControlPlane, namespace: &str) -> Result<Vec<u8>> {
    let config = std::fs::read_to_string(&plane.kubeconfig)?;
    let mut config: Value = serde_yaml_ng::from_str(&config)?;
    let contexts = config["contexts"].as_array_mut();
    for context in contexts.context("the kubeconfig has no contexts")? {
        context["context"]["namespace"] = json!(namespace);
    }
    Ok(serde_json::to_vec(&config)?)
}

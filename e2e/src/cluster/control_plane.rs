//! A real control plane that runs for as long as the tests do.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Request;
use judge::AuditLog;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::checkout::repository;
use crate::cluster::chart;
use crate::faults::FaultProxy;
use crate::process::command::{go_command, run};
use crate::process::program::program;
use crate::process::usage::processor_time;
use crate::wait::{LIMIT, eventually};

/// The prefix of the names of test clusters. The process ID follows.
const PREFIX: &str = "e2e-";
/// The kinds of `crds/`, each with the path of its collection. Cluster is missing, because the chart installs it only
/// with lifecycle hooks.
const KINDS: [(&str, &str); 5] = [
    ("gamedeployments", "namespaces/default/gamedeployments"),
    ("gamestatefulsets", "namespaces/default/gamestatefulsets"),
    ("hookruns", "namespaces/default/hookruns"),
    ("hooktemplates", "namespaces/default/hooktemplates"),
    ("sidecarsets", "sidecarsets"),
];

/// A running control plane.
pub struct ControlPlane {
    name: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The kubectl binary.
    pub kubectl: PathBuf,
    /// The helm binary.
    pub helm: PathBuf,
    /// The chart's service account, roles and bindings.
    pub permissions: Vec<Value>,
    /// The audit log of its API server.
    pub audit: AuditLog,
    /// The minor version of Kubernetes: 36 in 1.36. Tests state with it what older versions do differently.
    pub minor: u32,
    client: Client,
}

impl ControlPlane {
    /// Starts a control plane for this process, and removes those left by earlier processes.
    pub async fn start() -> Result<Self> {
        reap().await;
        Self::named(&format!("{PREFIX}{}", std::process::id())).await
    }

    /// Starts a control plane with this name unless it is running, and installs CRDs and roles.
    pub async fn named(name: &str) -> Result<Self> {
        let control_plane = Self::bare(name, &[]).await?;
        control_plane.install().await?;
        Ok(control_plane)
    }

    /// Starts another control plane for this process, for a test that changes CRDs.
    pub async fn another(purpose: &str) -> Result<Self> {
        Self::named(&format!("{PREFIX}{}-{purpose}", std::process::id())).await
    }

    /// Starts a control plane with nothing installed, for tests of the installation.
    pub async fn empty(purpose: &str) -> Result<Self> {
        Self::bare(&format!("{PREFIX}{}-{purpose}", std::process::id()), &[]).await
    }

    /// Like `empty`, but with API priority and fairness enabled.
    pub async fn fair(purpose: &str) -> Result<Self> {
        let name = format!("{PREFIX}{}-{purpose}", std::process::id());
        Self::bare(&name, &["--fair"]).await
    }

    async fn bare(name: &str, options: &[&str]) -> Result<Self> {
        let mut script = Command::new(scripts().join("up.sh"));
        script.args(options);
        if let Some(version) = std::env::var_os("E2E_KUBERNETES") {
            script.arg("--version").arg(version);
        }
        let printed = run(script.arg(name), "").await?;
        let lines = printed.lines().filter_map(|line| line.split_once('='));
        let settings: HashMap<&str, &str> = lines.collect();
        let path = |name: &str| -> Result<PathBuf> {
            let path = settings.get(name);
            Ok(path.with_context(|| format!("up.sh printed no {name}"))?.into())
        };
        let program = |name: &str| match std::env::var_os(format!("E2E_{name}")) {
            Some(other) => Ok(other.into()),
            None => path(name),
        };
        let (kubeconfig, helm) = (path("KUBECONFIG")?, program("HELM")?);
        let client = Client::try_from(config(&kubeconfig).await?)?;
        let version = client.apiserver_version().await?.minor;
        Ok(ControlPlane {
            name: name.to_owned(),
            minor: version.parse().context(version)?,
            client,
            kubeconfig,
            kubectl: program("KUBECTL")?,
            permissions: chart::permissions(&helm).await?,
            helm,
            audit: AuditLog::new(path("AUDIT_LOG")?),
        })
    }

    /// Installs the CRDs and the operator's ClusterRoles.
    async fn install(&self) -> Result<()> {
        let crds = repository().join("crds");
        self.kubectl(&["apply", "-f", &crds.to_string_lossy()], "").await?;
        let mut roles = self.permissions.clone();
        roles.retain(|object| object["kind"] == "ClusterRole");
        self.apply(&roles).await?;
        self.wait_for_crds().await?;
        self.wait_for_discovery().await
    }

    /// Waits until all CRDs are Established.
    pub(crate) async fn wait_for_crds(&self) -> Result<()> {
        let wait = ["wait", "--for=condition=Established", "crd", "--all"];
        // Right after its creation, a CRD has no conditions, which kubectl wait reports as an error.
        let established = async || self.kubectl(&wait, "").await;
        eventually("the CRDs are established", LIMIT, established).await?;
        Ok(())
    }

    /// Waits until each of the [`KINDS`] is served and discovered. The API server publishes discovery some time
    /// after the CRD is Established.
    pub(crate) async fn wait_for_discovery(&self) -> Result<()> {
        let list = ["api-resources", "--api-group=tkex.tencent.com", "-o=name"];
        eventually("kubectl finds the kinds", LIMIT, async || {
            let found = self.kubectl(&list, "").await?;
            for (kind, path) in KINDS {
                ensure!(found.contains(&format!("{kind}.")), "{kind} is not in {found}");
                self.get(&format!("/apis/tkex.tencent.com/v1alpha1/{path}")).await?;
            }
            Ok(())
        })
        .await
    }

    /// Runs helm as the administrator, in the root of the repository.
    pub async fn helm(&self, args: &[&str]) -> Result<String> {
        let mut command = chart::helm(&self.helm);
        command.args(args).env("KUBECONFIG", &self.kubeconfig);
        run(&mut command, "").await
    }

    /// The objects of the chart and its hooks, as Helm renders them when it installs a release here.
    pub async fn render_installed(
        &self,
        release: &str,
        namespace: &str,
        options: &[&str],
    ) -> Result<Vec<Value>> {
        let release = (release, namespace);
        chart::render_in_cluster(&self.helm, &self.kubeconfig, release, options).await
    }

    /// A PATH with kubectl, helm, the plugin and the operator.
    pub async fn path(&self) -> Result<OsString> {
        let plugin = program("kubectl-game").await?;
        let operator = program("gamekeeper").await?;
        let programs = [&plugin, &operator, &self.kubectl, &self.helm];
        let folders = programs.into_iter().filter_map(|program| program.parent());
        let completion = repository().join("kubectl-game");
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let folders = folders.map(Path::to_owned).chain([completion]);
        Ok(std::env::join_paths(folders.chain(std::env::split_paths(&inherited)))?)
    }

    /// Runs kubectl as the administrator.
    pub async fn kubectl(&self, args: &[&str], stdin: &str) -> Result<String> {
        let mut command = go_command(&self.kubectl);
        command.args(args).env("KUBECONFIG", &self.kubeconfig);
        run(&mut command, stdin).await
    }

    /// Runs kubectl as the administrator, with the words of a line as arguments.
    pub async fn kubectl_line(&self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split(' ').collect();
        self.kubectl(&words, "").await
    }

    /// Applies objects that specify their namespace.
    pub async fn apply(&self, objects: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.kubectl(&["apply", "-f", "-"], &list.to_string()).await?;
        Ok(())
    }

    /// A client with the administrator's credentials.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A proxy in front of the API server. Its clients use their own credentials.
    pub async fn fault_proxy(&self) -> Result<FaultProxy> {
        FaultProxy::in_front_of(&config(&self.kubeconfig).await?).await
    }

    /// Reads an API path.
    pub async fn get(&self, path: &str) -> Result<Value> {
        let request = Request::get(path).body(Vec::new())?;
        let response = self.client.request::<Value>(request).await;
        response.with_context(|| format!("GET {path}"))
    }

    /// Creates an object, without the cost of starting kubectl. Returns the response.
    pub async fn create(&self, collection: &str, object: &Value) -> Result<Value> {
        let request = Request::post(collection)
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())?;
        let response = self.client.request::<Value>(request).await;
        response.with_context(|| format!("POST {collection}"))
    }

    /// Creates a namespace, without the cost of starting kubectl.
    pub async fn create_namespace(&self, name: &str) -> Result<()> {
        let namespace = json!({"metadata": {"name": name}});
        self.create("/api/v1/namespaces", &namespace).await?;
        Ok(())
    }

    /// Changes an object with a JSON patch, without the cost of starting kubectl.
    pub async fn patch(&self, path: &str, operations: &Value) -> Result<Value> {
        let request = Request::patch(path)
            .header("content-type", "application/json-patch+json")
            .body(operations.to_string().into_bytes())?;
        let response = self.client.request::<Value>(request).await;
        response.with_context(|| format!("PATCH {path}"))
    }

    /// Deletes an object, without waiting for its removal.
    pub async fn delete(&self, path: &str) -> Result<()> {
        let request = Request::delete(path).body(Vec::new())?;
        let response = self.client.request::<Value>(request).await;
        response.with_context(|| format!("DELETE {path}"))?;
        Ok(())
    }

    /// All writes in a namespace so far, one per line.
    pub fn writes_as_text(&self, namespace: &str) -> Result<String> {
        let lines = self.audit.writes(namespace)?.into_iter().map(|event| {
            let object = event.object_ref.clone().unwrap_or_default();
            let body = event.request_object.as_ref().map(ToString::to_string);
            let body: String = body.unwrap_or_default().chars().take(600).collect();
            format!(
                "{} {} {} {}/{} {} {} {body}\n",
                event.received,
                event.user.username,
                event.verb,
                object.resource,
                object.subresource,
                object.name,
                event.code()
            )
        });
        Ok(lines.collect())
    }

    /// The CPU time of a component, such as `kube-apiserver`.
    pub fn processor_time(&self, component: &str) -> Result<Duration> {
        let folder = self.audit.path().parent().and_then(Path::parent);
        let folder = folder.context("the audit log is not in a cluster's folder")?;
        let file = folder.join(format!("pids/{component}.pid"));
        let id = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        processor_time(id.trim().parse()?)
    }

    /// Stops the control plane and removes its files.
    pub async fn stop(&self) -> Result<()> {
        run(Command::new(scripts().join("down.sh")).arg(&self.name), "").await?;
        Ok(())
    }
}

pub(super) async fn config(kubeconfig: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let options = KubeConfigOptions::default();
    Ok(Config::from_custom_kubeconfig(kubeconfig, &options).await?)
}

/// Stops all clusters of this process.
pub async fn stop_all() {
    stop_selected(|id| id == std::process::id()).await;
}

/// Stops test clusters whose process no longer exists.
async fn reap() {
    stop_selected(|id| !Path::new("/proc").join(id.to_string()).exists()).await;
}

/// Stops test clusters, selected by process ID.
async fn stop_selected(is_selected: impl Fn(u32) -> bool) {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let Some(clusters) = cache.or(home).map(|dir| dir.join("gamekeeper/clusters")) else {
        return;
    };
    let Ok(found) = std::fs::read_dir(clusters) else {
        return;
    };
    let names = found.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let has_selected_id = |name: &String| {
        let suffix = name.strip_prefix(PREFIX);
        let id = suffix.and_then(|suffix| suffix.split('-').next()?.parse::<u32>().ok());
        id.is_some_and(&is_selected)
    };
    for name in names.filter(has_selected_id) {
        // If this fails, the next run tries again.
        if let Err(error) = run(Command::new(scripts().join("down.sh")).arg(&name), "").await {
            eprintln!("{error:#}");
        }
    }
}

fn scripts() -> PathBuf {
    repository().join("e2e/cluster")
}

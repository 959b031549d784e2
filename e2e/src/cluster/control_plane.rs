//! A real control plane for the length of a run.

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
use crate::process::command::run;
use crate::process::program::program;
use crate::process::usage::processor_time;
use crate::wait::eventually;

/// What the names of clusters of test runs begin with; the process's id follows.
const PREFIX: &str = "e2e-";
/// How long a CRD may take until its kind is found.
const LIMIT: Duration = Duration::from_secs(30);
/// What `crds/` defines.
const KINDS: [&str; 4] = [
    "gamedeployments",
    "gamestatefulsets",
    "hookruns",
    "hooktemplates",
];

/// A control plane that is up.
pub struct ControlPlane {
    name: String,
    /// kubeconfig of its administrator.
    pub kubeconfig: PathBuf,
    /// Its kubectl.
    pub kubectl: PathBuf,
    /// The helm that was built with it.
    pub helm: PathBuf,
    /// Account, roles and bindings of an operator, as the chart has them.
    pub rights: Vec<Value>,
    /// What its API server logs about writes.
    pub audit: AuditLog,
    client: Client,
}

impl ControlPlane {
    /// Starts one for this process, and removes those that earlier processes left.
    pub async fn start() -> Result<Self> {
        reap().await;
        Self::named(&format!("{PREFIX}{}", std::process::id())).await
    }

    /// Starts one under a name, or finds the one that is up under it, with CRDs and roles.
    pub async fn named(name: &str) -> Result<Self> {
        let control_plane = Self::bare(name, &[]).await?;
        control_plane.install().await?;
        Ok(control_plane)
    }

    /// Starts one with nothing installed, for a test that installs.
    pub async fn empty(purpose: &str) -> Result<Self> {
        Self::bare(&format!("{PREFIX}{}-{purpose}", std::process::id()), &[]).await
    }

    /// The same, with the limits and priorities of requests that API servers usually have.
    pub async fn fair(purpose: &str) -> Result<Self> {
        let name = format!("{PREFIX}{}-{purpose}", std::process::id());
        Self::bare(&name, &["--fair"]).await
    }

    async fn bare(name: &str, options: &[&str]) -> Result<Self> {
        let mut up = Command::new(scripts().join("up.sh"));
        let printed = run(up.args(options).arg(name), "").await?;
        let lines = printed.lines().filter_map(|line| line.split_once('='));
        let settings: HashMap<&str, &str> = lines.collect();
        let path = |name: &str| -> Result<PathBuf> {
            let path = settings.get(name);
            Ok(path
                .with_context(|| format!("up.sh printed no {name}"))?
                .into())
        };
        let (kubeconfig, helm) = (path("KUBECONFIG")?, path("HELM")?);
        Ok(ControlPlane {
            name: name.to_owned(),
            client: Client::try_from(config(&kubeconfig).await?)?,
            kubeconfig,
            kubectl: path("KUBECTL")?,
            rights: chart::rights(&helm).await?,
            helm,
            audit: AuditLog::new(path("AUDIT_LOG")?),
        })
    }

    /// Installs the CRDs and the operator's ClusterRoles.
    async fn install(&self) -> Result<()> {
        let crds = repository().join("crds");
        self.kubectl(&["apply", "-f", &crds.to_string_lossy()], "")
            .await?;
        let mut roles = self.rights.clone();
        roles.retain(|object| object["kind"] == "ClusterRole");
        self.apply(&roles).await?;
        let crds = ["wait", "--for=condition=Established", "crd", "--all"];
        self.kubectl(&crds, "").await?;
        self.kinds_are_found().await
    }

    /// Waits until kubectl finds every kind: the API server publishes a kind in its discovery
    /// some time after the CRD is Established, and apart from serving it.
    pub(crate) async fn kinds_are_found(&self) -> Result<()> {
        let found = ["api-resources", "--api-group=tkex.tencent.com", "-o=name"];
        eventually("kubectl finds the kinds", LIMIT, async || {
            let found = self.kubectl(&found, "").await?;
            for kind in KINDS {
                ensure!(
                    found.contains(&format!("{kind}.")),
                    "{kind} is not in {found}"
                );
                let path = format!("/apis/tkex.tencent.com/v1alpha1/namespaces/default/{kind}");
                self.get(&path).await?;
            }
            Ok(())
        })
        .await
    }

    /// Runs helm as the administrator; the chart is `charts/gamekeeper` to it.
    pub async fn helm(&self, args: &[&str]) -> Result<String> {
        let mut command = chart::helm(&self.helm);
        command.args(args).env("KUBECONFIG", &self.kubeconfig);
        run(&mut command, "").await
    }

    /// A PATH on which kubectl, helm, the plugin and the operator's program are found.
    pub async fn path(&self) -> Result<OsString> {
        let (plugin, own) = (program("kubectl-game").await?, program("gamekeeper").await?);
        let programs = [&plugin, &own, &self.kubectl, &self.helm];
        let folders = programs.into_iter().filter_map(|it| it.parent());
        let completion = repository().join("kubectl-game");
        let rest = std::env::var_os("PATH").unwrap_or_default();
        let own = folders.map(Path::to_owned).chain([completion]);
        Ok(std::env::join_paths(
            own.chain(std::env::split_paths(&rest)),
        )?)
    }

    /// Runs kubectl as the administrator.
    pub async fn kubectl(&self, args: &[&str], stdin: &str) -> Result<String> {
        let mut command = Command::new(&self.kubectl);
        command.args(args).env("KUBECONFIG", &self.kubeconfig);
        run(&mut command, stdin).await
    }

    /// kubectl apply of objects that say where they belong.
    pub async fn apply(&self, objects: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.kubectl(&["apply", "-f", "-"], &list.to_string())
            .await?;
        Ok(())
    }

    /// A client of its administrator.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A proxy before it. The users of that one bring their own credentials.
    pub async fn fault_proxy(&self) -> Result<FaultProxy> {
        FaultProxy::before(&config(&self.kubeconfig).await?).await
    }

    /// Reads a path of the API.
    pub async fn get(&self, path: &str) -> Result<Value> {
        let request = Request::get(path).body(Vec::new())?;
        let answer = self.client.request::<Value>(request).await;
        answer.with_context(|| format!("GET {path}"))
    }

    /// Makes an object.
    pub async fn create(&self, collection: &str, object: &Value) -> Result<()> {
        let request = Request::post(collection)
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())?;
        let answer = self.client.request::<Value>(request).await;
        answer.with_context(|| format!("POST {collection}"))?;
        Ok(())
    }

    /// Changes an object with a JSON patch, without kubectl, whose start would be measured with it.
    pub async fn patch(&self, path: &str, operations: &Value) -> Result<Value> {
        let request = Request::patch(path)
            .header("content-type", "application/json-patch+json")
            .body(operations.to_string().into_bytes())?;
        let answer = self.client.request::<Value>(request).await;
        answer.with_context(|| format!("PATCH {path}"))
    }

    /// Deletes an object without waiting for its end.
    pub async fn delete(&self, path: &str) -> Result<()> {
        let request = Request::delete(path).body(Vec::new())?;
        let answer = self.client.request::<Value>(request).await;
        answer.with_context(|| format!("DELETE {path}"))?;
        Ok(())
    }

    /// The processor time that one of its components has used, such as `kube-apiserver`.
    pub fn processor_time(&self, component: &str) -> Result<Duration> {
        let folder = self.audit.path().parent().and_then(Path::parent);
        let folder = folder.context("a cluster has a folder")?;
        let file = folder.join(format!("pids/{component}.pid"));
        let id = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        processor_time(id.trim().parse()?)
    }

    /// Stops it and removes what it left.
    pub async fn stop(&self) -> Result<()> {
        run(Command::new(scripts().join("down.sh")).arg(&self.name), "").await?;
        Ok(())
    }
}

async fn config(kubeconfig: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let options = KubeConfigOptions::default();
    Ok(Config::from_custom_kubeconfig(kubeconfig, &options).await?)
}

/// Stops all that this process started, also those whose test was broken off.
pub async fn stop_all() {
    stop_those(|id| id == std::process::id()).await;
}

/// Stops clusters of test runs whose process is gone.
async fn reap() {
    stop_those(|id| !Path::new("/proc").join(id.to_string()).exists()).await;
}

/// Stops clusters of test runs, by the ids of their processes.
async fn stop_those(are_to_go: impl Fn(u32) -> bool) {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let Some(clusters) = cache.or(home).map(|dir| dir.join("gamekeeper/clusters")) else {
        return;
    };
    let Ok(found) = std::fs::read_dir(clusters) else {
        return;
    };
    let names = found.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_to_go = |name: &String| {
        let rest = name.strip_prefix(PREFIX);
        let id = rest.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        id.is_some_and(&are_to_go)
    };
    for name in names.filter(is_to_go) {
        // What cannot be stopped now is tried again by the next run.
        if let Err(error) = run(Command::new(scripts().join("down.sh")).arg(&name), "").await {
            eprintln!("{error:#}");
        }
    }
}

fn scripts() -> PathBuf {
    repository().join("e2e/cluster")
}

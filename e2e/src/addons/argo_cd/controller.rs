//! Argo CD itself: its application controller, its repository server and their cache, which only `make release-check` builds.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::case::Case;
use crate::checkout::repository;
use crate::cluster::operator::free_port;
use crate::process::command::run;
use crate::workload::manifest::Game;

/// The folder of Argo CD's programs.
const PROGRAMS: &str = "GAMEKEEPER_ARGO_CD";
/// The module of Argo CD, whose folder has its CRDs.
const MODULE: &str = "github.com/argoproj/argo-cd/v3";
/// Asks Argo CD to compare an application with Git. It removes the annotation when it has done so.
const REFRESH: &str = "argocd.argoproj.io/refresh";

/// A running Argo CD, with one application, and the folder of its manifests under Git. It stops when dropped.
pub struct ArgoCd {
    _processes: [Child; 3],
    git: PathBuf,
}

impl ArgoCd {
    /// Starts Argo CD in the namespace of a test, with the health checks and actions of a release. None if the environment
    /// does not say where its programs are.
    pub async fn start(case: &Case) -> Result<Option<Self>> {
        let Some(programs) = std::env::var_os(PROGRAMS) else {
            eprintln!("skipped: {PROGRAMS} is not set (make release-check)");
            return Ok(None);
        };
        let folder = case.folder().join("argo-cd");
        let git = folder.join("git");
        std::fs::create_dir_all(&git)?;
        run(Command::new("git").args(["init", "--quiet", "--initial-branch=main"]).arg(&git), "")
            .await?;
        install(case, &folder).await?;

        let process = Process { programs: Path::new(&programs), folder: &folder, case };
        let (cache, manifests) = (free_port().await?, free_port().await?);
        let cache_address = format!("--redis=127.0.0.1:{cache}");
        let manifest_options = [
            "--disable-tls",
            "--address=127.0.0.1",
            &format!("--port={manifests}"),
            "--metrics-address=127.0.0.1",
            &format!("--metrics-port={}", free_port().await?),
            &cache_address,
        ];
        let controller_options = [
            &format!("--namespace={}", case.namespace),
            &format!("--repo-server=127.0.0.1:{manifests}"),
            "--repo-server-plaintext",
            &format!("--metrics-port={}", free_port().await?),
            // A test does not wait for minutes.
            "--self-heal-backoff-timeout-seconds=1",
            "--self-heal-backoff-factor=1",
            &cache_address,
        ];
        let processes = [
            process.start("argo-cd-redis", "argo-cd-redis", &[&cache.to_string()])?,
            process.start("cmd", "argocd-repo-server", &manifest_options)?,
            process.start("cmd", "argocd-application-controller", &controller_options)?,
        ];
        Ok(Some(Self { _processes: processes, git }))
    }

    /// Commits a manifest.
    pub async fn commit(&self, manifest: &Game) -> Result<()> {
        std::fs::write(self.git.join("game.yaml"), manifest.to_string())?;
        let git = |args: &[&str]| {
            let mut git = Command::new("git");
            git.arg("-C")
                .arg(&self.git)
                .args(["-c", "user.name=test", "-c", "user.email=test@example.com"])
                .args(args);
            git
        };
        run(&mut git(&["add", "--all"]), "").await?;
        run(&mut git(&["commit", "--quiet", "--message=change"]), "").await?;
        Ok(())
    }

    /// Sets what Argo CD is to do with the manifests: the `spec` of an application without source and destination.
    pub async fn configure(&self, case: &Case, mut spec: Value) -> Result<()> {
        spec["project"] = json!("default");
        spec["source"] = json!({"repoURL": format!("file://{}", self.git.display()), "targetRevision": "main", "path": "."});
        spec["destination"] =
            json!({"server": "https://kubernetes.default.svc", "namespace": case.namespace});
        // The applications of all tests have different names, because their objects are marked with them.
        let metadata = json!({"name": case.namespace, "namespace": case.namespace});
        case.plane().apply(&[application("Application", &metadata, &spec)]).await
    }

    /// Lets Argo CD compare the cluster with Git, and returns the application.
    pub async fn refresh(&self, case: &Case) -> Result<Value> {
        let (namespace, annotation) = (&case.namespace, format!("{REFRESH}=hard"));
        let path =
            format!("/apis/argoproj.io/v1alpha1/namespaces/{namespace}/applications/{namespace}");
        let annotate =
            ["annotate", "application", namespace, "--overwrite", &annotation, "-n", namespace];
        case.plane().kubectl(&annotate, "").await?;
        case.eventually("the application is compared", async || {
            let application = case.plane().get(&path).await?;
            ensure!(application["metadata"]["annotations"][REFRESH].is_null(), "{application:#}");
            Ok(application)
        })
        .await
    }

    /// Waits until an application has this sync status and this health.
    pub async fn until(&self, case: &Case, sync: &str, health: &str) -> Result<()> {
        case.eventually(&format!("the application is {sync} and {health}"), async || {
            let application = self.refresh(case).await?;
            let status = &application["status"];
            let found = status["health"]["status"].as_str().unwrap_or_default();
            ensure!(status["sync"]["status"] == sync && found == health, "{status:#}");
            Ok(())
        })
        .await
    }
}

/// Installs the CRDs and the configuration of Argo CD.
async fn install(case: &Case, folder: &Path) -> Result<()> {
    let mut go = Command::new("go");
    go.args(["mod", "download", "-json", MODULE]).env("GOWORK", "off");
    let module: Value = serde_json::from_str(
        &run(go.current_dir(repository().join("release/argo-cd-controller")), "").await?,
    )?;
    let crds = Path::new(module["Dir"].as_str().context("no folder")?).join("manifests/crds");
    for kind in ["application", "appproject"] {
        let file = crds.join(format!("{kind}-crd.yaml"));
        case.plane()
            .kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()], "")
            .await?;
    }
    let kinds = ["crd/applications.argoproj.io", "crd/appprojects.argoproj.io"];
    case.plane()
        .kubectl(&[&["wait", "--for=condition=Established"], &kinds[..]].concat(), "")
        .await?;

    let customizations = folder.join("customizations");
    run(Command::new(repository().join("release/argo-cd.sh")).arg(&customizations), "").await?;
    let text = std::fs::read_to_string(customizations.join("values.yaml"))?;
    let values: Value = serde_yaml_ng::from_str(&text)?;
    let metadata = |name: &str| {
        let labels = json!({"app.kubernetes.io/part-of": "argocd"});
        json!({"name": name, "namespace": case.namespace, "labels": labels})
    };
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": metadata("argocd-cm"), "data": values["configs"]["cm"],
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": metadata("argocd-secret"), "stringData": {"server.secretkey": "test"},
    });
    let everything = json!({
        "sourceRepos": ["*"],
        "destinations": [{"server": "*", "namespace": "*"}],
        "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
    });
    let project = application("AppProject", &metadata("default"), &everything);
    case.plane().apply(&[config, secret, project]).await
}

fn application(kind: &str, metadata: &Value, spec: &Value) -> Value {
    json!({"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
}

/// Where processes run.
struct Process<'a> {
    programs: &'a Path,
    folder: &'a Path,
    case: &'a Case,
}

impl Process<'_> {
    /// Starts a process of Argo CD, whose programs are one that goes by its name.
    fn start(&self, program: &str, name: &str, arguments: &[&str]) -> Result<Child> {
        let log = std::fs::File::create(self.folder.join(format!("{name}.log")))?;
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).env("ARGOCD_BINARY_NAME", name);
        command
            .env("KUBECONFIG", &self.case.plane().kubeconfig)
            // The server of the kubeconfig is the cluster that applications call https://kubernetes.default.svc.
            .env("ARGOCD_FAKE_IN_CLUSTER", "true")
            .env("ARGOCD_GPG_ENABLED", "false")
            .env("TMPDIR", self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {name}"))
    }
}

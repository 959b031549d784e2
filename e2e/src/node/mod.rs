//! A node with a real kubelet, containerd and runc, in addition to the simulated nodes.
//!
//! The first test that needs the node starts it. The node stops when its pipe to this process is closed, so it never
//! outlives the tests, however they end (`e2e/node/run.sh`).

mod image;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use axum::body::Bytes;
use judge::object::is_true;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{Mutex, OnceCell};

use crate::checkout::repository;
use crate::cluster::control_plane::ControlPlane;
use crate::process::command::run;
use crate::servers::registry::Registry;
use crate::wait::eventually;

/// The node's name.
pub const NAME: &str = "real-0";
/// The image from which containerd creates a pod's sandbox, as in `e2e/node/containerd.toml`.
const SANDBOX: &str = "pause:1";
/// How long the node may take to become ready. This includes waiting for another run's node to stop.
const LIMIT: Duration = Duration::from_secs(300);

static NODE: OnceCell<Node> = OnceCell::const_new();

/// The node.
pub struct Node {
    /// Where its images come from.
    pub registry: Registry,
    /// Its logs and temporary files.
    folder: PathBuf,
    game_server: PathBuf,
    /// The layer of all its images.
    layer: Bytes,
    plane: &'static ControlPlane,
    /// The node's process, and its standard input. The process ends when this input is closed. None once the node is
    /// stopped.
    running: Mutex<Option<(Child, Option<ChildStdin>)>>,
}

/// What keeps the node from running on this machine, if anything does. Installs missing packages and builds
/// missing programs.
pub async fn missing() -> Result<Option<String>> {
    let missing = run(&mut Command::new(scripts().join("missing.sh")), "").await?;
    if !missing.is_empty() {
        return Ok(Some(missing.trim().replace('\n', " ")));
    }
    let mut build = Command::new(scripts().join("build.sh"));
    let built = build.stdout(Stdio::null()).status().await?;
    ensure!(built.success(), "e2e/node/build.sh failed");
    Ok(None)
}

/// The node that all tests share. `game_server` is the program of its images.
pub async fn shared(plane: &'static ControlPlane, game_server: &str) -> Result<&'static Node> {
    NODE.get_or_try_init(|| Node::start(plane, Path::new(game_server))).await
}

/// Stops the node, if there is one.
pub async fn stop() {
    if let Some(node) = NODE.get()
        && let Err(error) = node.stop().await
    {
        eprintln!("{error:#}");
    }
}

impl Node {
    /// Publishes an image of another program. `tag` is its `NAME:TAG`.
    pub async fn publish_program(&self, tag: &str, program: &Path) -> Result<()> {
        let layer = image::layer(program, &self.folder).await?;
        self.registry.publish(tag, &image::from_layer(&layer, program, &[]));
        Ok(())
    }

    /// A file on the node, by its path without the leading slash.
    pub fn file(&self, path: &str) -> Result<PathBuf> {
        Ok(self.process_folder()?.join("root").join(path))
    }

    /// Kills the kubelet (kill -9), which is then restarted. Containers keep running.
    pub async fn kill_kubelet(&self) -> Result<()> {
        let namespace = std::fs::read_link(self.process_folder()?.join("ns/mnt"))?;
        let is_kubelet = |process: &Path| {
            let name = std::fs::read_to_string(process.join("comm"));
            name.is_ok_and(|name| name.trim() == "kubelet")
                && std::fs::read_link(process.join("ns/mnt")).is_ok_and(|found| found == namespace)
        };
        let mut processes =
            std::fs::read_dir("/proc")?.filter_map(|entry| Some(entry.ok()?.path()));
        let kubelet = processes.find(|process| is_kubelet(process));
        let kubelet = kubelet.context("the node has no kubelet")?;
        let id = kubelet.file_name().context("a process has an ID")?;
        run(Command::new("kill").arg("-KILL").arg(id), "").await?;
        Ok(())
    }

    /// The folder in /proc of a process in the node's mount namespace.
    fn process_folder(&self) -> Result<PathBuf> {
        let id = self.folder.join("pid");
        let id = std::fs::read_to_string(&id).with_context(|| id.display().to_string())?;
        Ok(Path::new("/proc").join(id.trim()))
    }

    /// Publishes an image of the game server with these environment variables. `tag` is its `NAME:TAG`. Returns the
    /// image's full name and its digest.
    pub fn publish(&self, tag: &str, environment: &[String]) -> (String, String) {
        let image = image::from_layer(&self.layer, &self.game_server, environment);
        self.registry.publish(tag, &image)
    }

    async fn start(plane: &'static ControlPlane, game_server: &Path) -> Result<Self> {
        let target = game_server.ancestors().nth(2);
        let folder = target.context("programs are in target/PROFILE")?.join("e2e").join(NAME);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let registry = Registry::start().await?;
        let layer = image::layer(game_server, &folder).await?;
        registry.publish(SANDBOX, &image::from_layer(&layer, game_server, &[]));
        let mut process = Command::new(scripts().join("run.sh"))
            .arg(kubeconfig(plane, &folder).await?)
            .arg(registry.url())
            .arg(&folder)
            .stdin(Stdio::piped())
            // An interrupt from the terminal must not reach the process, which ends when its standard input is closed.
            .process_group(0)
            .spawn()?;
        let input = process.stdin.take();
        let is_ready = async || {
            let node = plane.get(&format!("/api/v1/nodes/{NAME}")).await?;
            ensure!(is_true(&node, "Ready"), "{}", node["status"]["conditions"]);
            Ok(())
        };
        tokio::select! {
            ready = eventually("the real kubelet is ready", LIMIT, is_ready) => ready?,
            ended = process.wait() => bail!("{}: the logs are in {}", ended?, folder.display()),
        }
        Ok(Node {
            registry,
            folder,
            game_server: game_server.to_owned(),
            layer,
            plane,
            running: Mutex::new(Some((process, input))),
        })
    }

    async fn stop(&self) -> Result<()> {
        let Some((mut process, input)) = self.running.lock().await.take() else {
            return Ok(());
        };
        drop(input);
        let status = process.wait().await?;
        ensure!(status.success(), "e2e/node/run.sh: {status}");
        // A cluster that stays up would schedule pods on the stopped node.
        self.plane.delete(&format!("/api/v1/nodes/{NAME}")).await
    }
}

/// The administrator's kubeconfig without references to files, which the node could not read.
async fn kubeconfig(plane: &ControlPlane, folder: &Path) -> Result<PathBuf> {
    let view = ["config", "view", "--raw", "--flatten"];
    let file = folder.join("kubeconfig");
    std::fs::write(&file, plane.kubectl(&view, "").await?)?;
    Ok(file)
}

fn scripts() -> PathBuf {
    repository().join("e2e/node")
}

//! The operator as a process of its own, with no more rights than its own roles give it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::cluster::control_plane::ControlPlane;
use crate::cluster::link::Link;
use crate::faults::FaultProxy;
use crate::faults::clock::Clock;
use crate::process::command::run;
use crate::process::program::program;
use crate::process::usage::processor_time;
use crate::wait::eventually;

/// Name of the service account that users install.
pub const ACCOUNT: &str = "gamekeeper";

/// An operator, if nothing else is said for one namespace.
pub struct Operator {
    binary: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
    account: String,
    /// Its command line, but for what is of this machine.
    args: Vec<String>,
    elects: bool,
    /// What is set in its environment besides.
    environment: Vec<(&'static str, String)>,
    log: PathBuf,
    running: Option<Running>,
}

struct Running {
    process: Process,
    keeper: JoinHandle<()>,
    port: u16,
    /// Where it serves admission, if it has the command line of a Deployment.
    webhook_port: u16,
}

/// The process of the moment; None when it was told to end.
type Process = Arc<Mutex<Option<Child>>>;

fn with<T>(process: &Process, look: impl FnOnce(&mut Option<Child>) -> T) -> T {
    look(&mut process.lock().unwrap_or_else(PoisonError::into_inner))
}

/// How it ended, if it has; None when it was told to.
fn look(process: &Process) -> Option<std::io::Result<Option<ExitStatus>>> {
    with(process, |child| child.as_mut().map(Child::try_wait))
}

impl Running {
    /// The process, which is not restarted from now on.
    fn end(self) -> Result<Child> {
        with(&self.process, Option::take).context("the operator has ended")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // With it goes what it holds: a process that a test left behind is killed.
        self.keeper.abort();
    }
}

impl Operator {
    /// Makes its service account and kubeconfig; `folder` is for its files.
    pub async fn prepare(
        plane: &ControlPlane,
        namespace: &str,
        account: &str,
        folder: &Path,
    ) -> Result<Self> {
        grant(plane, namespace, account).await?;
        let args = vec!["run".to_owned(), format!("--namespace={namespace}")];
        Self::under(plane, namespace, account, args, folder).await
    }

    /// The operator of a release: under its service account, with the command line of its Deployment.
    /// No pod of a Deployment is up before its kinds are found, as this process could be.
    pub async fn installed(
        plane: &ControlPlane,
        namespace: &str,
        name: &str,
        folder: &Path,
    ) -> Result<Self> {
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
        let deployment = plane.get(&path).await?;
        plane.kinds_are_found().await?;
        let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        let args = serde_json::from_value(args.clone()).context("the Deployment has args")?;
        Self::under(plane, namespace, name, args, folder).await
    }

    async fn under(
        plane: &ControlPlane,
        namespace: &str,
        account: &str,
        args: Vec<String>,
        folder: &Path,
    ) -> Result<Self> {
        let kubeconfig = folder.join(format!("{account}.kubeconfig"));
        let create = ["create", "token", account, "-n", namespace, "--duration=4h"];
        let token = plane.kubectl(&create, "").await?.trim().to_owned();
        let config = std::fs::read_to_string(&plane.kubeconfig)?;
        let mut config: Value = serde_yaml_ng::from_str(&config)?;
        config["users"] = json!([{"name": account, "user": {"token": token}}]);
        let cluster = config["clusters"][0]["name"].clone();
        let context = json!({"cluster": cluster, "user": account, "namespace": namespace});
        config["contexts"] = json!([{"name": account, "context": context}]);
        config["current-context"] = json!(account);
        std::fs::write(&kubeconfig, serde_json::to_vec(&config)?)?;
        Ok(Operator {
            binary: binary().await?,
            kubeconfig,
            namespace: namespace.to_owned(),
            account: account.to_owned(),
            args,
            elects: true,
            environment: Vec::new(),
            log: folder.join(format!("{account}.log")),
            running: None,
        })
    }

    /// The user that the API server sees.
    pub fn username(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account)
    }

    /// From the next start on it asks for no lease, so that it need not wait for one that a killed
    /// predecessor holds.
    pub fn elect_no_more(&mut self) {
        self.elects = false;
    }

    /// Leaves it as it is when it ends; until its next start.
    pub fn keep_no_more(&self) {
        if let Some(running) = &self.running {
            running.keeper.abort();
        }
    }

    /// From the next start on it is told more.
    pub fn tell(&mut self, flags: Vec<String>) {
        self.args.extend(flags);
    }

    /// Its program.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// The port of its web server.
    pub fn port(&self) -> Result<u16> {
        let running = self.running.as_ref();
        Ok(running.context("the operator does not run")?.port)
    }

    /// The port of its webhook, where its command line is that of a Deployment.
    pub fn webhook_port(&self) -> Result<u16> {
        let running = self.running.as_ref();
        Ok(running.context("the operator does not run")?.webhook_port)
    }

    /// What it prints.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Lets it reach the API server through a link only; from the next start on.
    pub fn connect_through(&self, link: &Link) -> Result<()> {
        self.reconfigure(|cluster| cluster["server"] = json!(link.url()))
    }

    /// Lets it reach the API server through a proxy only; from the next start on.
    pub fn go_through(&self, proxy: &FaultProxy) -> Result<()> {
        let ca = self.kubeconfig.with_extension("ca");
        std::fs::write(&ca, proxy.ca())?;
        let server = json!({"server": proxy.url(), "certificate-authority": ca});
        self.reconfigure(|cluster| *cluster = server)
    }

    fn reconfigure(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut config: Value = serde_json::from_slice(&std::fs::read(&self.kubeconfig)?)?;
        change(&mut config["clusters"][0]["cluster"]);
        Ok(std::fs::write(
            &self.kubeconfig,
            serde_json::to_vec(&config)?,
        )?)
    }

    /// From the next start on it goes by this clock.
    pub fn go_by(&mut self, clock: &Clock) {
        self.environment.extend(clock.environment());
    }

    /// Starts it; it is ready when this returns.
    pub async fn start(&mut self) -> Result<()> {
        self.launch().await?;
        eventually(
            "the operator is ready",
            Duration::from_secs(60),
            async || {
                if let Some(status) = self.exit_status()? {
                    bail!("the operator ended: {status}; see {}", self.log.display());
                }
                let (code, body) = self.get("/readyz").await?;
                ensure!(code == 200, "/readyz says {code}: {body}");
                Ok(())
            },
        )
        .await
    }

    /// Starts it, ready or not.
    pub async fn launch(&mut self) -> Result<()> {
        ensure!(self.running.is_none(), "the operator runs already");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log)?;
        let port = free_port().await?;
        // Several of one Deployment run on this machine.
        let webhook_port = free_port().await?;
        let webhook = format!("--webhook-listen=127.0.0.1:{webhook_port}");
        let args = self.args.iter().map(|arg| match arg.as_str() {
            arg if arg.starts_with("--webhook-listen=0.0.0.0:") => &webhook,
            arg => arg,
        });
        let mut command = Command::new(&self.binary);
        command
            .args(args)
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .arg(format!("--leader-elect={}", self.elects))
            .env("KUBECONFIG", &self.kubeconfig)
            // Pods of this machine have loopback addresses, and so have its hook servers.
            .env("GAMEKEEPER_HOOK_ALLOW_LOOPBACK", "true")
            .env("RUST_BACKTRACE", "1")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true);
        let child = command.spawn();
        let child = child.with_context(|| format!("start {}", self.binary.display()))?;
        let process = Arc::new(Mutex::new(Some(child)));
        let keeper = keep(command, Arc::clone(&process), self.log.clone());
        self.running = Some(Running {
            process,
            keeper: tokio::spawn(keeper),
            port,
            webhook_port,
        });
        Ok(())
    }

    /// Whether it ended by itself and is not restarted, which it does only when it has lost its lease.
    pub fn has_lost_its_lease(&mut self) -> Result<bool> {
        let Some(status) = self.exit_status()? else {
            return Ok(false);
        };
        self.running = None;
        let said = last_line(&self.log);
        ensure!(
            has_lost_its_lease(status, &said),
            "the operator ended: {status}: {said}"
        );
        Ok(true)
    }

    /// Reads a page of its web server.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let running = self.running.as_ref().context("the operator does not run")?;
        let mut stream = TcpStream::connect(("127.0.0.1", running.port)).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok((code.context("no HTTP answer")?, body.to_owned()))
    }

    /// The memory that it occupies, in bytes.
    pub fn memory(&self) -> Result<u64> {
        self.status("VmRSS:")
    }

    /// What /proc says of it, in bytes.
    fn status(&self, field: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kilobytes.context("odd /proc/PID/status")? * 1024)
    }

    /// Whether it has not ended by itself since it was started.
    pub fn has_survived(&mut self) -> Result<bool> {
        Ok(self.exit_status()?.is_none())
    }

    /// The most memory that it has ever occupied, in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        self.status("VmHWM:")
    }

    /// From now on, until it ends, it gets no more memory for its data than this.
    pub async fn limit_memory(&self, bytes: u64) -> Result<()> {
        let mut limit = Command::new("prlimit");
        limit.arg(format!("--pid={}", self.id()?));
        limit.arg(format!("--data={bytes}"));
        run(&mut limit, "").await?;
        Ok(())
    }

    fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        let running = self.running.as_mut().context("the operator does not run")?;
        Ok(look(&running.process).transpose()?.flatten())
    }

    /// kill -9.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        let running = self.running.take().context("the operator does not run")?;
        Ok(running.end()?.kill().await?)
    }

    /// SIGTERM; it must end well, and soon.
    pub async fn terminate(&mut self) -> Result<()> {
        self.signal("TERM").await?;
        let running = self.running.take().context("the operator does not run")?;
        let ended = timeout(Duration::from_secs(20), running.end()?.wait()).await;
        let status = ended.context("the operator did not end within 20 s of SIGTERM")??;
        ensure!(status.success(), "the operator ended: {status}");
        Ok(())
    }

    /// SIGSTOP: it hangs, as on a machine that has stopped.
    pub async fn freeze(&self) -> Result<()> {
        self.signal("STOP").await
    }

    /// SIGCONT: it goes on as if no time had passed.
    pub async fn thaw(&self) -> Result<()> {
        self.signal("CONT").await
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    async fn signal(&self, name: &str) -> Result<()> {
        let mut kill = Command::new("kill");
        kill.arg(format!("-{name}")).arg(self.id()?.to_string());
        run(&mut kill, "").await?;
        Ok(())
    }

    /// The process's id: another one when it was restarted.
    pub fn id(&self) -> Result<u32> {
        let running = self.running.as_ref().context("the operator does not run")?;
        let id = with(&running.process, |child| child.as_ref().and_then(Child::id));
        id.context("the operator has ended")
    }

    /// The processor time that it has used.
    pub fn processor_time(&self) -> Result<Duration> {
        processor_time(self.id()?)
    }
}

/// Restarts it each time it has lost its lease: a machine that stands still for ten seconds costs every
/// operator on it the lease. How it ends otherwise is left for the test to see.
async fn keep(mut command: Command, process: Process, log: PathBuf) {
    loop {
        sleep(Duration::from_millis(200)).await;
        let status = match look(&process) {
            Some(Ok(None)) => continue,
            Some(Ok(Some(status))) => status,
            Some(Err(_)) | None => return,
        };
        if !has_lost_its_lease(status, &last_line(&log)) {
            return;
        }
        let Ok(next) = command.spawn() else { return };
        with(&process, |child| *child = Some(next));
    }
}

fn last_line(log: &Path) -> String {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    log.lines().last().unwrap_or_default().to_owned()
}

fn has_lost_its_lease(status: ExitStatus, said: &str) -> bool {
    status.code() == Some(1) && said.contains("lost the lease")
}

/// Makes a service account with the operator's roles.
async fn grant(plane: &ControlPlane, namespace: &str, account: &str) -> Result<()> {
    let mut rights = plane.rights.clone();
    rights.retain(|object| object["kind"] != "ClusterRole");
    for object in &mut rights {
        move_to(object, namespace, account);
    }
    plane.apply(&rights).await
}

/// Makes an object of the chart one for another namespace and account. Roles are the same for all.
fn move_to(object: &mut Value, namespace: &str, account: &str) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let moved = match object["kind"].as_str().unwrap_or_default() {
        "ServiceAccount" => account.to_owned(),
        "RoleBinding" => format!("{name}-{account}"),
        "ClusterRoleBinding" => format!("{name}-{account}-{namespace}"),
        _ => name.to_owned(),
    };
    object["metadata"]["name"] = json!(moved);
    if object["metadata"]["namespace"].is_string() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    if object["subjects"].is_array() {
        object["subjects"][0]["namespace"] = json!(namespace);
        object["subjects"][0]["name"] = json!(account);
    }
}

/// Below those that the system gives to a process that asks for any: what is chosen here is bound only later.
const PORTS: Range<u32> = 20_000..30_000;

/// A port on which no process listens, and which no other test of this process is given.
pub async fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in PORTS {
        // Runs side by side begin at different ports.
        let number = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(PORTS.start + number % (PORTS.end - PORTS.start))?;
        if TcpListener::bind(("127.0.0.1", port)).await.is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of {PORTS:?} is free")
}

/// The operator's program; GAMEKEEPER_BINARY names another one.
async fn binary() -> Result<PathBuf> {
    match std::env::var_os("GAMEKEEPER_BINARY") {
        Some(binary) => Ok(binary.into()),
        None => program("gamekeeper").await,
    }
}

//! The operator as a separate process, with the permissions of its roles and no others.

mod account;
mod port;
mod process;

pub use port::free_port;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use judge::object::text;
use kube::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use self::account::{grant, token};
use self::process::{Running, has_lost_its_lease, last_line, supervise, try_wait, with_child};
use crate::cluster::control_plane::{ControlPlane, config};
use crate::cluster::link::Link;
use crate::faults::FaultProxy;
use crate::faults::clock::Clock;
use crate::process::command::{CommandOutput, run, run_unchecked};
use crate::process::program::program;
use crate::process::usage::processor_time;
use crate::wait::eventually;

/// Name of the chart's service account.
pub const ACCOUNT: &str = "gamekeeper";

/// An operator, by default for one namespace.
pub struct Operator {
    binary: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
    account: String,
    /// The operator's arguments, except those that depend on this machine.
    args: Vec<String>,
    leader_election: bool,
    /// The address on which the operator listens.
    host: IpAddr,
    /// The number of the user that the process runs as; that of the tests when absent.
    user: Option<u32>,
    /// Additional environment variables.
    environment: Vec<(String, String)>,
    log: PathBuf,
    running: Option<Running>,
    /// The times at which the operator was started.
    starts: Vec<Timestamp>,
}

impl Operator {
    /// Creates the operator's service account and kubeconfig. The operator's files are kept in `folder`.
    pub async fn prepare(
        plane: &ControlPlane,
        namespace: &str,
        account: &str,
        folder: &Path,
    ) -> Result<Self> {
        grant(plane, namespace, account).await?;
        let args = vec!["run".to_owned(), format!("--namespace={namespace}")];
        Self::with_account(plane, namespace, account, args, folder).await
    }

    /// An operator for one namespace, with a service account that already exists in another namespace.
    pub async fn with_account_of(
        plane: &ControlPlane,
        account_namespace: &str,
        namespace: &str,
        folder: &Path,
    ) -> Result<Self> {
        let args = vec!["run".to_owned(), format!("--namespace={namespace}")];
        Self::with_account(plane, account_namespace, ACCOUNT, args, folder).await
    }

    /// The operator of a release, with the release's service account and the arguments of its Deployment. Waits for
    /// discovery, because this process starts faster than a pod would.
    pub async fn installed(
        plane: &ControlPlane,
        namespace: &str,
        name: &str,
        folder: &Path,
    ) -> Result<Self> {
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
        let deployment = plane.get(&path).await?;
        plane.wait_for_discovery().await?;
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let args = serde_json::from_value(container["args"].clone());
        let args = args.context("the Deployment has no args")?;
        let mut operator = Self::with_account(plane, namespace, name, args, folder).await?;
        for variable in container["env"].as_array().into_iter().flatten() {
            let [name, value] = ["/name", "/value"].map(|field| text(variable, field).to_owned());
            operator.environment.push((name, value));
        }
        Ok(operator)
    }

    async fn with_account(
        plane: &ControlPlane,
        namespace: &str,
        account: &str,
        args: Vec<String>,
        folder: &Path,
    ) -> Result<Self> {
        let kubeconfig = folder.join(format!("{account}.kubeconfig"));
        let token = token(plane, namespace, account).await?;
        let config = std::fs::read_to_string(&plane.kubeconfig)?;
        let mut config: Value = serde_yaml_ng::from_str(&config)?;
        config["users"] = json!([{"name": account, "user": {"token": token}}]);
        let cluster = config["clusters"][0]["name"].clone();
        let context = json!({"cluster": cluster, "user": account, "namespace": namespace});
        config["contexts"] = json!([{"name": account, "context": context}]);
        config["current-context"] = json!(account);
        std::fs::write(&kubeconfig, serde_json::to_vec(&config)?)?;
        Ok(Operator {
            binary: program("gamekeeper").await?,
            kubeconfig,
            namespace: namespace.to_owned(),
            account: account.to_owned(),
            args,
            leader_election: true,
            host: Ipv4Addr::LOCALHOST.into(),
            user: None,
            environment: Vec::new(),
            log: folder.join(format!("{account}.log")),
            running: None,
            starts: Vec::new(),
        })
    }

    /// A client with the operator's credentials and permissions.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::try_from(config(&self.kubeconfig).await?)?)
    }

    /// The user name under which the API server knows the operator.
    pub fn username(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account)
    }

    /// Disables leader election from the next start on, so that the operator does not wait for the lease
    /// of a killed predecessor.
    pub fn disable_leader_election(&mut self) {
        self.leader_election = false;
    }

    /// Disables restarts after an exit, from now until the next start.
    pub fn disable_restart(&self) {
        if let Some(running) = &self.running {
            running.supervisor.abort();
        }
    }

    /// Adds arguments from the next start on.
    pub fn add_args(&mut self, flags: Vec<String>) {
        self.args.extend(flags);
    }

    /// Lets hooks run commands in the operator's namespace, from the next start on.
    pub fn allow_commands(&mut self) {
        self.args.push(format!("--hook-exec-namespaces={}", self.namespace));
    }

    /// The operator's binary.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Runs another command of the binary alongside the operator, with the operator's permissions. The command
    /// may fail.
    pub async fn run(&self, args: &[&str]) -> Result<CommandOutput> {
        let mut command = Command::new(&self.binary);
        command.args(args).env("KUBECONFIG", &self.kubeconfig);
        run_unchecked(&mut command).await
    }

    /// The port of the operator's HTTP server.
    pub fn port(&self) -> Result<u16> {
        let running = self.running.as_ref();
        Ok(running.context("no operator is running")?.port)
    }

    /// The port of the operator's webhook, if the operator has the arguments of a Deployment.
    pub fn webhook_port(&self) -> Result<u16> {
        let running = self.running.as_ref();
        Ok(running.context("no operator is running")?.webhook_port)
    }

    /// The operator's log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Connects the operator to the API server through a link, from the next start on.
    pub fn use_link(&self, link: &Link) -> Result<()> {
        self.reconfigure(|cluster| cluster["server"] = json!(link.url()))
    }

    /// Connects the operator to the API server through a proxy, from the next start on.
    pub fn use_proxy(&self, proxy: &FaultProxy) -> Result<()> {
        let ca = self.kubeconfig.with_extension("ca");
        std::fs::write(&ca, proxy.ca())?;
        let server = json!({"server": proxy.url(), "certificate-authority": ca});
        self.reconfigure(|cluster| *cluster = server)
    }

    fn reconfigure(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut config: Value = serde_json::from_slice(&std::fs::read(&self.kubeconfig)?)?;
        change(&mut config["clusters"][0]["cluster"]);
        Ok(std::fs::write(&self.kubeconfig, serde_json::to_vec(&config)?)?)
    }

    /// Connects the operator to the API server over IPv6, and makes it listen on `[::1]` alone, from the next start on.
    pub fn use_ipv6(&mut self, link: &Link) -> Result<()> {
        self.host = Ipv6Addr::LOCALHOST.into();
        self.reconfigure(|cluster| {
            cluster["server"] = json!(link.url());
            // The API server's certificate is not for [::1].
            cluster["tls-server-name"] = json!("localhost");
        })
    }

    /// Makes the process run as another user, from the next start on, if that user can reach the checkout.
    pub fn use_user(&mut self, user: u32) -> Result<()> {
        let is_open = |path: &Path| {
            let mode = std::fs::metadata(path).map(|it| it.permissions().mode());
            mode.is_ok_and(|mode| mode & 0o1 != 0)
        };
        let files = [&self.binary, &self.kubeconfig];
        if !files.iter().all(|it| it.ancestors().skip(1).all(is_open)) {
            eprintln!("not run as user {user}, who cannot reach this checkout");
            return Ok(());
        }
        self.user = Some(user);
        // The cluster's files are below the home of the user that runs the tests.
        let ca = self.kubeconfig.with_extension("ca");
        let mut copied = Ok(0);
        self.reconfigure(|cluster| {
            let path = cluster["certificate-authority"].as_str();
            copied = std::fs::copy(path.unwrap_or_default(), &ca);
            cluster["certificate-authority"] = json!(ca);
        })?;
        copied.context("the API server's CA cannot be read")?;
        Ok(())
    }

    /// Makes the operator use a clock, from the next start on.
    pub fn use_clock(&mut self, clock: &Clock) {
        let variables = clock.environment().map(|(name, value)| (name.to_owned(), value));
        self.environment.extend(variables);
    }

    /// Starts the operator and waits until it is ready.
    pub async fn start(&mut self) -> Result<()> {
        self.launch().await?;
        self.until_ready().await
    }

    /// Waits until the operator is ready.
    pub async fn until_ready(&mut self) -> Result<()> {
        eventually("the operator is ready", Duration::from_secs(60), async || {
            if let Some(status) = self.exit_status()? {
                bail!("the operator exited: {status}; see {}", self.log.display());
            }
            let (code, body) = self.get("/readyz").await?;
            ensure!(code == 200, "/readyz returns {code}: {body}");
            Ok(())
        })
        .await
    }

    /// Starts the operator without waiting.
    pub async fn launch(&mut self) -> Result<()> {
        ensure!(self.running.is_none(), "the operator is already running");
        let log = std::fs::File::options().create(true).append(true).open(&self.log)?;
        let port = free_port().await?;
        // Several replicas of a Deployment may run on this machine, so each needs a port of its own.
        let webhook_port = free_port().await?;
        let listen = |port| SocketAddr::new(self.host, port);
        let webhook = format!("--webhook-listen={}", listen(webhook_port));
        let args = self.args.iter().map(String::as_str);
        let args = args.filter(|arg| !arg.starts_with("--listen=[::]:"));
        let args = args.filter(|arg| !arg.starts_with("--instance-file="));
        let args = args.map(|arg| match arg.starts_with("--webhook-listen=[::]:") {
            true => webhook.as_str(),
            false => arg,
        });
        let mut command = Command::new(&self.binary);
        command
            .args(args)
            .args(["--listen", &listen(port).to_string()])
            .arg(format!("--leader-elect={}", self.leader_election))
            .arg(format!("--instance-file={}", self.log.with_extension("instance").display()))
            .env("KUBECONFIG", &self.kubeconfig)
            // Simulated pods and hook servers have loopback addresses.
            .env("GAMEKEEPER_HOOK_ALLOW_LOOPBACK", "true")
            .env("RUST_BACKTRACE", "1")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        self.starts.push(Timestamp::now());
        let child = command.spawn();
        let child = child.with_context(|| format!("start {}", self.binary.display()))?;
        let process = Arc::new(Mutex::new(Some(child)));
        let supervisor = supervise(command, Arc::clone(&process), self.log.clone());
        self.running =
            Some(Running { process, supervisor: tokio::spawn(supervisor), port, webhook_port });
        Ok(())
    }

    /// Whether the operator has exited because it lost its lease. Fails if it has exited for another reason.
    pub fn has_lost_its_lease(&mut self) -> Result<bool> {
        let Some(status) = self.exit_status()? else {
            return Ok(false);
        };
        self.running = None;
        let message = last_line(&self.log);
        ensure!(has_lost_its_lease(status, &message), "the operator exited: {status}: {message}");
        Ok(true)
    }

    /// Reads a page from the operator's HTTP server, and returns the HTTP status and the body.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let running = self.running.as_ref().context("no operator is running")?;
        let mut stream = TcpStream::connect((self.host, running.port)).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        let code = response.split(' ').nth(1).and_then(|code| code.parse().ok());
        let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok((code.context("no HTTP response")?, body.to_owned()))
    }

    /// The operator's resident memory in bytes.
    pub fn memory(&self) -> Result<u64> {
        self.proc_status("VmRSS:")
    }

    /// A size in /proc/PID/status, in bytes.
    fn proc_status(&self, field: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kilobytes.context("unexpected format of /proc/PID/status")? * 1024)
    }

    /// Whether the operator's process still runs. Fails if the operator was not started, or was stopped.
    pub fn is_alive(&mut self) -> Result<bool> {
        Ok(self.exit_status()?.is_none())
    }

    /// The operator's peak resident memory in bytes, since its start or [`Self::reset_peak_memory`].
    pub fn peak_memory(&self) -> Result<u64> {
        self.proc_status("VmHWM:")
    }

    /// Begins to measure the peak of the resident memory again.
    pub fn reset_peak_memory(&self) -> Result<()> {
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.id()?), "5")?)
    }

    /// Limits the process's data segment to this many bytes until the process exits.
    pub async fn limit_memory(&self, bytes: u64) -> Result<()> {
        let mut limit = Command::new("prlimit");
        limit.arg(format!("--pid={}", self.id()?));
        limit.arg(format!("--data={bytes}"));
        run(&mut limit, "").await?;
        Ok(())
    }

    fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        let running = self.running.as_mut().context("no operator is running")?;
        Ok(try_wait(&running.process).transpose()?.flatten())
    }

    /// Kills the operator (kill -9).
    pub async fn kill(&mut self) -> Result<()> {
        if self.has_lost_its_lease()? {
            return Ok(());
        }
        let running = self.running.take().context("no operator is running")?;
        Ok(running.end()?.kill().await?)
    }

    /// Sends SIGTERM and waits until the operator exits. Fails if it does not exit cleanly within 30 s, after which a
    /// kubelet would kill it by default. An operator that loses its lease exits anyway.
    pub async fn terminate(&mut self) -> Result<()> {
        if self.has_lost_its_lease()? {
            return Ok(());
        }
        self.signal("TERM").await?;
        let running = self.running.take().context("no operator is running")?;
        let ended = timeout(Duration::from_secs(30), running.end()?.wait()).await;
        let status = ended.context("the operator did not exit within 30 s of SIGTERM")??;
        let message = last_line(&self.log);
        ensure!(
            status.success() || has_lost_its_lease(status, &message),
            "the operator exited: {status}: {message}"
        );
        Ok(())
    }

    /// SIGSTOP: the process hangs, as on a frozen machine.
    pub async fn freeze(&self) -> Result<()> {
        self.signal("STOP").await
    }

    /// SIGCONT: the process continues.
    pub async fn thaw(&self) -> Result<()> {
        self.signal("CONT").await
    }

    /// Whether the operator was started and has not been stopped since. The process may have exited on its own.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    async fn signal(&self, name: &str) -> Result<()> {
        let mut kill = Command::new("kill");
        kill.arg(format!("-{name}")).arg(self.id()?.to_string());
        run(&mut kill, "").await?;
        Ok(())
    }

    /// The process ID. It changes with a restart.
    pub fn id(&self) -> Result<u32> {
        let running = self.running.as_ref().context("no operator is running")?;
        let id = with_child(&running.process, |child| child.as_ref().and_then(Child::id));
        id.with_context(|| format!("the operator has exited: {}", last_line(&self.log)))
    }

    /// The times at which the operator was started.
    pub fn starts(&self) -> &[Timestamp] {
        &self.starts
    }

    /// The CPU time of the process.
    pub fn processor_time(&self) -> Result<Duration> {
        processor_time(self.id()?)
    }
}

//! The process around the controllers: connection, caches, leadership, HTTP, shutdown.

mod client;
mod gate;
mod http;
mod lease;
mod metrics;
mod options;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

pub use client::{ClientError, client};
pub use gate::{Gate, GateLayer, NotLeader};
pub use options::{LogFormat, Options};

use self::http::Health;
use self::lease::Elector;
use self::metrics::{Gauges, Shown};
use crate::apply::events::{Events, Regarding, Told, Writer};
use crate::apply::{Applier, Metrics, Requests};
use crate::cache::{BrokenSink, Cache, Cached, Router, Sink};
use crate::controller::{GameDeployments, HookRuns, Queue, Shared, work};
use crate::plan::Event;
use crate::provider::{HttpOptions, Probe, ProbeError};

/// Workloads that are looked at side by side.
const WORKLOADS: usize = 64;
/// HookRuns likewise; most of them wait for their turn to write.
const HOOK_RUNS: usize = 16_384;
/// How long syncs may take to end when the process is to end.
const FINISH: Duration = Duration::from_secs(10);

/// Why the process ends.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The log level cannot be read.
    #[error("--log-level: {0}")]
    LogLevel(#[from] tracing_subscriber::filter::ParseError),
    /// There is no cluster to talk to.
    #[error("no cluster: {0}; set KUBECONFIG, or run in a pod with a service account")]
    Config(#[from] kube::config::InferConfigError),
    /// There is no client for it.
    #[error("cannot connect to the cluster: {0}")]
    Client(#[from] ClientError),
    /// The address is taken, or not ours.
    #[error("--listen {0}: {1}")]
    Listen(std::net::SocketAddr, std::io::Error),
    /// Hooks cannot be measured.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// Signals cannot be heard.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    /// A part that never ends has ended.
    #[error("a watch or server of the process broke down: {0:?}")]
    Broken(Option<Result<(), JoinError>>),
}

/// Runs the operator until it is told to stop.
pub async fn run(options: Options) -> Result<(), RunError> {
    options.init_logging()?;
    // Fails only when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let stop = terminated().map_err(RunError::Signals)?;
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.map_err(|error| RunError::Listen(options.listen, error))?;
    let config = Config::infer().await?;
    let gate = match options.leader_elect {
        true => Gate::closed(),
        false => Gate::always_open(),
    };
    let client = client(&config, Arc::clone(&gate))?;
    let instance = instance();
    let elector = match options.leader_elect {
        true => {
            // The lease itself is written before the gate is open.
            let client = self::client(&config, Gate::always_open())?;
            let namespace = &config.default_namespace;
            let gate = Arc::clone(&gate);
            Some(Elector::new(client, namespace, instance.clone(), gate))
        }
        false => None,
    };

    let health = Arc::new(Health::default());
    let mut lasting = JoinSet::new();
    let app = http::routes(Arc::clone(&health));
    lasting.spawn(async move {
        if let Err(error) = axum::serve(listener, app).await {
            warn!(%error, "the HTTP server ended");
        }
    });
    let work = async {
        let allow_link_local = options.hook_allow_link_local;
        let probe = Probe::new(HttpOptions { allow_link_local }, Some(client.clone()))?;
        let streaming = can_stream_lists(&client).await;
        let operator = Operator::new(&client, options.namespace.as_deref(), streaming, probe);
        let cache = &operator.shared.cache;
        let gauges = Gauges {
            cache: Arc::clone(cache),
            queues: vec![
                ("gamedeployment", Arc::clone(&operator.game_deployments)),
                ("hookrun", Arc::clone(&operator.hook_runs)),
            ],
            gate: Arc::clone(&gate),
        };
        // Nobody else sets them.
        let _ = health.cache.set(Arc::clone(cache));
        let _ = health
            .metrics
            .set(Shown::new(&operator.shared.metrics, gauges));
        operator.run(elector, instance, stop.clone()).await
    };
    tokio::select! {
        ended = work => ended,
        ended = lasting.join_next() => Err(RunError::Broken(ended)),
        // Before there is anything to finish.
        () = stopped_early(stop.clone(), Arc::clone(&health)) => Ok(()),
    }
}

/// Returns when the process is told to stop before it has begun to work.
async fn stopped_early(mut stop: watch::Receiver<bool>, health: Arc<Health>) {
    let _ = stop.wait_for(|stop| *stop).await;
    if health.cache.get().is_some() {
        std::future::pending::<()>().await;
    }
}

/// Becomes true at SIGTERM or SIGINT.
fn terminated() -> std::io::Result<watch::Receiver<bool>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (tell, told) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("told to stop");
        tell.send_replace(true);
    });
    Ok(told)
}

/// A name for this process that no other has.
fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let random = RandomState::new().build_hasher().finish();
    format!("{}_{random:016x}", host.trim())
}

/// Whether the server can stream lists; waits until there is a server.
async fn can_stream_lists(client: &Client) -> bool {
    loop {
        match client.apiserver_version().await {
            Ok(version) => {
                info!(version = version.git_version, "connected");
                let digits = |text: &str| {
                    let end = text.find(|c: char| !c.is_ascii_digit());
                    text[..end.unwrap_or(text.len())].parse().unwrap_or(0)
                };
                return (digits(&version.major), digits(&version.minor)) >= (1, 33);
            }
            Err(error) => warn!(%error, "the API server does not answer"),
        }
        sleep(Duration::from_secs(2)).await;
    }
}

/// The controllers and all that they share.
struct Operator {
    shared: Shared,
    events: Writer,
    requests: Requests,
    game_deployments: Arc<Queue>,
    hook_runs: Arc<Queue>,
    probe: Probe,
    watches: JoinSet<()>,
}

impl Operator {
    /// Starts the watches.
    fn new(client: &Client, namespace: Option<&str>, streaming: bool, probe: Probe) -> Self {
        let requests = Requests::new(client.clone());
        let (events, writer) = Events::new();
        let cache = Arc::new(Cache::new(client, namespace, streaming));
        let metrics = Metrics::default();
        let game_deployments = Arc::new(Queue::default());
        let hook_runs = Arc::new(Queue::default());
        let router = Router::new(
            sink(&game_deployments),
            sink(&hook_runs),
            broken(events.clone()),
        );
        Self {
            watches: cache.start(&Arc::new(router)),
            shared: Shared {
                cache,
                requests: requests.clone(),
                applier: Applier::new(requests.clone(), events.clone(), metrics.clone()),
                events,
                metrics,
            },
            events: writer,
            requests,
            game_deployments,
            hook_runs,
            probe,
        }
    }

    /// Works until told to stop: always, or (with an elector) while this process leads.
    async fn run(
        mut self,
        elector: Option<Elector>,
        instance: String,
        stop: watch::Receiver<bool>,
    ) -> Result<(), RunError> {
        let writer = std::mem::replace(&mut self.events, Events::new().1);
        let mut lasting = std::mem::take(&mut self.watches);
        lasting.spawn(writer.run(self.requests.clone(), instance));
        let work = async {
            match elector {
                Some(elector) => self.lead(elector, stop).await,
                None => self.control(stop).await,
            }
        };
        tokio::select! {
            () = work => Ok(()),
            ended = lasting.join_next() => Err(RunError::Broken(ended)),
        }
    }

    /// Works whenever this process leads, until told to stop.
    async fn lead(&self, mut elector: Elector, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                () = elector.acquire() => {}
            }
            let (end, ended) = watch::channel(false);
            let controllers = self.control(ended);
            tokio::pin!(controllers);
            tokio::select! {
                () = &mut controllers => {}
                () = elector.hold() => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
            end.send_replace(true);
            // Syncs end while the lease is still held, unless it is lost: then their writes fail.
            let finish = async {
                tokio::select! {
                    () = &mut controllers => {}
                    () = async { elector.hold().await; std::future::pending().await } => {}
                }
            };
            if timeout(FINISH, finish).await.is_err() {
                warn!("some syncs did not end in time");
            }
        }
        elector.release().await;
    }

    /// Runs the controllers until told to stop.
    async fn control(&self, stop: watch::Receiver<bool>) {
        let cache = &self.shared.cache;
        let caught_up = async {
            while let Err(error) = cache.catch_up_with_server().await {
                warn!(%error, "the caches cannot be compared with the API server");
                sleep(Duration::from_secs(1)).await;
            }
        };
        let mut told = stop.clone();
        tokio::select! {
            _ = told.wait_for(|stop| *stop) => return,
            () = caught_up => {}
        }
        for workload in cache.game_deployments.store().all() {
            self.game_deployments.add(workload.key());
        }
        for run in cache.hook_runs.store().all() {
            self.hook_runs.add(run.key());
        }
        info!("controllers start");
        tokio::join!(
            self.control_game_deployments(stop.clone()),
            self.control_hook_runs(stop),
        );
        info!("controllers have ended");
    }

    async fn control_game_deployments(&self, stop: watch::Receiver<bool>) {
        let controller = Arc::new(GameDeployments::new(self.shared.clone()));
        let look = move |key| Arc::clone(&controller).look(key);
        work(Arc::clone(&self.game_deployments), WORKLOADS, stop, look).await;
    }

    async fn control_hook_runs(&self, stop: watch::Receiver<bool>) {
        let controller = Arc::new(HookRuns::new(
            Arc::clone(&self.shared.cache),
            self.requests.clone(),
            self.probe.clone(),
            Arc::clone(&self.hook_runs),
        ));
        let looking = Arc::clone(&controller);
        let look = move |key| Arc::clone(&looking).look(key);
        work(Arc::clone(&self.hook_runs), HOOK_RUNS, stop, look).await;
        controller.abandon();
    }
}

/// Puts keys into a queue.
fn sink(queue: &Arc<Queue>) -> Sink {
    let queue = Arc::clone(queue);
    Box::new(move |key| queue.add(key))
}

/// Tells of objects that cannot be read.
fn broken(events: Events) -> BrokenSink {
    Box::new(move |kind, key, reason| {
        let about = Regarding {
            kind,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: String::new(),
        };
        let event = Event {
            warning: true,
            reason: "Unreadable".to_owned(),
            message: format!("the operator cannot read this object and leaves it alone: {reason}"),
        };
        events.tell(about, Told::Plain(event));
    })
}

//! The process around the controllers: connection, caches, leadership, HTTP, shutdown.

mod catch_up;
mod http;
mod operator;
mod options;
pub mod wait_for;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::sleep;
use tracing::{info, warn};

pub use options::{LogFormat, Options};

use self::http::Health;
use self::operator::Operator;
use crate::kinds::{Cache, OptionalKinds, Settings};
use crate::metrics::{Counters, MetricsRegistry};
use crate::provider::{Commands, HttpOptions, Probe, ProbeError};
use crate::runtime::client::{ClientError, client};
use crate::runtime::descriptors;
use crate::runtime::fence::Fence;
use crate::runtime::inbound;
use crate::runtime::inbound::listen;
use crate::runtime::lease::{Elector, LeaseTimes, Predecessor};
use crate::runtime::memory::MemoryLimits;
use crate::runtime::threads::OwnRuntime;
use crate::webhook;
use gamekeeper_core::causes::with_causes;
use gamekeeper_core::hook_run::ExecNamespaces;
use gamekeeper_core::sidecar_set::WebhookState;

/// Why the operator ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no cluster configuration.
    #[error(
        "no cluster configuration: {0}; set KUBECONFIG, or run in a pod with a service account"
    )]
    Config(#[from] kube::config::InferConfigError),
    /// The configuration of the client is invalid.
    #[error("cannot connect to the cluster: {0}")]
    Client(#[from] ClientError),
    /// The process cannot listen on the address of probes and metrics.
    #[error("--listen {0}: {1}")]
    Listen(std::net::SocketAddr, std::io::Error),
    /// The process cannot listen on the address of the webhook.
    #[error("--webhook-listen {0}: {1}")]
    WebhookListen(std::net::SocketAddr, std::io::Error),
    /// The threads of the webhook could not be started.
    #[error("cannot serve admission: {0}")]
    Webhook(std::io::Error),
    /// The threads that serve metrics, probes and admission could not be started.
    #[error("cannot serve metrics, probes and admission: {0}")]
    Inbound(std::io::Error),
    /// The threads of the planner could not be started.
    #[error("cannot start the planners: {0}")]
    Planners(std::io::Error),
    /// The providers of hooks could not be started.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The process cannot handle signals.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    /// The lease was lost; another process may lead now.
    #[error("lost the lease; exiting, so that the process restarts with empty caches")]
    LeaseLost,
    /// The caches of the new leader did not catch up with the API server.
    #[error(
        "{} s after this process became the leader, its caches still lag behind the API server; \
        releasing the lease: {why}", limit.as_secs()
    )]
    Behind {
        /// The time limit.
        limit: Duration,
        /// The last error.
        why: String,
    },
    /// A task that should never end has ended.
    #[error("a watch or server of this process ended: {0:?}")]
    Broken(Option<Result<(), JoinError>>),
}

/// Runs the operator until SIGTERM or SIGINT.
pub async fn run(options: Options) -> Result<(), RunError> {
    options.init_logging();
    descriptors::raise_limit();
    // Fails only if a crypto provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let stop = stop_signal().map_err(RunError::Signals)?;
    let listener = listen(options.listen).await;
    let listener = listener.map_err(|error| RunError::Listen(options.listen, error))?;
    let webhook_listener = webhook_listener(&options.webhook).await?;
    let config = Config::infer().await?;
    if config.proxy_url.is_some() {
        warn!("proxies are not supported: the operator calls the API server directly");
    }
    let fence = match options.leader_elect {
        true => Fence::closed(),
        false => Fence::always_open(),
    };
    let counters = Counters::default();
    let client = client(&config, Arc::clone(&fence), &counters.requests)?;
    let instance = instance();
    let elector = match options.leader_elect {
        true => {
            // The lease must be written before the fence opens, so the fence of this client is always open.
            let client = self::client(&config, Fence::always_open(), &counters.requests)?;
            let namespace = &config.default_namespace;
            let (lease, fence) = (options.lease_name.clone(), Arc::clone(&fence));
            let times = LeaseTimes::of(options.lease_duration);
            let elector = Elector::new(client, namespace, lease, instance.clone(), fence, times);
            Some(elector.with_predecessor(predecessor(&options, &instance)))
        }
        false => None,
    };

    let health = Arc::new(Health::default());
    let inbound_runtime = OwnRuntime::start("inbound", false).map_err(RunError::Inbound)?;
    let mut background = JoinSet::new();
    let (webhook_state, webhook) = watch::channel(match webhook_listener {
        Some(_) => WebhookState::InForce,
        None => WebhookState::NotServed,
    });
    let routes = http::routes(Arc::clone(&health));
    let connections = [inbound::Connections::default(), inbound::Connections::default()];
    let [of_http, of_webhook] = connections.clone();
    let serving = inbound::serve(listener, None, routes, of_http);
    background.spawn_on(serving, inbound_runtime.handle());
    if let Some(listener) = webhook_listener {
        let target = webhook::WebhookTarget {
            client: self::client(&config, Fence::always_open(), &counters.requests)?,
            namespace: config.default_namespace.clone(),
            scope: options.namespace.clone(),
            commands: ExecNamespaces::from_iter(&options.hook_exec_namespaces),
            sidecar_sets: options.sidecar_sets,
        };
        let cache_owner = Arc::clone(&health);
        // All tasks of the webhook, and its connection to the API server, are served by the runtime of inbound requests.
        let _entered = inbound_runtime.handle().enter();
        let certificate = webhook::start(
            &options.webhook,
            (listener, of_webhook),
            target,
            move || cache_owner.cache.get().cloned(),
            counters.admission.clone(),
            webhook_state,
            &mut background,
        );
        // Setting the certificate cannot fail, because it is set only here.
        let _ = health.webhook.set(certificate.map_err(RunError::Webhook)?);
    }
    let work = async {
        let http = HttpOptions {
            allow_link_local: options.hook_allow_link_local,
            allow_loopback: options.hook_allow_loopback,
        };
        let commands = ExecNamespaces::from_iter(&options.hook_exec_namespaces);
        // Its connections are served by the runtime of calls, so hooks do not delay the controllers' requests.
        let for_hooks = self::client(&config, Arc::clone(&fence), &counters.requests)?;
        let probe = Probe::new(http, Some(for_hooks))?;
        let probe = probe.with_commands(Commands::In(commands));
        let streaming = can_stream_lists(&client).await;
        let operator = Operator::new(
            &client,
            Cache::new(
                &client,
                options.namespace.as_deref(),
                streaming,
                Settings {
                    kinds: OptionalKinds {
                        sidecar_sets: options.sidecar_sets,
                        clusters: options.lifecycle_hooks_image.is_some(),
                    },
                    going_taints: options.going_taints.as_slice().into(),
                    priority_class: options.guarded_priority_class.as_deref().map(Into::into),
                    leaves_pods_unguarded: !options.guarded_pods,
                    own_namespace: config.default_namespace.as_str().into(),
                    sidecars_in_all_namespaces: options.sidecars_in_all_namespaces,
                    memory: MemoryLimits {
                        namespace: options.cache_namespace_mib << 20,
                        total: options.cache_total_mib << 20,
                    },
                },
            ),
            probe,
            instance,
            counters.clone(),
            options.lifecycle_hooks_image.clone(),
            webhook,
        );
        // Setting these cannot fail, because they are set only here.
        let _ = health.cache.set(operator.cache());
        let metrics = MetricsRegistry::new(counters, operator.queues(), operator.cache(), fence);
        let metrics = Arc::new(metrics);
        let _ = health.metrics.set(Arc::clone(&metrics));
        tokio::select! {
            result = operator.run(elector, stop.clone()) => result,
            () = remove_deleted_series(metrics) => Ok(()),
        }
    };
    let ended = tokio::select! {
        result = work => result,
        ended = background.join_next() => Err(RunError::Broken(ended)),
        () = stopped_early(stop.clone(), Arc::clone(&health)) => Ok(()),
    };
    // Reviews in progress are answered, because an API server cannot repeat them.
    let closing = connections.iter().map(|it| it.close(CLOSE_TIMEOUT));
    futures::future::join_all(closing).await;
    ended
}

/// How long requests in progress may take when the process ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(4);

/// The interval at which the series of deleted objects are removed, even if nothing scrapes the metrics.
const SERIES_INTERVAL: Duration = Duration::from_secs(60);

/// Removes the series of deleted objects, forever.
async fn remove_deleted_series(metrics: Arc<MetricsRegistry>) {
    loop {
        sleep(SERIES_INTERVAL).await;
        let metrics = Arc::clone(&metrics);
        // Fails only if it panics; the next attempt does not depend on this one.
        let _ = spawn_blocking(move || metrics.remove_deleted()).await;
    }
}

async fn webhook_listener(
    options: &webhook::WebhookOptions,
) -> Result<Option<TcpListener>, RunError> {
    let Some(address) = options.webhook_listen else {
        return Ok(None);
    };
    let listener = listen(address).await;
    let listener = listener.map_err(|error| RunError::WebhookListen(address, error))?;
    Ok(Some(listener))
}

/// Returns on a signal that arrives before the caches start: until then, there is no work to finish.
async fn stopped_early(mut stop: watch::Receiver<bool>, health: Arc<Health>) {
    let _ = stop.wait_for(|stop| *stop).await;
    if health.cache.get().is_some() {
        std::future::pending::<()>().await;
    }
}

/// Becomes true on SIGTERM or SIGINT.
fn stop_signal() -> std::io::Result<watch::Receiver<bool>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (sender, stop) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("received a signal; shutting down");
        sender.send_replace(true);
    });
    Ok(stop)
}

/// The process that ran in this container before, if there is a file that tells.
fn predecessor(options: &Options, instance: &str) -> Option<Predecessor> {
    let path = options.instance_file.as_ref()?;
    let predecessor = Predecessor::replace(path, instance);
    let predecessor = predecessor.inspect_err(|error| {
        let path = path.display();
        warn!(%path, %error, "cannot use the instance file; after a crash, the lease has to expire");
    });
    predecessor.ok()
}

/// A unique name for this process.
fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let random = RandomState::new().build_hasher().finish();
    format!("{}_{random:016x}", host.trim())
}

/// Whether the API server can stream lists. Waits until the API server responds.
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
            Err(error) => warn!(error = %with_causes(&error), "the API server does not respond"),
        }
        sleep(Duration::from_secs(2)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::apply::WorkloadLabels;
    use crate::runtime::queue::Queues;
    use gamekeeper_core::api::names::WorkloadKind;

    /// Without a scrape, the series of workloads that come and go would fill the memory.
    #[tokio::test(start_paused = true)]
    async fn series_of_deleted_workloads_are_removed_without_a_scrape() {
        let counters = Counters::default();
        let metrics = MetricsRegistry::new(
            counters.clone(),
            Queues(Vec::new()),
            Arc::new(Cache::default()),
            Fence::always_open(),
        );
        let labels = WorkloadLabels {
            kind: WorkloadKind::GameDeployment,
            namespace: "games".to_owned(),
            name: "deleted".to_owned(),
        };
        counters.writes.reconciled(labels, true, Duration::from_millis(1));
        let page = || {
            let mut registry = prometheus_client::registry::Registry::default();
            registry.register_collector(Box::new(counters.writes.clone()));
            let mut page = String::new();
            prometheus_client::encoding::text::encode(&mut page, &registry).expect("a page");
            page
        };
        assert!(page().contains("games/deleted"));
        let removing = remove_deleted_series(Arc::new(metrics));
        let waiting = async {
            while page().contains("games/deleted") {
                sleep(Duration::from_millis(100)).await;
            }
        };
        let removed = async {
            tokio::select! {
                () = removing => {}
                () = waiting => {}
            }
        };
        let removed = tokio::time::timeout(3 * SERIES_INTERVAL, removed).await;
        assert!(removed.is_ok());
    }
}

//! The options of `gamekeeper run`.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use gamekeeper_core::observed::time::parse_duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::runtime::lease::{MAX_LEASE_DURATION, MIN_LEASE_DURATION};
use crate::webhook;

/// Flags of `gamekeeper run`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Address of /metrics, /healthz and /readyz; the address :: stands for all addresses, of IPv4 too.
    #[arg(long, env = "GAMEKEEPER_LISTEN", default_value = "[::]:8080")]
    pub listen: SocketAddr,
    /// Work only while holding a lease, so that further replicas can stand by.
    #[arg(
        long,
        env = "GAMEKEEPER_LEADER_ELECT",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub leader_elect: bool,
    /// Name of the lease; operators with the same lease never work at the same time.
    #[arg(long, env = "GAMEKEEPER_LEASE_NAME", default_value = "gamekeeper")]
    pub lease_name: String,
    /// How long a lease lasts that is not renewed: from 5s to 60s. Its holder stops writing after two thirds of it.
    #[arg(
        long,
        env = "GAMEKEEPER_LEASE_DURATION",
        default_value = "15s",
        value_parser = lease_duration
    )]
    pub lease_duration: Duration,
    /// File that outlives the process, but not its pod or machine. A process that was killed is then replaced before its
    /// lease expires, because the next one learns from the file that it has ended; never share it.
    #[arg(long, env = "GAMEKEEPER_INSTANCE_FILE", value_name = "PATH")]
    pub instance_file: Option<PathBuf>,
    /// Work in this namespace only; in all namespaces when absent.
    #[arg(long, env = "GAMEKEEPER_NAMESPACE")]
    pub namespace: Option<String>,
    /// Serve SidecarSets; with --namespace, only those whose spec.namespace is that namespace.
    #[arg(
        long,
        env = "GAMEKEEPER_SIDECAR_SETS",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub sidecar_sets: bool,
    /// Inject sidecars into pods of other controllers in all namespaces, except those labeled
    /// gamekeeper.tkex.tencent.com/sidecars=disabled; when absent, only in those labeled
    /// gamekeeper.tkex.tencent.com/sidecars=enabled.
    #[arg(long, env = "GAMEKEEPER_SIDECARS_IN_ALL_NAMESPACES")]
    pub sidecars_in_all_namespaces: bool,
    /// The admission webhook.
    #[command(flatten)]
    pub webhook: webhook::WebhookOptions,
    /// Namespaces, separated by commas, in which hooks may run commands in containers; none when absent.
    #[arg(
        long,
        env = "GAMEKEEPER_HOOK_EXEC_NAMESPACES",
        value_name = "NAMESPACES",
        value_delimiter = ','
    )]
    pub hook_exec_namespaces: Vec<String>,
    /// Keys, separated by commas, of taints that mark a node that is about to be removed, for workloads
    /// with spec.protection.onNodeGoing: Move.
    #[arg(
        long,
        env = "GAMEKEEPER_GOING_TAINTS",
        value_name = "KEYS",
        value_delimiter = ',',
        default_values_t = going_taints()
    )]
    pub going_taints: Vec<String>,
    /// Guard the pods of workloads that request it. If false, guards that are in force are removed.
    #[arg(
        long,
        env = "GAMEKEEPER_GUARDED_PODS",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub guarded_pods: bool,
    /// PriorityClass of guarded pods whose template names none; without this flag, they get none.
    #[arg(long, env = "GAMEKEEPER_GUARDED_PRIORITY_CLASS", value_name = "NAME")]
    pub guarded_priority_class: Option<String>,
    /// Let hooks call link-local and cloud metadata addresses.
    #[arg(long, env = "GAMEKEEPER_HOOK_ALLOW_LINK_LOCAL")]
    pub hook_allow_link_local: bool,
    /// Let hooks call loopback addresses: those of the operator itself and of other containers in its pod.
    #[arg(long, env = "GAMEKEEPER_HOOK_ALLOW_LOOPBACK")]
    pub hook_allow_loopback: bool,
    /// Image of the operator, used by the Jobs that run the scripts of Clusters; without it, lifecycle hooks are
    /// disabled.
    #[arg(
        long,
        env = "GAMEKEEPER_LIFECYCLE_HOOKS_IMAGE",
        value_name = "IMAGE",
        conflicts_with = "namespace"
    )]
    pub lifecycle_hooks_image: Option<String>,
    /// MiB of memory that the cached objects of one namespace may take. Objects beyond it are reported as unreadable, and
    /// nothing is planned for workloads that they belong to.
    #[arg(
        long,
        env = "GAMEKEEPER_CACHE_NAMESPACE_MIB",
        value_name = "MIB",
        default_value_t = 96,
        value_parser = mebibytes
    )]
    pub cache_namespace_mib: usize,
    /// MiB of memory that all cached objects may take, except those of namespaces that take less than 8 MiB.
    #[arg(
        long,
        env = "GAMEKEEPER_CACHE_TOTAL_MIB",
        value_name = "MIB",
        default_value_t = 320,
        value_parser = mebibytes
    )]
    pub cache_total_mib: usize,
    /// Format of log lines.
    #[arg(long, env = "GAMEKEEPER_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Log level: error, warn, info, debug or trace, also by module (info,gamekeeper::reconcile=debug).
    #[arg(
        long,
        env = "GAMEKEEPER_LOG_LEVEL",
        default_value = "info",
        value_parser = log_level
    )]
    pub log_level: String,
}

fn mebibytes(text: &str) -> Result<usize, String> {
    let parsed = text.parse().ok().filter(|it| (1..=1 << 20).contains(it));
    parsed.ok_or_else(|| "must be a whole number of MiB, from 1 to 1048576".to_owned())
}

/// The taints that the cluster autoscaler, Karpenter, and the termination handlers of AWS and Google Cloud set.
fn going_taints() -> Vec<String> {
    [
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "aws-node-termination-handler/rebalance-recommendation",
        "cloud.google.com/impending-node-termination",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Readable text.
    Text,
    /// One JSON object per line.
    Json,
}

impl Options {
    /// Initializes logging for the process.
    pub fn init_logging(&self) {
        let logging = tracing_subscriber::fmt()
            .with_env_filter(&self.log_level)
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => logging.init(),
            LogFormat::Json => logging.json().init(),
        }
    }
}

fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = Duration::try_from(parse_duration(text)?).unwrap_or_default();
    match (MIN_LEASE_DURATION..=MAX_LEASE_DURATION).contains(&duration) {
        true => Ok(duration),
        false => Err(format!(
            "must be from {} s to {} s",
            MIN_LEASE_DURATION.as_secs(),
            MAX_LEASE_DURATION.as_secs()
        )),
    }
}

/// Checks a log filter. The parser would mistake an unknown level for the name of a module, and nothing from
/// other modules would be logged.
fn log_level(text: &str) -> Result<String, String> {
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let mut words = text.split(',').filter(|it| !it.contains('='));
    if let Some(word) = words.find(|it| !is_level(it)) {
        return Err(format!(
            "{word:?} is not a log level: use error, warn, info, debug, trace or off, or MODULE=LEVEL"
        ));
    }
    let parsed = EnvFilter::builder().parse(text);
    parsed.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_neither_too_short_nor_too_long() {
        assert_eq!(lease_duration("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(lease_duration("1m"), Ok(Duration::from_secs(60)));
        for bad in ["4s", "61s", "0s", "soon"] {
            assert!(lease_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_unknown_log_level_is_refused() {
        for good in ["info", "WARN", "off", "info,gamekeeper::reconcile=debug"] {
            assert_eq!(log_level(good), Ok(good.to_owned()));
        }
        for (bad, word) in [
            ("warning", "\"warning\" is not a log level"),
            ("gamekeeper", "\"gamekeeper\" is not a log level"),
            ("info,verbose", "\"verbose\" is not a log level"),
            ("", "\"\" is not a log level"),
            ("gamekeeper=loud", "expected one of"),
        ] {
            let error = log_level(bad).expect_err(bad);
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}

//! What `gamekeeper run` can be told.

use std::io::IsTerminal;
use std::net::SocketAddr;

use clap::{ArgAction, Args, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::webhook;

/// Flags of `gamekeeper run`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Address of /metrics, /healthz and /readyz.
    #[arg(long, env = "GAMEKEEPER_LISTEN", default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// Work only while holding a lease, so that several replicas can stand by.
    #[arg(
        long,
        env = "GAMEKEEPER_LEADER_ELECT",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub leader_elect: bool,
    /// Name of that lease; operators that must not work side by side have the same.
    #[arg(long, env = "GAMEKEEPER_LEASE_NAME", default_value = "gamekeeper")]
    pub lease_name: String,
    /// Work in this namespace only; in all of them when not given.
    #[arg(long, env = "GAMEKEEPER_NAMESPACE")]
    pub namespace: Option<String>,
    /// The admission webhook.
    #[command(flatten)]
    pub webhook: webhook::WebhookOptions,
    /// Let hooks call link-local and cloud metadata addresses.
    #[arg(long, env = "GAMEKEEPER_HOOK_ALLOW_LINK_LOCAL")]
    pub hook_allow_link_local: bool,
    /// How log lines look.
    #[arg(long, env = "GAMEKEEPER_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// What is logged: error, warn, info, debug or trace, also by module (gamekeeper::plan=debug).
    #[arg(long, env = "GAMEKEEPER_LOG_LEVEL", default_value = "info")]
    pub log_level: String,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For collectors of logs.
    Json,
}

impl Options {
    /// Sets logging up for the whole process.
    pub fn init_logging(&self) -> Result<(), ParseError> {
        let filter = EnvFilter::builder().parse(&self.log_level)?;
        let logging = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => logging.init(),
            LogFormat::Json => logging.json().init(),
        }
        Ok(())
    }
}

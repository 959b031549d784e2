//! The admission webhook: responds with the findings of [`gamekeeper_core::admission`] over HTTPS.
//!
//! The API server calls it for the custom resources, and for pods in namespaces labeled for sidecars. If no replica
//! responds, the API server admits custom resources (failurePolicy Ignore, with a short timeout): the rules in the CRDs
//! still apply, and the operator reports invalid objects in conditions. Pods in those namespaces are refused, because
//! they could never get their sidecars later. Pods that the operator creates do not pass through the webhook, so an
//! outage harms no game server.
//!
//! Every replica serves. The certificates are in a Secret; the first replica that finds them due renews them
//! ([`rotation`]), and all replicas load them without a restart.

mod certificates;
mod dry_run;
mod metrics;
mod mutate;
mod neighbors;
mod review;
mod rotation;
mod server;
mod state;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use kube::{Api, Client};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::kinds::Cache;
use crate::runtime::evaluation_pool::EvaluationPool;
use crate::runtime::fair::NamespaceLimiter;
use crate::runtime::inbound::Connections;
use gamekeeper_core::hook_run::ExecNamespaces;
use gamekeeper_core::observed::time::parse_duration;
use gamekeeper_core::sidecar_set::WebhookState;

pub(crate) use metrics::AdmissionMetrics;
pub(crate) use server::ServingCertificate;

use dry_run::DryRun;
use rotation::Rotation;
use server::Reviewer;

/// Flags of the webhook.
#[derive(Args, Clone, Debug)]
pub struct WebhookOptions {
    /// Address on which admission is served; disabled when absent.
    #[arg(long, env = "GAMEKEEPER_WEBHOOK_LISTEN")]
    pub webhook_listen: Option<SocketAddr>,
    /// Name of the webhook's Secret and Service, in the operator's namespace, and of its webhook configurations.
    #[arg(long, env = "GAMEKEEPER_WEBHOOK_NAME", default_value = "gamekeeper-webhook")]
    pub webhook_name: String,
    /// Lifetime of the webhook's certificates; they are renewed when a third of it is left.
    #[arg(
        long,
        env = "GAMEKEEPER_WEBHOOK_CERTIFICATE_LIFETIME",
        default_value = "2160h",
        value_parser = lifetime
    )]
    pub webhook_certificate_lifetime: Duration,
}

/// Certificates with a shorter lifetime would be renewed constantly.
const MIN_LIFETIME: Duration = Duration::from_secs(30);

fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = Duration::try_from(parse_duration(text)?).unwrap_or_default();
    match lifetime < MIN_LIFETIME {
        true => Err(format!("must be {} s or more", MIN_LIFETIME.as_secs())),
        false => Ok(lifetime),
    }
}

/// The cluster that the webhook serves.
pub(crate) struct WebhookTarget {
    /// A client without a fence, because standbys also renew certificates and validate templates in dry runs.
    pub client: Client,
    /// The operator's own namespace.
    pub namespace: String,
    /// The only namespace that the cache holds; None if it holds all.
    pub scope: Option<String>,
    /// The namespaces in which hooks may run commands.
    pub commands: ExecNamespaces,
    /// Whether SidecarSets are served, in which case the webhook changes pods.
    pub sidecar_sets: bool,
}

/// Serves admission on a listener, whose connections are closed with `connections`. `cache` returns None until the cache exists. `state` receives whether API servers
/// call the webhook that injects sidecars.
pub(crate) fn start(
    options: &WebhookOptions,
    (listener, connections): (TcpListener, Connections),
    target: WebhookTarget,
    cache: impl Fn() -> Option<Arc<Cache>> + Send + Sync + 'static,
    metrics: AdmissionMetrics,
    state: watch::Sender<WebhookState>,
    background: &mut JoinSet<()>,
) -> std::io::Result<Arc<ServingCertificate>> {
    metrics.init();
    let certificate = Arc::new(ServingCertificate::default());
    let reviewer = Reviewer {
        evaluation: EvaluationPool::start()?,
        dry_run: DryRun::new(
            target.client.clone(),
            target.scope.as_ref().unwrap_or(&target.namespace).clone(),
            metrics.clone(),
        ),
        places: NamespaceLimiter::new(server::PLACES),
        metrics: metrics.clone(),
        scope: target.scope,
        commands: Arc::new(target.commands),
        namespaces: Api::all(target.client.clone()),
        cache: Box::new(cache),
    };
    let rotation = Rotation::new(
        target.client,
        &target.namespace,
        &options.webhook_name,
        options.webhook_certificate_lifetime,
        Arc::clone(&certificate),
        metrics,
        target.sidecar_sets.then_some(state),
    );
    background.spawn(rotation.run());
    background.spawn(server::serve(
        listener,
        Arc::clone(&certificate),
        Arc::new(reviewer),
        connections,
    ));
    Ok(certificate)
}

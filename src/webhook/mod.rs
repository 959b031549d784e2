//! Admission over HTTPS: the API server asks here before it stores one of our objects, and gets the
//! findings of [`gamekeeper_core::admission`].
//!
//! What it promises: only requests for our four kinds come here, and when no operator answers, all
//! of them pass (the webhook's failurePolicy is Ignore, its timeout short): the rules
//! in the CRDs still hold, and the operator itself tells in conditions what a webhook would have
//! refused. So it can be wrong, late or dead without harm to any pod.
//!
//! Every replica serves. The certificates are in a Secret; the first replica that finds them due renews
//! them ([`rotation`]), and all pick them up without a restart.

mod certificates;
mod dry_run;
mod log_limiter;
mod metrics;
mod review;
mod rotation;
mod server;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use kube::Client;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::cache::Cache;
use crate::evaluation_pool::EvaluationPool;
use gamekeeper_core::plan::parse_duration;

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
    /// Name of its Secret and Service, in the operator's namespace, and of its ValidatingWebhookConfiguration.
    #[arg(
        long,
        env = "GAMEKEEPER_WEBHOOK_NAME",
        default_value = "gamekeeper-webhook"
    )]
    pub webhook_name: String,
    /// Lifetime of its certificates; they are renewed when a third of it is left.
    #[arg(
        long,
        env = "GAMEKEEPER_WEBHOOK_CERTIFICATE_LIFETIME",
        default_value = "2160h",
        value_parser = lifetime
    )]
    pub webhook_certificate_lifetime: Duration,
}

/// Below that, renewal would be all that operators do.
const SHORTEST_LIFETIME: Duration = Duration::from_secs(30);

fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = Duration::try_from(parse_duration(text)?).unwrap_or_default();
    match lifetime < SHORTEST_LIFETIME {
        true => Err(format!("must be {} s or more", SHORTEST_LIFETIME.as_secs())),
        false => Ok(lifetime),
    }
}

/// The cluster that the webhook works for.
pub(crate) struct WebhookTarget {
    /// A client whose writes no lease holds back: standbys renew certificates and try templates too.
    pub client: Client,
    /// The operator's own namespace.
    pub namespace: String,
    /// The one namespace whose objects it knows; all when None.
    pub scope: Option<String>,
}

/// Serves admission on a listener, with what the cache knows as soon as there is one.
///
/// # Errors
/// When the operating system gives no threads.
pub(crate) fn start(
    options: &WebhookOptions,
    listener: TcpListener,
    target: WebhookTarget,
    cache: impl Fn() -> Option<Arc<Cache>> + Send + Sync + 'static,
    metrics: AdmissionMetrics,
    lasting: &mut JoinSet<()>,
) -> std::io::Result<Arc<ServingCertificate>> {
    metrics.begin();
    let serving = Arc::new(ServingCertificate::default());
    let reviewer = Reviewer {
        evaluation: EvaluationPool::start()?,
        dry_run: DryRun::new(target.client.clone(), metrics.clone()),
        metrics: metrics.clone(),
        scope: target.scope,
        cache: Box::new(cache),
    };
    let rotation = Rotation::new(
        target.client,
        &target.namespace,
        &options.webhook_name,
        options.webhook_certificate_lifetime,
        Arc::clone(&serving),
        metrics,
    );
    lasting.spawn(rotation.run());
    lasting.spawn(server::serve(
        listener,
        Arc::clone(&serving),
        Arc::new(reviewer),
    ));
    Ok(serving)
}

//! `gamekeeper unguard`: removes everything that guards pods. A Helm hook runs it before the chart is uninstalled,
//! because nothing would remove labels, budgets and finalizers afterward.
//!
//! The operator would guard the pods again, so it is stopped first. The command runs as the operator's service
//! account: the policy lets no other client change the budgets.

mod guards;
mod operator;
mod rounds;
#[cfg(test)]
mod tests;

use std::time::Duration;

use clap::Args;
use gamekeeper_core::text::counted;
use kube::Client;
use kube::api::Api;

use self::guards::Guards;
use self::operator::Operator;

/// How long the operator may take to stop: its grace period, and the rest of its lease if it was killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);

/// Flags of `gamekeeper unguard`.
#[derive(Args, Debug)]
pub struct Options {
    /// Confirms that all workloads are meant.
    #[arg(long, required = true)]
    pub all: bool,
    /// Only workloads in this namespace; all namespaces when absent.
    #[arg(long)]
    pub namespace: Option<String>,
    /// Continue even if pods wait for their hooks: those whose workload is being deleted are then deleted without them,
    /// and all others stay, without their guard.
    #[arg(long)]
    pub force: bool,
    /// The operator's Deployment, as NAMESPACE/NAME, which is scaled to 0 first. When absent, stop the operator yourself.
    #[arg(long)]
    pub deployment: Option<String>,
    /// The operator's lease, in the namespace of its Deployment.
    #[arg(long, default_value = "gamekeeper")]
    pub lease_name: String,
}

/// Why guards were not removed.
#[derive(Debug, thiserror::Error)]
pub enum UnguardError {
    /// Pods wait for their hooks.
    #[error(
        "{}: {}; wait until they are done, or confirm for each: kubectl game release \
         NAME -n NAMESPACE; to continue nevertheless, use --force (in the chart: \
         guardedPods.forceUninstall=true): pods whose workload is being deleted are then deleted without \
         their hooks, and all others stay, without their guard",
        counted(
            .0.len(),
            "workload has to wait for the hooks of its pods",
            "workloads have to wait for the hooks of their pods",
        ),
        .0.join(", ")
    )]
    Waiting(Vec<String>),
    /// The operator still runs.
    #[error("the operator has not stopped after {} s, so no guard was removed", STOP_TIMEOUT.as_secs())]
    StillRuns,
    /// --deployment is not NAMESPACE/NAME.
    #[error("--deployment {0:?}: use NAMESPACE/NAME")]
    Deployment(String),
    /// A request failed.
    #[error(transparent)]
    Kube(#[from] kube::Error),
}

/// Removes all guards, and prints what was done.
///
/// # Errors
/// If pods wait for their hooks, the operator does not stop, or a request fails. In these cases the operator runs as
/// before, and guards the pods again.
pub async fn run(options: &Options) -> Result<(), UnguardError> {
    let client = Client::try_default().await?;
    let guards = Guards {
        client: client.clone(),
        namespace: options.namespace.clone(),
    };
    if guards.namespace_was_deleted().await? {
        println!("nothing to remove: the namespace does not exist");
        return Ok(());
    }
    let Some(deployment) = &options.deployment else {
        guards.ensure_none_waits(options.force).await?;
        return guards.unguard().await;
    };
    let (namespace, name) = deployment
        .split_once('/')
        .ok_or_else(|| UnguardError::Deployment(deployment.clone()))?;
    let operator = Operator {
        deployments: Api::namespaced(client.clone(), namespace),
        leases: Api::namespaced(client, namespace),
        name,
        lease: &options.lease_name,
    };
    let result = guards.remove(&operator, options.force).await;
    if result.is_err()
        && let Err(error) = operator.restore().await
    {
        eprintln!("the operator's Deployment could not be restored: {error}");
    }
    result
}

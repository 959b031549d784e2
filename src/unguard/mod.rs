//! `gamekeeper unguard`: removes everything that guards pods. A Helm hook runs it before the chart is uninstalled,
//! because nothing would remove labels, budgets and finalizers afterward.
//!
//! The operator would guard the pods again, so it is stopped first. The command runs as the operator's service
//! account: the policy lets no other client change the budgets.
//!
//! Guards must not be removed while the release goes on. So the command stops the operator only while Helm uninstalls
//! the release ([`release`]); otherwise a user must have stopped it, and it must stay stopped.

mod guards;
mod operator;
mod release;
mod rounds;
#[cfg(test)]
mod tests;

use std::time::Duration;

use clap::Args;
use gamekeeper_core::text::counted;
use kube::api::Api;
use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};

use self::guards::Guards;
use self::operator::Operator;
pub use self::release::GoesOn;
use self::release::Release;

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
    /// The operator's Deployment, as NAMESPACE/NAME. It must have been scaled to 0, unless --helm-release is given. When
    /// absent, stop the operator yourself.
    #[arg(long)]
    pub deployment: Option<String>,
    /// The Helm release, in the namespace of the Deployment. Scales the Deployment to 0, but only while Helm uninstalls
    /// the release.
    #[arg(long, requires = "deployment", requires = "job")]
    pub helm_release: Option<String>,
    /// The Job that runs this command, in the namespace of the Deployment.
    #[arg(long, requires = "helm_release")]
    pub job: Option<String>,
    /// The operator's lease, in the namespace of its Deployment.
    #[arg(long, default_value = "gamekeeper")]
    pub lease_name: String,
    /// User to impersonate: the operator's service account, as system:serviceaccount:NAMESPACE:NAME.
    #[arg(long, value_name = "USER")]
    pub r#as: Option<String>,
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
    /// The operator was not stopped.
    #[error(
        "the operator's Deployment {deployment} has {replicas} replicas, so no guard was removed: stop what would scale \
         it up again (Argo CD, Flux), and scale it to 0: kubectl -n {namespace} scale deployment {deployment} --replicas=0"
    )]
    NotStopped {
        /// Namespace of the Deployment.
        namespace: String,
        /// Name of the Deployment.
        deployment: String,
        /// Its replicas.
        replicas: i32,
    },
    /// The release is not being uninstalled.
    #[error(
        "the release is not being uninstalled, so nothing was changed: {0}; this command runs as a pre-delete hook of \
         Helm; to uninstall without Helm, see docs/gitops.md"
    )]
    GoesOn(#[from] GoesOn),
    /// The process was told to end.
    #[error("interrupted; the operator runs again")]
    Interrupted,
    /// The process cannot handle signals.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    /// There is no configuration of a client.
    #[error(transparent)]
    Config(#[from] kube::config::InferConfigError),
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
/// If pods wait for their hooks, the operator does not stop, the release is not being uninstalled, or a request fails.
/// In these cases an operator that this command has stopped runs as before, and guards the pods again.
pub async fn run(options: &Options) -> Result<(), UnguardError> {
    let mut config = Config::infer().await?;
    if options.r#as.is_some() {
        config.auth_info.impersonate.clone_from(&options.r#as);
    }
    let client = Client::try_from(config)?;
    let guards = Guards { client: client.clone(), namespace: options.namespace.clone() };
    let Some(deployment) = &options.deployment else {
        if guards.found_no_namespace().await? {
            return Ok(());
        }
        guards.ensure_none_waits(options.force).await?;
        return guards.unguard().await;
    };
    let (namespace, name) =
        deployment.split_once('/').ok_or_else(|| UnguardError::Deployment(deployment.clone()))?;
    let operator = Operator {
        deployments: Api::namespaced(client.clone(), namespace),
        leases: Api::namespaced(client.clone(), namespace),
        namespace,
        name,
        lease: &options.lease_name,
    };
    let (Some(release), Some(job)) = (&options.helm_release, &options.job) else {
        return guards.remove_by_hand(&operator, options.force).await;
    };
    let release = Release { client, namespace, name: release, deployment: name, job };
    release.ensure_being_uninstalled().await?;
    // A Job that exceeds its deadline is told to end.
    let mut end = signal(SignalKind::terminate()).map_err(UnguardError::Signals)?;
    let result = tokio::select! {
        result = guards.remove(&operator, &release, options.force) => result,
        _ = end.recv() => Err(UnguardError::Interrupted),
    };
    if result.is_err()
        && let Err(error) = operator.restore().await
    {
        eprintln!("the operator's Deployment could not be restored: {error}");
    }
    result
}

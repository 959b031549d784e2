//! `gamekeeper unguard`: removes everything that guards pods. A hook runs it before the chart is uninstalled, because
//! nothing would remove labels, budgets and finalizers afterwards.
//!
//! The operator would guard the pods again, so it is stopped first. The command runs as the operator's service
//! account: the policy lets no other client change the budgets. The command may be killed at any time, so the
//! Deployment itself remembers its replicas.

use std::time::Duration;

use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use gamekeeper_core::api::names::{
    GUARD_FINALIZER, GUARDED_LABEL, KEPT_HOOK_ANNOTATION, REPLICAS_ANNOTATION, kept_by_autoscalers,
};
use gamekeeper_core::api::{GROUP, VERSION};
use gamekeeper_core::text::counted;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// How long the operator may take to stop: its grace period, and the rest of its lease if it was killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);
/// How many objects are changed at the same time.
const CONCURRENCY: usize = 16;

/// Flags of `gamekeeper unguard`.
#[derive(Args, Debug)]
pub struct Options {
    /// Confirms that all workloads are meant.
    #[arg(long, required = true)]
    pub all: bool,
    /// Only workloads in this namespace; all namespaces when absent.
    #[arg(long)]
    pub namespace: Option<String>,
    /// Continue even if pods wait for their hooks: these pods are then deleted without them.
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
         NAME -n NAMESPACE; to delete the pods without their hooks, use --force (in the chart: \
         guardedPods.forceUninstall=true)",
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
    let cluster = Cluster {
        client: client.clone(),
        namespace: options.namespace.clone(),
    };
    let Some(deployment) = &options.deployment else {
        cluster.ensure_none_waits(options.force).await?;
        return cluster.unguard().await;
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
    let result = async {
        cluster.ensure_none_waits(options.force).await?;
        operator.stop().await?;
        cluster.unguard().await
    }
    .await;
    if result.is_err()
        && let Err(error) = operator.restore().await
    {
        eprintln!("the operator's Deployment could not be restored: {error}");
    }
    result
}

/// The operator of this release.
struct Operator<'a> {
    deployments: Api<Deployment>,
    leases: Api<Lease>,
    name: &'a str,
    lease: &'a str,
}

impl Operator<'_> {
    async fn patch(&self, patch: Value) -> Result<(), kube::Error> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.deployments.patch(self.name, &params, &patch).await?;
        Ok(())
    }

    /// Starts the operator again if this run, or an earlier one that was killed, has stopped it.
    async fn restore(&self) -> Result<(), kube::Error> {
        let deployment = self.deployments.get(self.name).await?;
        match restoring(&deployment) {
            Some(patch) => self.patch(patch).await,
            None => Ok(()),
        }
    }

    async fn stop(&self) -> Result<(), UnguardError> {
        self.patch(stopping(&self.deployments.get(self.name).await?))
            .await?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !self.has_stopped().await? {
            if Instant::now() > deadline {
                return Err(UnguardError::StillRuns);
            }
            sleep(Duration::from_secs(1)).await;
        }
        println!("the operator has stopped");
        Ok(())
    }

    /// Whether there are no replicas, and none holds the lease.
    async fn has_stopped(&self) -> Result<bool, kube::Error> {
        let deployment = self.deployments.get(self.name).await?;
        if !has_no_replicas(&deployment) {
            return Ok(false);
        }
        let lease = self.leases.get_opt(self.lease).await?;
        let Some(spec) = lease.and_then(|it| it.spec) else {
            return Ok(true);
        };
        let is_held = spec.holder_identity.is_some_and(|it| !it.is_empty());
        let term = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(0).into());
        let expiry = spec.renew_time.and_then(|it| it.0.checked_add(term).ok());
        Ok(!is_held || expiry.is_none_or(|expiry| expiry < Timestamp::now()))
    }
}

/// The objects that guard pods.
struct Cluster {
    client: Client,
    namespace: Option<String>,
}

impl Cluster {
    fn api<K>(&self, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let client = self.client.clone();
        match namespace.or(self.namespace.as_deref()) {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        }
    }

    fn dynamic(&self, kind: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        let client = self.client.clone();
        match namespace.or(self.namespace.as_deref()) {
            Some(namespace) => Api::namespaced_with(client, namespace, kind),
            None => Api::all_with(client, kind),
        }
    }

    /// Workloads that have the finalizer. They are read as untyped objects, so that none is left out.
    async fn workloads(&self) -> Result<Vec<(ApiResource, DynamicObject)>, kube::Error> {
        let mut guarded = Vec::new();
        for kind in ["GameDeployment", "GameStatefulSet"] {
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, kind));
            let all = self
                .dynamic(&kind, None)
                .list(&ListParams::default())
                .await?;
            let all = all.items.into_iter();
            let all = all.filter(|it| it.finalizers().iter().any(|it| it == GUARD_FINALIZER));
            guarded.extend(all.map(|it| (kind.clone(), it)));
        }
        Ok(guarded)
    }

    /// Fails if pods wait for their hooks, unless forced.
    async fn ensure_none_waits(&self, force: bool) -> Result<(), UnguardError> {
        let workloads = self.workloads().await?;
        let waiting: Vec<String> = workloads.iter().filter_map(waits).collect();
        if waiting.is_empty() || force {
            return Ok(());
        }
        Err(UnguardError::Waiting(waiting))
    }

    /// Labels, then budgets, then finalizers: if this is interrupted, the rest is still guarded, and another run can
    /// continue.
    async fn unguard(&self) -> Result<(), UnguardError> {
        let labeled = ListParams::default().labels(GUARDED_LABEL);
        let pods = self.api::<Pod>(None).list_metadata(&labeled).await?;
        let count = pods.items.len();
        let released = pods.items.iter().map(|pod| async move {
            let pods = self.api::<Pod>(pod.namespace().as_deref());
            let patch = Patch::Merge(unlabel(pod));
            let (name, params) = (pod.name_any(), PatchParams::default());
            let done = pods.patch_metadata(&name, &params, &patch).await;
            ignore_missing(done.map(drop))
        });
        self.each(released).await?;
        println!("{} no longer guarded", counted(count, "pod is", "pods are"));
        let budgets = self.api::<PodDisruptionBudget>(None);
        let budgets = budgets.list_metadata(&labeled).await?;
        let count = budgets.items.len();
        let deleted = budgets.items.iter().map(|budget| async move {
            let budgets = self.api::<PodDisruptionBudget>(budget.namespace().as_deref());
            let params = DeleteParams::default();
            ignore_missing(budgets.delete(&budget.name_any(), &params).await.map(drop))
        });
        self.each(deleted).await?;
        let budgets = counted(count, "PodDisruptionBudget is", "PodDisruptionBudgets are");
        println!("{budgets} deleted");
        let workloads = self.workloads().await?;
        let count = workloads.len();
        let freed = workloads.iter().map(|(kind, workload)| async move {
            let workloads = self.dynamic(kind, workload.namespace().as_deref());
            let patch = Patch::Merge(without_finalizer(workload));
            let (name, params) = (workload.name_any(), PatchParams::default());
            let done = workloads.patch(&name, &params, &patch).await;
            ignore_missing(done.map(drop))
        });
        self.each(freed).await?;
        println!("{count} workloads no longer have the finalizer");
        Ok(())
    }

    async fn each<F>(&self, work: impl Iterator<Item = F>) -> Result<(), kube::Error>
    where
        F: Future<Output = Result<(), kube::Error>>,
    {
        let work = stream::iter(work).buffer_unordered(CONCURRENCY);
        work.try_collect().await
    }
}

fn ignore_missing(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result,
    }
}

/// The replicas of a Deployment. The API server sets 1 where the manifest has none.
fn replicas(deployment: &Deployment) -> i32 {
    let replicas = deployment.spec.as_ref().and_then(|it| it.replicas);
    replicas.unwrap_or(1)
}

/// The replicas that a stopped Deployment had.
fn remembered(deployment: &Deployment) -> Option<i32> {
    let remembered = deployment.annotations().get(REPLICAS_ANNOTATION)?;
    remembered.parse().ok()
}

/// Stops a Deployment and remembers its replicas, in one write. The number that a killed run remembered stays, unless
/// the Deployment has been scaled up since.
fn stopping(deployment: &Deployment) -> Value {
    let before = match replicas(deployment) {
        0 => remembered(deployment).unwrap_or(0),
        replicas => replicas,
    };
    json!({
        "metadata": {"annotations": {REPLICAS_ANNOTATION: before.to_string()}},
        "spec": {"replicas": 0},
    })
}

/// Starts a stopped Deployment again, unless it has been scaled up since. None if it was not stopped.
fn restoring(deployment: &Deployment) -> Option<Value> {
    let remembered = remembered(deployment)?;
    let replicas = match replicas(deployment) {
        0 => remembered,
        replicas => replicas,
    };
    Some(json!({
        "metadata": {"annotations": {REPLICAS_ANNOTATION: null}},
        "spec": {"replicas": replicas},
    }))
}

/// Whether the Deployment's controller has observed the scale-down, and no pods are left.
fn has_no_replicas(deployment: &Deployment) -> bool {
    let status = deployment.status.as_ref();
    let observed = status.and_then(|it| it.observed_generation);
    let pods = status.and_then(|it| it.replicas).unwrap_or(0);
    observed >= deployment.metadata.generation && pods == 0
}

/// Kind, namespace and name of a workload whose pods wait for their hooks.
fn waits((kind, workload): &(ApiResource, DynamicObject)) -> Option<String> {
    let waiting = workload.data.pointer("/status/protection/waiting");
    let waiting = waiting.and_then(Value::as_array);
    let is_deleted = workload.metadata.deletion_timestamp.is_some();
    let waits = is_deleted || waiting.is_some_and(|it| !it.is_empty());
    waits.then(|| {
        let namespace = workload.namespace().unwrap_or_default();
        format!("{} {namespace}/{}", kind.kind, workload.name_any())
    })
}

/// Removes the label and annotations of the guard. The uid is a precondition. Annotations that the user has set to
/// other values stay.
fn unlabel(pod: &PartialObjectMeta<Pod>) -> Value {
    let ours = kept_by_autoscalers(pod.annotations());
    let annotations: serde_json::Map<String, Value> =
        ours.map(|key| (key.to_owned(), Value::Null)).collect();
    json!({"metadata": {
        "uid": pod.metadata.uid,
        "labels": {GUARDED_LABEL: null},
        "annotations": annotations,
    }})
}

/// Removes the guard's finalizer. The resourceVersion is a precondition, because another client may add finalizers.
fn without_finalizer(workload: &DynamicObject) -> Value {
    let others = workload.finalizers().iter();
    let others: Vec<&String> = others.filter(|it| *it != GUARD_FINALIZER).collect();
    json!({"metadata": {
        "resourceVersion": workload.metadata.resource_version,
        "finalizers": others,
        "annotations": {KEPT_HOOK_ANNOTATION: null},
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(object: Value) -> (ApiResource, DynamicObject) {
        let kind = GroupVersionKind::gvk(GROUP, VERSION, "GameDeployment");
        let object = serde_json::from_value(object).expect("an object");
        (ApiResource::from_gvk(&kind), object)
    }

    #[test]
    fn workloads_whose_pods_wait_are_named() {
        let object = |more: Value, waiting: Value| {
            let mut metadata = json!({"name": "arena", "namespace": "games"});
            metadata
                .as_object_mut()
                .expect("an object")
                .extend(more.as_object().expect("an object").clone());
            let status = json!({"protection": {"guarded": 1, "waiting": waiting}});
            workload(json!({"metadata": metadata, "status": status}))
        };
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let named = Some("GameDeployment games/arena".to_owned());
        assert_eq!(waits(&object(json!({}), json!([]))), None);
        assert_eq!(waits(&object(json!({}), json!([{"podName": "x"}]))), named);
        assert_eq!(waits(&object(deleted, json!([]))), named);
    }

    #[test]
    fn a_deployment_remembers_its_replicas_while_it_is_stopped() {
        // Before: replicas and remembered replicas. After: remembered and restored replicas.
        for (replicas, remembered, stopped, restored) in [
            (json!(2), None, "2", None),
            (json!(null), None, "1", None),
            (json!(0), None, "0", None),
            (json!(0), Some("2"), "2", Some(2)),
            (json!(0), Some("0"), "0", Some(0)),
            (json!(3), Some("2"), "3", Some(3)),
        ] {
            let mut object = json!({"metadata": {}, "spec": {
                "replicas": replicas, "selector": {}, "template": {},
            }});
            if let Some(remembered) = remembered {
                object["metadata"]["annotations"] = json!({REPLICAS_ANNOTATION: remembered});
            }
            let deployment: Deployment = serde_json::from_value(object).expect("a Deployment");
            let stop = stopping(&deployment);
            let annotations = &stop["metadata"]["annotations"];
            assert_eq!(annotations[REPLICAS_ANNOTATION], stopped, "{stop}");
            assert_eq!(stop["spec"]["replicas"], 0, "{stop}");
            let restore = restoring(&deployment);
            let back = restore.as_ref().map(|it| &it["spec"]["replicas"]);
            assert_eq!(back, restored.map(Value::from).as_ref());
            let forgotten = restore.as_ref().is_none_or(|it| {
                it["metadata"]["annotations"] == json!({REPLICAS_ANNOTATION: null})
            });
            assert!(forgotten, "{restore:?}");
        }
    }

    #[test]
    fn the_error_says_for_which_workloads_to_wait() {
        for (workloads, expected) in [
            (
                1,
                "1 workload has to wait for the hooks of its pods: a; wait until",
            ),
            (
                2,
                "2 workloads have to wait for the hooks of their pods: a, a; wait until",
            ),
        ] {
            let error = UnguardError::Waiting(vec!["a".to_owned(); workloads]).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn other_finalizers_stay() {
        let (_, object) = workload(json!({"metadata": {
            "name": "arena", "resourceVersion": "7", "finalizers": ["other", GUARD_FINALIZER],
        }}));
        let patch = without_finalizer(&object);
        assert_eq!(patch["metadata"]["finalizers"], json!(["other"]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
    }
}

//! The objects that guard pods, in all namespaces or in one: which workloads still need them, and their removal.

use std::fmt::Debug;

use gamekeeper_core::api::names::{
    GUARD_FINALIZER, GUARDED_LABEL, KEPT_HOOK_ANNOTATION, autoscaler_annotations,
};
use gamekeeper_core::api::{GROUP, VERSION};
use gamekeeper_core::text::counted;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::UnguardError;
use super::operator::Operator;
use super::release::Release;
use super::rounds::change_all;

/// The objects that guard pods.
pub(super) struct Guards {
    pub(super) client: Client,
    pub(super) namespace: Option<String>,
}

impl Guards {
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

    /// Whether there is nothing to remove because the namespace was deleted. If so, the chart's Role in it was deleted
    /// with it, and all other requests would be refused.
    pub(super) async fn found_no_namespace(&self) -> Result<bool, kube::Error> {
        let was_deleted = self.namespace_was_deleted().await?;
        if was_deleted {
            println!("nothing to remove: the namespace does not exist");
        }
        Ok(was_deleted)
    }

    pub(super) async fn namespace_was_deleted(&self) -> Result<bool, kube::Error> {
        let Some(namespace) = &self.namespace else {
            return Ok(false);
        };
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        match namespaces.get_metadata_opt(namespace).await {
            // Users who run this command may lack the permission.
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(false),
            found => Ok(found?.is_none()),
        }
    }

    /// Workloads that have the finalizer. They are read as untyped objects, so that a malformed one is included too.
    async fn workloads(&self) -> Result<Vec<(ApiResource, DynamicObject)>, kube::Error> {
        let mut guarded = Vec::new();
        for kind in ["GameDeployment", "GameStatefulSet"] {
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, kind));
            let all = self.dynamic(&kind, None);
            let all = match all.list(&ListParams::default()).await {
                // The CRD was deleted, and its workloads with it.
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                all => all?.items.into_iter(),
            };
            let all = all.filter(|it| it.finalizers().iter().any(|it| it == GUARD_FINALIZER));
            guarded.extend(all.map(|it| (kind.clone(), it)));
        }
        Ok(guarded)
    }

    /// Fails if pods wait for their hooks, unless forced.
    pub(super) async fn ensure_none_waits(&self, force: bool) -> Result<(), UnguardError> {
        let workloads = self.workloads().await?;
        let waiting: Vec<String> = workloads.iter().filter_map(waiting_workload).collect();
        if waiting.is_empty() || force {
            return Ok(());
        }
        Err(UnguardError::Waiting(waiting))
    }

    /// Stops the operator, and removes all guards. Pods may begin to wait for their hooks while the operator stops, and
    /// a user may roll the release back meanwhile, so both are checked before and after the stop.
    pub(super) async fn remove(
        &self,
        operator: &Operator<'_>,
        release: &Release<'_>,
        force: bool,
    ) -> Result<(), UnguardError> {
        if self.found_no_namespace().await? {
            return Ok(());
        }
        self.ensure_none_waits(force).await?;
        operator.stop().await?;
        release.ensure_being_uninstalled().await?;
        self.remove_stopped(operator, force).await
    }

    /// Removes all guards if a user has stopped the operator.
    pub(super) async fn remove_by_hand(
        &self,
        operator: &Operator<'_>,
        force: bool,
    ) -> Result<(), UnguardError> {
        operator.ensure_scaled_to_0().await?;
        if self.found_no_namespace().await? {
            return Ok(());
        }
        operator.until_stopped().await?;
        self.remove_stopped(operator, force).await
    }

    /// An operator that is started meanwhile guards the pods again, so this is an error.
    async fn remove_stopped(
        &self,
        operator: &Operator<'_>,
        force: bool,
    ) -> Result<(), UnguardError> {
        self.ensure_none_waits(force).await?;
        self.unguard().await?;
        operator.ensure_scaled_to_0().await
    }

    /// Removes labels, then budgets, then finalizers: if this is interrupted, the rest is still guarded, and another
    /// run can continue.
    pub(super) async fn unguard(&self) -> Result<(), UnguardError> {
        let pods =
            change_all(async || self.labeled::<Pod>().await, async |pod| self.unlabel(pod).await);
        println!("{} no longer guarded", counted(pods.await?, "pod is", "pods are"));
        let budgets = change_all(
            async || self.labeled::<PodDisruptionBudget>().await,
            async |budget| self.delete(budget).await,
        );
        let (one, many) = ("PodDisruptionBudget is", "PodDisruptionBudgets are");
        println!("{} deleted", counted(budgets.await?, one, many));
        let workloads = change_all(
            async || self.workloads().await,
            async |workload| self.remove_finalizer(workload).await,
        );
        let (one, many) = ("workload no longer has", "workloads no longer have");
        println!("{} the finalizer", counted(workloads.await?, one, many));
        Ok(())
    }

    /// The objects with the label of guards.
    async fn labeled<K>(&self) -> Result<Vec<PartialObjectMeta<K>>, kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let labeled = ListParams::default().labels(GUARDED_LABEL);
        Ok(self.api::<K>(None).list_metadata(&labeled).await?.items)
    }

    async fn unlabel(&self, pod: &PartialObjectMeta<Pod>) -> Result<(), kube::Error> {
        let pods = self.api::<Pod>(pod.namespace().as_deref());
        let patch = Patch::Merge(unlabel_patch(pod));
        let (name, params) = (pod.name_any(), PatchParams::default());
        pods.patch_metadata(&name, &params, &patch).await.map(drop)
    }

    async fn delete(
        &self,
        budget: &PartialObjectMeta<PodDisruptionBudget>,
    ) -> Result<(), kube::Error> {
        let budgets = self.api::<PodDisruptionBudget>(budget.namespace().as_deref());
        let params = DeleteParams::default();
        budgets.delete(&budget.name_any(), &params).await.map(drop)
    }

    async fn remove_finalizer(
        &self,
        (kind, workload): &(ApiResource, DynamicObject),
    ) -> Result<(), kube::Error> {
        let workloads = self.dynamic(kind, workload.namespace().as_deref());
        let patch = Patch::Merge(finalizer_removal(workload));
        let (name, params) = (workload.name_any(), PatchParams::default());
        workloads.patch(&name, &params, &patch).await.map(drop)
    }
}

/// Kind, namespace and name of a workload whose pods wait for their hooks, or that is being deleted. None for any other
/// workload.
fn waiting_workload((kind, workload): &(ApiResource, DynamicObject)) -> Option<String> {
    let waiting = workload.data.pointer("/status/protection/waiting");
    let waiting = waiting.and_then(Value::as_array);
    let is_deleted = workload.metadata.deletion_timestamp.is_some();
    let waits = is_deleted || waiting.is_some_and(|it| !it.is_empty());
    waits.then(|| {
        let namespace = workload.namespace().unwrap_or_default();
        format!("{} {namespace}/{}", kind.kind, workload.name_any())
    })
}

/// The patch that removes the label and annotations of the guard. The uid is a precondition. Annotations that the user
/// has set to other values stay.
fn unlabel_patch(pod: &PartialObjectMeta<Pod>) -> Value {
    let keys = autoscaler_annotations(pod.annotations());
    let annotations: serde_json::Map<String, Value> =
        keys.map(|key| (key.to_owned(), Value::Null)).collect();
    json!({"metadata": {
        "uid": pod.metadata.uid,
        "labels": {GUARDED_LABEL: null},
        "annotations": annotations,
    }})
}

/// The patch that removes the guard's finalizer. The resourceVersion is a precondition, because another client may add
/// finalizers.
fn finalizer_removal(workload: &DynamicObject) -> Value {
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
        assert_eq!(waiting_workload(&object(json!({}), json!([]))), None);
        assert_eq!(waiting_workload(&object(json!({}), json!([{"podName": "x"}]))), named);
        assert_eq!(waiting_workload(&object(deleted, json!([]))), named);
    }

    #[test]
    fn other_finalizers_stay() {
        let (_, object) = workload(json!({"metadata": {
            "name": "arena", "resourceVersion": "7", "finalizers": ["other", GUARD_FINALIZER],
        }}));
        let patch = finalizer_removal(&object);
        assert_eq!(patch["metadata"]["finalizers"], json!(["other"]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
    }
}

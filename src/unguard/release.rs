//! Whether Helm is really uninstalling the release that this command was installed with.
//!
//! The chart's Job is an object like any other for everything but Helm: rendered and applied, it would run while the
//! release goes on. So the command asks for evidence first, and asks again before it removes the first guard, because
//! users roll back an uninstallation that takes too long.

use std::fmt::Debug;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;
use kube::core::PartialObjectMeta;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use super::UnguardError;

/// Annotation in which kubectl and Argo CD keep what they have applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The release, as the Job's arguments name it.
pub(super) struct Release<'a> {
    pub(super) client: Client,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// The operator's Deployment.
    pub(super) deployment: &'a str,
    /// The Job that runs this command.
    pub(super) job: &'a str,
}

/// Why the release is not known to be going away.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoesOn {
    /// Helm's newest record of the release says so.
    #[error("Helm's record of release {release} says {status}, not uninstalling")]
    Recorded {
        /// The release's name.
        release: String,
        /// The status in the record.
        status: String,
    },
    /// There is no record, and the Deployment is missing or was installed in another way.
    #[error(
        "there is no record of a Helm release {0} in the namespace, and the operator's Deployment was not installed by it"
    )]
    NotInstalled(String),
    /// There is no record, and another client than Helm created the Job.
    #[error("the Job was created by {0}, not by Helm")]
    Applied(String),
}

impl Release<'_> {
    /// Fails unless Helm is uninstalling the release.
    pub(super) async fn ensure_being_uninstalled(&self) -> Result<(), UnguardError> {
        let (client, namespace) = (&self.client, self.namespace);
        // HELM_DRIVER decides where Helm keeps its records.
        let mut found = records::<Secret>(client, namespace, self.name).await?;
        found.extend(records::<ConfigMap>(client, namespace, self.name).await?);
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let deployment = deployments.get_metadata_opt(self.deployment).await?;
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        let job = jobs.get_metadata_opt(self.job).await?;
        let deployment = deployment.map(|it| it.metadata);
        let job = job.map(|it| it.metadata);
        self.check(&found, deployment.as_ref(), job.as_ref())?;
        Ok(())
    }

    /// Helm's own record decides. Without one (another storage driver, or Flux's storageNamespace), the Deployment
    /// must have been installed by Helm, and the Job must not have been created by another client.
    fn check(
        &self,
        records: &[Record],
        deployment: Option<&ObjectMeta>,
        job: Option<&ObjectMeta>,
    ) -> Result<(), GoesOn> {
        let newest = records.iter().max_by_key(|it| it.version);
        match newest {
            Some(record) if record.status == "uninstalling" => return Ok(()),
            Some(record) => {
                return Err(GoesOn::Recorded {
                    release: self.name.to_owned(),
                    status: record.status.clone(),
                });
            }
            None => {}
        }
        let annotation = |key: &str| deployment?.annotations.as_ref()?.get(key);
        let is_of_release = annotation("meta.helm.sh/release-name")
            .is_some_and(|it| it == self.name)
            && annotation("meta.helm.sh/release-namespace").is_some_and(|it| it == self.namespace);
        match (is_of_release, job) {
            (true, Some(job)) => match other_creator(job) {
                Some(client) => Err(GoesOn::Applied(client)),
                None => Ok(()),
            },
            _ => Err(GoesOn::NotInstalled(self.name.to_owned())),
        }
    }
}

/// What the labels of a record of Helm say about one revision of a release.
#[derive(Debug)]
struct Record {
    version: u64,
    status: String,
}

/// Helm's records of a release. Their contents are not read.
async fn records<K>(
    client: &Client,
    namespace: &str,
    release: &str,
) -> Result<Vec<Record>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let labels = ListParams::default().labels(&format!("owner=helm,name={release}"));
    let found = api.list_metadata(&labels).await?;
    Ok(found.items.iter().filter_map(record).collect())
}

fn record<K>(object: &PartialObjectMeta<K>) -> Option<Record> {
    let labels = object.metadata.labels.as_ref()?;
    Some(Record {
        version: labels.get("version")?.parse().ok()?,
        status: labels.get("status")?.clone(),
    })
}

/// The client that created an object, if it was not Helm: one that keeps what it has applied in an annotation, or
/// whose field manager is not named after Helm.
fn other_creator(object: &ObjectMeta) -> Option<String> {
    let annotations = object.annotations.as_ref();
    if annotations.is_some_and(|it| it.contains_key(LAST_APPLIED)) {
        return Some("kubectl apply".to_owned());
    }
    let fields = object.managed_fields.iter().flatten();
    // The Job controller writes the status.
    let mut creators = fields.filter(|it| it.subresource.as_deref() != Some("status"));
    let other = creators.find(|it| !it.manager.as_deref().unwrap_or_default().contains("helm"));
    other.map(|it| it.manager.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;

    fn release() -> Release<'static> {
        let refuse = |_: Request<Body>| async {
            let response = Response::builder().status(500).body(Body::empty());
            Ok::<_, std::convert::Infallible>(response.unwrap())
        };
        Release {
            client: Client::new(service_fn(refuse), "system"),
            namespace: "system",
            name: "gamekeeper",
            deployment: "gamekeeper",
            job: "gamekeeper-unguard-1",
        }
    }

    fn metadata(value: Value) -> ObjectMeta {
        serde_json::from_value(value).expect("metadata")
    }

    fn deployment(release: &str, namespace: &str) -> ObjectMeta {
        metadata(json!({"annotations": {
            "meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace,
        }}))
    }

    fn job(manager: &str) -> ObjectMeta {
        metadata(json!({"managedFields": [
            {"manager": manager, "operation": "Update"},
            {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status"},
        ]}))
    }

    /// Checks records given as (version, status).
    fn check(
        records: &[(u64, &str)],
        deployment: Option<ObjectMeta>,
        job: Option<ObjectMeta>,
    ) -> Result<(), GoesOn> {
        let records = records
            .iter()
            .map(|(version, status)| Record { version: *version, status: (*status).to_owned() });
        let records: Vec<Record> = records.collect();
        release().check(&records, deployment.as_ref(), job.as_ref())
    }

    #[tokio::test]
    async fn the_newest_record_of_helm_decides() {
        let installed = || Some(deployment("gamekeeper", "system"));
        for (records, goes_on) in [
            (&[(1, "uninstalling")][..], None),
            (&[(1, "superseded"), (2, "uninstalling")], None),
            // By number, not by text.
            (&[(9, "superseded"), (10, "uninstalling")], None),
            (&[(1, "deployed")], Some("deployed")),
            // Rolled back after a failed uninstallation.
            (&[(1, "uninstalling"), (2, "deployed")], Some("deployed")),
            (&[(1, "deployed"), (2, "pending-upgrade")], Some("pending-upgrade")),
            (&[(1, "failed")], Some("failed")),
        ] {
            for job in [None, Some(job("helm")), Some(job("kubectl"))] {
                let expected = goes_on.map(|status| GoesOn::Recorded {
                    release: "gamekeeper".into(),
                    status: status.into(),
                });
                assert_eq!(check(records, installed(), job).err(), expected, "{records:?}");
            }
        }
    }

    /// Rendered manifests have no record, and no tool but Helm annotates the Deployment.
    #[tokio::test]
    async fn without_a_record_helm_must_have_installed_the_deployment() {
        for other in [
            None,
            Some(ObjectMeta::default()),
            Some(deployment("other", "system")),
            Some(deployment("gamekeeper", "elsewhere")),
        ] {
            let refused = check(&[], other.clone(), Some(job("helm"))).err();
            let expected = GoesOn::NotInstalled("gamekeeper".into());
            assert_eq!(refused, Some(expected), "{other:?}");
        }
        let installed = deployment("gamekeeper", "system");
        assert!(check(&[], Some(installed.clone()), None).is_err());
        for manager in ["helm", "helm-controller", "terraform-provider-helm_v3.1.0"] {
            assert_eq!(check(&[], Some(installed.clone()), Some(job(manager))), Ok(()));
        }
    }

    /// A user has moved from Helm to rendered manifests: the Deployment still has the annotations.
    #[tokio::test]
    async fn a_job_that_another_client_applied_does_nothing() {
        let installed = deployment("gamekeeper", "system");
        let applied = metadata(json!({"annotations": {LAST_APPLIED: "{}"}, "managedFields": [
            {"manager": "helm", "operation": "Update"},
        ]}));
        let others =
            ["kubectl", "kubectl-create", "argocd-controller", "kustomize-controller", "kapp"];
        for job in others.map(job).into_iter().chain([applied]) {
            let refused = check(&[], Some(installed.clone()), Some(job)).err();
            assert!(matches!(refused, Some(GoesOn::Applied(_))), "{refused:?}");
        }
    }
}

//! Stops the operator, and starts it again if guards could not be removed. The Deployment itself remembers its
//! replicas, because the command may be killed at any time.

use std::time::Duration;

use gamekeeper_core::api::names::REPLICAS_ANNOTATION;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{STOP_TIMEOUT, UnguardError};

/// The operator's Deployment and lease.
pub(super) struct Operator<'a> {
    pub(super) deployments: Api<Deployment>,
    pub(super) leases: Api<Lease>,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) lease: &'a str,
}

impl Operator<'_> {
    async fn patch(&self, patch: Value) -> Result<(), kube::Error> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        match self.deployments.patch(self.name, &params, &patch).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            result => result.map(drop),
        }
    }

    /// Starts the operator again if this run, or an earlier one that was killed, has stopped it.
    pub(super) async fn restore(&self) -> Result<(), kube::Error> {
        let deployment = self.deployments.get_opt(self.name).await?;
        match deployment.as_ref().and_then(restore_patch) {
            Some(patch) => self.patch(patch).await,
            None => Ok(()),
        }
    }

    pub(super) async fn stop(&self) -> Result<(), UnguardError> {
        if let Some(deployment) = self.deployments.get_opt(self.name).await? {
            self.patch(stop_patch(&deployment)).await?;
        }
        self.until_stopped().await
    }

    /// Fails if the Deployment is not scaled to 0. One that does not exist runs nothing.
    pub(super) async fn ensure_scaled_to_0(&self) -> Result<(), UnguardError> {
        let deployment = self.deployments.get_opt(self.name).await?;
        match deployment.as_ref().map(replicas) {
            None | Some(0) => Ok(()),
            Some(replicas) => Err(UnguardError::NotStopped {
                namespace: self.namespace.to_owned(),
                deployment: self.name.to_owned(),
                replicas,
            }),
        }
    }

    pub(super) async fn until_stopped(&self) -> Result<(), UnguardError> {
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

    /// Whether the operator has no pods left, and its lease is free or has expired.
    async fn has_stopped(&self) -> Result<bool, kube::Error> {
        let deployment = self.deployments.get_opt(self.name).await?;
        if deployment.is_some_and(|it| !has_no_replicas(&it)) {
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

/// The patch that stops a Deployment and remembers its replicas, in one write. If an earlier run was killed, the
/// number that it remembered stays, unless the Deployment has been scaled up since.
fn stop_patch(deployment: &Deployment) -> Value {
    let former_replicas = match replicas(deployment) {
        0 => remembered(deployment).unwrap_or(0),
        replicas => replicas,
    };
    json!({
        "metadata": {"annotations": {REPLICAS_ANNOTATION: former_replicas.to_string()}},
        "spec": {"replicas": 0},
    })
}

/// The patch that starts a stopped Deployment again. If the Deployment has been scaled up since, it keeps its replicas.
/// None if it was not stopped.
fn restore_patch(deployment: &Deployment) -> Option<Value> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_remembers_its_replicas_while_it_is_stopped() {
        // Before: replicas, and the number remembered. After: the number that a stop remembers, and the number
        // restored.
        for (replicas, remembered, to_remember, restored) in [
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
            let stop = stop_patch(&deployment);
            let annotations = &stop["metadata"]["annotations"];
            assert_eq!(annotations[REPLICAS_ANNOTATION], to_remember, "{stop}");
            assert_eq!(stop["spec"]["replicas"], 0, "{stop}");
            let restore = restore_patch(&deployment);
            let restored_replicas = restore.as_ref().map(|it| &it["spec"]["replicas"]);
            assert_eq!(restored_replicas, restored.map(Value::from).as_ref());
            let forgotten = restore.as_ref().is_none_or(|it| {
                it["metadata"]["annotations"] == json!({REPLICAS_ANNOTATION: null})
            });
            assert!(forgotten, "{restore:?}");
        }
    }
}

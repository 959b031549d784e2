//! Rotation of the certificates: checks the Secret at intervals, renews the certificates when they are due, serves
//! the current one, and writes the CA bundle to the webhook's configuration.
//!
//! Every replica does this. A write of the Secret contains the resourceVersion that the decision is based on. If two
//! replicas write at the same time, one of them gets a conflict, and uses the certificates that the other has written.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::certificates::{CertificateError, Certificates, Due, Pair, due};
use super::metrics::AdmissionMetrics;
use super::server::ServingCertificate;
use super::state::{Configured, webhook_state};
use crate::runtime::jitter::jittered;
use gamekeeper_core::causes::with_causes;
use gamekeeper_core::sidecar_set::WebhookState;

/// The shortest and the longest time between two checks of the Secret.
const CHECK_INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, thiserror::Error)]
enum RotationError {
    #[error("Secret {0} does not exist: create it, empty, in the operator's namespace")]
    NoSecret(String),
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

impl RotationError {
    /// Whether the object may have changed since it was read. Code 422 means that the test in a JSON patch failed, or
    /// that the write is invalid.
    fn is_conflict(&self) -> bool {
        matches!(self, RotationError::Api(kube::Error::Api(status)) if [409, 422].contains(&status.code))
    }
}

pub(super) struct Rotation {
    secrets: Api<Secret>,
    validating: Api<ValidatingWebhookConfiguration>,
    /// None if the webhook changes no objects.
    mutating: Option<Api<MutatingWebhookConfiguration>>,
    name: String,
    /// The host names of the webhook.
    names: Vec<String>,
    lifetime: Duration,
    certificate: Arc<ServingCertificate>,
    metrics: AdmissionMetrics,
    served: Option<Pair>,
    /// How API servers are told to call the webhook that injects sidecars; None if this has not been read yet.
    configured: Option<Configured>,
    /// Receives whether the webhook that injects sidecars is in force; None if the webhook changes no objects.
    state: Option<watch::Sender<WebhookState>>,
}

impl Rotation {
    pub(super) fn new(
        client: Client,
        namespace: &str,
        name: &str,
        lifetime: Duration,
        certificate: Arc<ServingCertificate>,
        metrics: AdmissionMetrics,
        state: Option<watch::Sender<WebhookState>>,
    ) -> Self {
        Rotation {
            secrets: Api::namespaced(client.clone(), namespace),
            validating: Api::all(client.clone()),
            mutating: state.is_some().then(|| Api::all(client)),
            name: name.to_owned(),
            // localhost is for an API server on the same machine, in development.
            names: vec![format!("{name}.{namespace}.svc"), "localhost".to_owned()],
            lifetime,
            certificate,
            metrics,
            served: None,
            configured: None,
            state,
        }
    }

    pub(super) async fn run(mut self) {
        let [min, max] = CHECK_INTERVALS;
        let interval = (self.lifetime / 60).clamp(min, max);
        let mut backoff = min;
        loop {
            let checked = timeout(CHECK_TIMEOUT, self.check()).await;
            let is_success = matches!(checked, Ok(Ok(())));
            match checked {
                Ok(Ok(())) => self.report(None),
                // Another replica was faster; its certificates are used next.
                Ok(Err(error)) if error.is_conflict() && backoff == min => {
                    info!(%error, "checking the webhook's certificates again");
                }
                Ok(Err(error)) => {
                    let error = with_causes(&error);
                    warn!(%error, "cannot renew the webhook's certificates");
                    self.report(Some(&error));
                }
                Err(_) => {
                    let error = "the API server did not respond in time; the webhook's certificates were not checked";
                    warn!("{error}");
                    self.report(Some(error));
                }
            }
            let (wait, next) = match is_success {
                true => (interval, min),
                false => (jittered(backoff), (backoff * 2).min(interval)),
            };
            backoff = next;
            sleep(wait).await;
        }
    }

    /// Reports whether the webhook that injects sidecars is in force, if that has changed.
    fn report(&self, error: Option<&str>) {
        let Some(state) = &self.state else {
            return;
        };
        let (served, configured) = (self.served.as_ref(), self.configured.as_ref());
        let current = webhook_state(&self.name, served, configured, error, Timestamp::now());
        state.send_if_modified(|old| {
            let is_new = *old != current;
            *old = current;
            is_new
        });
    }

    async fn check(&mut self) -> Result<(), RotationError> {
        let secret = self.secrets.get_opt(&self.name).await?;
        let secret = secret.ok_or_else(|| RotationError::NoSecret(self.name.clone()))?;
        let stored = secret.data.as_ref().and_then(Certificates::read);
        // API servers must trust an authority before its certificate is served.
        let announced = match &stored {
            Some(stored) => self.announce(stored).await?,
            None => false,
        };
        let now = Timestamp::now();
        let due = due(stored.as_ref(), &self.names, now, self.lifetime, announced);
        let renewed = self.renewed(stored.clone(), &due, now)?;
        let Some(certificates) = renewed else {
            return stored.map_or(Ok(()), |stored| self.serve(&stored));
        };
        let data = Some(certificates.write());
        let secret = Secret { data, ..secret };
        self.secrets.replace(&self.name, &PostParams::default(), &secret).await?;
        info!(?due, until = %certificates.current.until, "renewed the webhook's certificates");
        self.announce(&certificates).await?;
        self.serve(&certificates)
    }

    /// The certificates with the changes that are due; None if nothing is due.
    fn renewed(
        &self,
        stored: Option<Certificates>,
        due: &Due,
        now: Timestamp,
    ) -> Result<Option<Certificates>, CertificateError> {
        let pair = || Pair::new(&self.names, now, self.lifetime);
        Ok(match (due, stored) {
            (Due::Nothing, _) => None,
            (Due::Create, _) | (_, None) => Some(Certificates::new(pair()?)),
            (Due::Announce, Some(stored)) => Some(Certificates { next: Some(pair()?), ..stored }),
            (Due::Promote, Some(stored)) => Some(stored.promote()),
            (Due::RemoveOld, Some(stored)) => Some(Certificates { old: None, ..stored }),
        })
    }

    fn serve(&mut self, certificates: &Certificates) -> Result<(), RotationError> {
        let current = &certificates.current;
        if self.served.as_ref() != Some(current) {
            self.certificate.set(current.serving_key()?);
            self.metrics.set_certificate_expiry(current.until);
            self.served = Some(current.clone());
        }
        Ok(())
    }

    /// Writes the CA bundle to the webhook's configurations. Returns whether there are configurations, and all of them
    /// had the bundle already: API servers load a bundle some time after it was written.
    async fn announce(&mut self, certificates: &Certificates) -> Result<bool, RotationError> {
        let bundle = certificates.bundle();
        let (mut is_configured, mut is_written) = (false, false);
        // If there is no configuration of this name, the webhook is configured elsewhere, or not at all.
        if let Some(found) = self.validating.get_opt(&self.name).await? {
            let webhooks = found.webhooks.iter().flatten();
            let bundles = webhooks.map(|it| it.client_config.ca_bundle.as_ref());
            let version = found.metadata.resource_version.as_deref();
            let patch = patch(&bundle, version, bundles)?;
            is_configured = true;
            is_written |= self.write(&self.validating, patch).await?;
        }
        if let Some(mutating) = &self.mutating {
            let found = mutating.get_opt(&self.name).await?;
            self.configured = Some(Configured::read(found.as_ref()));
            if let Some(found) = found {
                let webhooks = found.webhooks.iter().flatten();
                let bundles = webhooks.map(|it| it.client_config.ca_bundle.as_ref());
                let version = found.metadata.resource_version.as_deref();
                let patch = patch(&bundle, version, bundles)?;
                is_configured = true;
                is_written |= self.write(mutating, patch).await?;
                if let Some(Configured::With(trusted)) = &mut self.configured {
                    *trusted = bundle;
                }
            }
        }
        Ok(is_configured && !is_written)
    }

    /// Returns whether there was anything to write.
    async fn write<K>(
        &self,
        configurations: &Api<K>,
        patch: Option<json_patch::Patch>,
    ) -> Result<bool, RotationError>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let Some(patch) = patch else {
            return Ok(false);
        };
        let patch = Patch::Json::<()>(patch);
        configurations.patch(&self.name, &PatchParams::default(), &patch).await?;
        info!("updated the CA bundle of a webhook configuration");
        Ok(true)
    }
}

/// The patch that sets the CA bundle in a configuration's webhooks, unless they already have it. None if all of them
/// have it.
fn patch<'a>(
    bundle: &str,
    version: Option<&str>,
    bundles: impl Iterator<Item = Option<&'a ByteString>>,
) -> Result<Option<json_patch::Patch>, kube::Error> {
    let outdated = bundles
        .enumerate()
        .filter(|(_, current)| current.is_none_or(|current| current.0 != bundle.as_bytes()));
    let encoded = STANDARD.encode(bundle);
    let mut operations: Vec<_> = outdated
        .map(|(index, _)| {
            let path = format!("/webhooks/{index}/clientConfig/caBundle");
            json!({"op": "add", "path": path, "value": encoded})
        })
        .collect();
    if operations.is_empty() {
        return Ok(None);
    }
    // The indices are valid for this version only.
    let path = "/metadata/resourceVersion";
    operations.insert(0, json!({"op": "test", "path": path, "value": version}));
    let patch = serde_json::from_value(json!(operations)).map_err(kube::Error::SerdeError)?;
    Ok(Some(patch))
}

#[cfg(test)]
mod tests;

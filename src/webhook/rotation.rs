//! Rotates the certificates: checks the Secret at intervals, does what is due, serves the current
//! certificate, and puts the CA bundle into the webhook's configuration.
//!
//! Every replica does it. The Secret is written with the resourceVersion that the decision rests on. So of
//! two replicas that find the same thing due, one gets a conflict, and takes what the other has made.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::certificates::{CertificateError, Certificates, Due, Pair, due};
use super::metrics::AdmissionMetrics;
use super::server::ServingCertificate;
use gamekeeper_core::causes::with_causes;

/// The shortest and the longest time between two checks of the Secret.
const CHECK_INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// The timeout of one check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// Why certificates are not what they should be.
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
    /// Whether what was to be written was not as it had been read, or may not be written.
    fn is_conflict(&self) -> bool {
        matches!(self, RotationError::Api(kube::Error::Api(status)) if [409, 422].contains(&status.code))
    }
}

/// Keeps the certificates of this process fresh.
pub(super) struct Rotation {
    secrets: Api<Secret>,
    configurations: Api<ValidatingWebhookConfiguration>,
    name: String,
    /// Host names under which the webhook is called.
    names: Vec<String>,
    lifetime: Duration,
    serving: Arc<ServingCertificate>,
    metrics: AdmissionMetrics,
    /// What is served.
    served: Option<Pair>,
}

impl Rotation {
    pub(super) fn new(
        client: Client,
        namespace: &str,
        name: &str,
        lifetime: Duration,
        serving: Arc<ServingCertificate>,
        metrics: AdmissionMetrics,
    ) -> Self {
        Rotation {
            secrets: Api::namespaced(client.clone(), namespace),
            configurations: Api::all(client),
            name: name.to_owned(),
            // The last one is for an API server on the same machine, as when developing.
            names: vec![format!("{name}.{namespace}.svc"), "localhost".to_owned()],
            lifetime,
            serving,
            metrics,
            served: None,
        }
    }

    /// Does so for as long as the process lives.
    pub(super) async fn run(mut self) {
        let [most_often, least_often] = CHECK_INTERVALS;
        let regular = (self.lifetime / 60).clamp(most_often, least_often);
        let mut soon = most_often;
        loop {
            let checked = timeout(CHECK_TIMEOUT, self.check()).await;
            let went_well = matches!(checked, Ok(Ok(())));
            match checked {
                Ok(Ok(())) => {}
                // Another replica was faster, and what it has made is there to be served.
                Ok(Err(error)) if error.is_conflict() && soon == most_often => {
                    info!(%error, "checking the webhook's certificates again");
                }
                Ok(Err(error)) => {
                    warn!(error = %with_causes(&error), "cannot renew the webhook's certificates");
                }
                Err(_) => warn!(
                    "the API server did not respond in time; the webhook's certificates were not checked"
                ),
            }
            // Most of what is in the way is over in a moment, and some of it lasts: a Secret can be immutable.
            let (wait, next) = match went_well {
                true => (regular, most_often),
                false => (soon, (soon * 2).min(regular)),
            };
            soon = next;
            sleep(wait).await;
        }
    }

    async fn check(&mut self) -> Result<(), RotationError> {
        let secret = self.secrets.get_opt(&self.name).await?;
        let secret = secret.ok_or_else(|| RotationError::NoSecret(self.name.clone()))?;
        let kept = secret.data.as_ref().and_then(Certificates::read);
        // Told before anything is served that rests on it.
        let announced = match &kept {
            Some(kept) => self.announce(kept).await?,
            None => false,
        };
        let now = Timestamp::now();
        let due = due(kept.as_ref(), &self.names, now, self.lifetime, announced);
        let renewed = self.renewed(kept.clone(), &due, now)?;
        let Some(certificates) = renewed else {
            return kept.map_or(Ok(()), |kept| self.serve(&kept));
        };
        let data = Some(certificates.write());
        let secret = Secret { data, ..secret };
        self.secrets
            .replace(&self.name, &PostParams::default(), &secret)
            .await?;
        info!(?due, until = %certificates.current.until, "renewed the webhook's certificates");
        self.announce(&certificates).await?;
        self.serve(&certificates)
    }

    /// The certificates after what is due; None when they stay as they are.
    fn renewed(
        &self,
        kept: Option<Certificates>,
        due: &Due,
        now: Timestamp,
    ) -> Result<Option<Certificates>, CertificateError> {
        let pair = || Pair::new(&self.names, now, self.lifetime);
        Ok(match (due, kept) {
            (Due::Nothing, _) => None,
            (Due::Begin, _) | (_, None) => Some(Certificates::begin(pair()?)),
            (Due::Announce, Some(kept)) => Some(Certificates {
                next: Some(pair()?),
                ..kept
            }),
            (Due::Promote, Some(kept)) => Some(kept.promote()),
            (Due::Forget, Some(kept)) => Some(Certificates { old: None, ..kept }),
        })
    }

    /// Serves what is current.
    fn serve(&mut self, certificates: &Certificates) -> Result<(), RotationError> {
        if self.served.as_ref() != Some(&certificates.current) {
            self.serving.serve(certificates.current.serving_key()?);
            self.metrics.serves_until(certificates.current.until);
            self.served = Some(certificates.current.clone());
        }
        Ok(())
    }

    /// Puts the bundle into the webhook's configuration. Whether all API servers can know it.
    async fn announce(&self, certificates: &Certificates) -> Result<bool, RotationError> {
        let Some(configuration) = self.configurations.get_opt(&self.name).await? else {
            // The webhook is configured elsewhere, or not at all.
            return Ok(false);
        };
        let bundle = certificates.bundle();
        let webhooks = configuration.webhooks.iter().flatten().enumerate();
        let behind = webhooks.filter(|(_, webhook)| {
            let known = webhook.client_config.ca_bundle.as_ref();
            known.is_none_or(|known| known.0 != bundle.as_bytes())
        });
        let encoded = STANDARD.encode(&bundle);
        let mut operations: Vec<_> = behind
            .map(|(index, _)| {
                let path = format!("/webhooks/{index}/clientConfig/caBundle");
                json!({"op": "add", "path": path, "value": encoded})
            })
            .collect();
        if operations.is_empty() {
            return Ok(true);
        }
        // The indices are those of this version.
        let version = configuration.metadata.resource_version;
        let path = "/metadata/resourceVersion";
        operations.insert(0, json!({"op": "test", "path": path, "value": version}));
        let patch: json_patch::Patch =
            serde_json::from_value(json!(operations)).map_err(kube::Error::SerdeError)?;
        let patch = Patch::Json::<()>(patch);
        self.configurations
            .patch(&self.name, &PatchParams::default(), &patch)
            .await?;
        info!("updated the CA bundle of the webhook configuration");
        Ok(true)
    }
}

#[cfg(test)]
mod tests;

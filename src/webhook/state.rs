//! Whether the webhook that injects sidecars is in force, as far as its own process can know: it is configured, and API
//! servers trust the certificate that is served. Pure.

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;

use super::certificates::Pair;
use gamekeeper_core::sidecar_set::WebhookState;

/// The path of the webhook that injects sidecars.
const PATH: &str = "/inject";

/// How API servers are told to call the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Configured {
    /// Not at all.
    No,
    /// They trust the authorities in this bundle.
    With(String),
}

impl Configured {
    /// Reads a configuration. Without a CA bundle, API servers trust the authorities that their machine trusts.
    pub(super) fn read(configuration: Option<&MutatingWebhookConfiguration>) -> Self {
        let webhooks = configuration.and_then(|it| it.webhooks.as_ref());
        let mut clients = webhooks.into_iter().flatten().map(|it| &it.client_config);
        let client = clients.find(|it| {
            let service_path = it.service.as_ref().and_then(|it| it.path.as_deref());
            let url = it.url.as_deref();
            service_path == Some(PATH) || url.is_some_and(|url| url.ends_with(PATH))
        });
        match client {
            Some(client) => {
                let bundle = client.ca_bundle.as_ref().map(|it| it.0.as_slice());
                Self::With(String::from_utf8_lossy(bundle.unwrap_or_default()).into_owned())
            }
            None => Self::No,
        }
    }
}

/// The state after a check. `served` is the certificate that this process serves; `error` is why the check failed.
pub(super) fn webhook_state(
    name: &str,
    served: Option<&Pair>,
    configured: Option<&Configured>,
    error: Option<&str>,
    now: Timestamp,
) -> WebhookState {
    let not_trusted = |reason: String| match error {
        Some(error) => WebhookState::NotTrusted(error.to_owned()),
        None => WebhookState::NotTrusted(reason),
    };
    match (configured, served) {
        (Some(Configured::No), _) => WebhookState::NotConfigured(name.to_owned()),
        (_, None) => not_trusted("it has no certificate yet".to_owned()),
        (_, Some(served)) if served.until <= now => {
            not_trusted(format!("its certificate expired at {}", served.until))
        }
        (Some(Configured::With(bundle)), Some(served))
            if !bundle.contains(served.authority.trim()) =>
        {
            not_trusted("its authority is not in the CA bundle of the configuration".to_owned())
        }
        _ => WebhookState::InForce,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn pair(now: Timestamp) -> Pair {
        Pair::new(&["a".to_owned()], now, Duration::from_secs(3600)).expect("a pair")
    }

    fn configuration(client: Value) -> MutatingWebhookConfiguration {
        let webhook = |name: &str, client: Value| json!({"name": name, "clientConfig": client, "admissionReviewVersions": ["v1"], "sideEffects": "None"});
        let defaults = json!({"url": "https://localhost:1/default"});
        let webhooks =
            json!({"webhooks": [webhook("default", defaults), webhook("inject", client)]});
        serde_json::from_value(webhooks).expect("a configuration")
    }

    #[test]
    fn the_webhook_for_pods_is_found_by_its_path() {
        let service = json!({"name": "webhook", "namespace": "games", "path": "/inject"});
        let bundle = Configured::With("PEM".to_owned());
        for client in [
            json!({"service": service, "caBundle": "UEVN"}),
            json!({"url": "https://localhost:1/inject", "caBundle": "UEVN"}),
        ] {
            assert_eq!(Configured::read(Some(&configuration(client))), bundle);
        }
        let other = configuration(json!({"url": "https://localhost:1/validate"}));
        assert_eq!(Configured::read(Some(&other)), Configured::No);
        assert_eq!(Configured::read(None), Configured::No);
    }

    #[test]
    fn the_webhook_is_in_force_while_its_certificate_is_trusted() {
        let now = Timestamp::UNIX_EPOCH;
        let (served, other) = (pair(now), pair(now));
        let trusting = |pairs: &[&Pair]| {
            Configured::With(pairs.iter().map(|pair| pair.authority.as_str()).collect())
        };
        let trusted = trusting(&[&other, &served]);
        let untrusted = trusting(&[&other]);
        let not_trusted = |why: &str| WebhookState::NotTrusted(why.to_owned());
        let later = now + Duration::from_secs(3600);
        let state =
            |served, configured, error| webhook_state("hook", served, configured, error, now);
        assert_eq!(state(Some(&served), Some(&trusted), None), WebhookState::InForce);
        // An error is harmless while the certificate is trusted.
        assert_eq!(state(Some(&served), Some(&trusted), Some("403")), WebhookState::InForce);
        assert_eq!(state(Some(&served), None, None), WebhookState::InForce);
        assert_eq!(state(Some(&served), Some(&untrusted), Some("403")), not_trusted("403"));
        assert_eq!(
            state(Some(&served), Some(&untrusted), None),
            not_trusted("its authority is not in the CA bundle of the configuration")
        );
        assert_eq!(
            webhook_state("hook", Some(&served), Some(&trusted), None, later),
            not_trusted("its certificate expired at 1970-01-01T01:00:00Z")
        );
        assert_eq!(state(None, Some(&trusted), None), not_trusted("it has no certificate yet"));
        assert_eq!(state(None, None, Some("no Secret")), not_trusted("no Secret"));
        assert_eq!(
            state(Some(&served), Some(&Configured::No), None),
            WebhookState::NotConfigured("hook".to_owned())
        );
    }
}

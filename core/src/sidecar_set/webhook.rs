//! What happens to new pods of other controllers while the webhook that injects into them is not in force.

use crate::api::names::SIDECARS_LABEL;

/// The maximum number of namespaces that a condition names.
const MAX_NAMED: usize = 3;

/// What the operator knows about the webhook that injects into pods of other controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WebhookState {
    /// API servers are configured to call it, and trust it. Assumed until the real state is known.
    #[default]
    InForce,
    /// The operator serves no webhook.
    NotServed,
    /// There is no MutatingWebhookConfiguration of this name that calls it.
    NotConfigured(String),
    /// API servers do not trust it, for this reason.
    NotTrusted(String),
}

/// Pods of other controllers.
#[derive(Clone, Debug)]
pub struct OtherPods<'a> {
    /// The namespaces that a set reaches and in which such pods get sidecars, sorted.
    pub namespaces: &'a [String],
    /// Whether such pods get sidecars in all namespaces that are not labeled `disabled`.
    pub all: bool,
    /// The webhook that injects into them.
    pub webhook: &'a WebhookState,
}

impl OtherPods<'_> {
    /// Why new pods of other controllers do not get the containers: a reason, and a message that says what happens to
    /// these pods and how to fix that. None if they get the containers, or if `namespaces` is empty.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        let (reason, what) = match self.webhook {
            _ if self.namespaces.is_empty() => return None,
            WebhookState::InForce => return None,
            WebhookState::NotServed => (
                "WebhookDisabled",
                "do not get them, because the operator serves no webhook; install the chart with admission.enabled=true"
                    .to_owned(),
            ),
            WebhookState::NotConfigured(name) => (
                "WebhookNotInstalled",
                format!(
                    "are created without them, because no MutatingWebhookConfiguration {name:?} calls /inject; \
                     install the chart with sidecars.enabled=true, then recreate these pods"
                ),
            ),
            WebhookState::NotTrusted(why) => (
                "WebhookNotTrusted",
                format!("are refused, because API servers do not trust the webhook ({why}); fix that"),
            ),
        };
        let shown: Vec<&str> = self.namespaces.iter().take(MAX_NAMED).map(String::as_str).collect();
        let more = match self.namespaces.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let shown = shown.join(", ");
        let (places, fix) = match self.all {
            true => (
                format!("namespaces {shown}{more}"),
                format!("label these namespaces {SIDECARS_LABEL}: disabled"),
            ),
            false => (
                format!("namespaces labeled {SIDECARS_LABEL}: enabled ({shown}{more})"),
                "remove the label".to_owned(),
            ),
        };
        let message = format!(
            "new pods of game workloads get the containers; those of other controllers in {places} {what}, or {fix}"
        );
        Some((reason, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(namespaces: &[&str], webhook: &WebhookState) -> Option<(&'static str, String)> {
        let namespaces: Vec<String> = namespaces.iter().map(|it| (*it).to_owned()).collect();
        let namespaces = &namespaces;
        OtherPods { namespaces, all: false, webhook }.problem()
    }

    #[test]
    fn the_message_explains_what_happens_to_pods_and_how_to_fix_that() {
        let states = [
            (
                WebhookState::NotServed,
                "WebhookDisabled",
                "(web) do not get them, because the operator",
            ),
            (
                WebhookState::NotConfigured("hook".to_owned()),
                "WebhookNotInstalled",
                "(web) are created without them, because no MutatingWebhookConfiguration \"hook\" calls /inject; install",
            ),
            (
                WebhookState::NotTrusted("the Secret is missing".to_owned()),
                "WebhookNotTrusted",
                "(web) are refused, because API servers do not trust the webhook (the Secret is missing); fix that, or remove the label",
            ),
        ];
        for (state, reason, words) in states {
            let (found, message) = problem(&["web"], &state).expect("a problem");
            assert_eq!(found, reason);
            assert!(message.contains(words), "{message}");
            assert!(
                message.starts_with("new pods of game workloads get the containers"),
                "{message}"
            );
            // No pod of another controller is affected.
            assert_eq!(problem(&[], &state), None);
        }
        assert_eq!(problem(&["web"], &WebhookState::InForce), None);
    }

    #[test]
    fn where_no_label_is_needed_the_message_names_the_label_that_excludes_a_namespace() {
        let pods = OtherPods {
            namespaces: &["web".to_owned()],
            all: true,
            webhook: &WebhookState::NotServed,
        };
        let (_, message) = pods.problem().expect("a problem");
        let expected = "those of other controllers in namespaces web do not get them, ";
        assert!(message.contains(expected), "{message}");
        let fix = ", or label these namespaces gamekeeper.tkex.tencent.com/sidecars: disabled";
        assert!(message.ends_with(fix), "{message}");
    }

    #[test]
    fn only_a_few_namespaces_are_named() {
        let (_, message) =
            problem(&["a", "b", "c", "d", "e"], &WebhookState::NotServed).expect("a problem");
        assert!(message.contains("(a, b, c and 2 more)"), "{message}");
    }
}

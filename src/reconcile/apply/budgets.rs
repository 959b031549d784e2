//! The PodDisruptionBudgets of other clients, which the guard reports.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;
use kube::core::Selector;
use serde::Deserialize;
use tracing::debug;

use super::{Applier, Target};
use gamekeeper_core::api::{AnnotationLimits, JsonText, names};
use gamekeeper_core::observed::OtherBudget;

/// The longest list of PodDisruptionBudgets that is read, in bytes: several hundred of them.
const MAX_BUDGETS_BYTES: usize = 1 << 20;
/// How many of them are remembered for a workload.
const MAX_BUDGETS: usize = 8;
/// Longer selectors are not remembered.
const MAX_SELECTOR: AnnotationLimits = AnnotationLimits { length: 1 << 10, memory: 8 << 10 };

impl Applier {
    /// The PodDisruptionBudgets of other clients in the namespace. They do not weaken the guard, so none are reported
    /// if they cannot be read, or are too many: they are remembered for each workload.
    pub(super) async fn other_budgets(&self, target: &Target) -> Vec<OtherBudget> {
        let namespace = &target.owner.namespace;
        let budgets = PodDisruptionBudget::url_path(&(), Some(namespace));
        let without_ours = format!("%21{}", names::GUARDED_LABEL.replace('/', "%2F"));
        let path = format!("{budgets}?labelSelector={without_ours}&resourceVersion=0");
        let request = self.requests.read_short::<Budgets>(&path, MAX_BUDGETS_BYTES);
        let list = request.await.inspect_err(|error| {
            debug!(%error, namespace, "cannot list PodDisruptionBudgets");
        });
        let own_labels = &target.owner.revision_labels;
        let items = list.map_or_else(|_| Vec::new(), |list| list.items);
        let others = items.into_iter().filter_map(|budget| budget.for_pods_with(own_labels));
        others.take(MAX_BUDGETS).collect()
    }
}

/// The parts of a list of PodDisruptionBudgets that are read.
#[derive(Deserialize)]
struct Budgets {
    items: Vec<Budget>,
}

#[derive(Deserialize)]
struct Budget {
    metadata: BudgetMetadata,
    #[serde(default)]
    spec: BudgetSpec,
}

#[derive(Deserialize)]
struct BudgetMetadata {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BudgetSpec {
    selector: JsonText,
}

impl Budget {
    /// The budget, if it may select pods that have these labels, and others.
    fn for_pods_with(self, labels: &BTreeMap<String, String>) -> Option<OtherBudget> {
        let selector = MAX_SELECTOR.read::<Option<LabelSelector>>(self.spec.selector.text())??;
        let differs =
            |(key, value): (&String, &String)| labels.get(key).is_some_and(|it| it != value);
        if selector.match_labels.iter().flatten().any(differs) {
            return None;
        }
        let selector = Selector::try_from(selector).ok()?;
        Some(OtherBudget { name: self.metadata.name, selector })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::runtime::request::Requests;

    fn budget(selector: Value) -> Option<OtherBudget> {
        let budget = json!({"metadata": {"name": "mine"}, "spec": {"selector": selector}});
        let budget: Budget = serde_json::from_str(&budget.to_string()).expect("a budget");
        budget.for_pods_with(&BTreeMap::from([("app".to_owned(), "game".to_owned())]))
    }

    #[test]
    fn only_budgets_that_may_select_the_pods_and_have_a_short_selector_are_remembered() {
        let expressions = |values: usize| {
            let values: Vec<String> = (0..values).map(|it| format!("value-{it}")).collect();
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": values}]})
        };
        for selector in [
            json!({}),
            json!({"matchLabels": {"app": "game", "tier": "front"}}),
            json!({"matchLabels": {"tier": "front"}}),
            expressions(50),
        ] {
            assert!(budget(selector.clone()).is_some(), "{selector}");
        }
        for selector in [Value::Null, json!({"matchLabels": {"app": "web"}}), expressions(200)] {
            assert!(budget(selector.clone()).is_none(), "{selector}");
        }
    }

    #[tokio::test]
    async fn few_budgets_of_other_clients_are_remembered() {
        let server = tower::service_fn(|_: http::Request<kube::client::Body>| {
            let budget = json!({"metadata": {"name": "mine"}, "spec": {"selector": {}}});
            let list = json!({"items": vec![budget; 100]}).to_string();
            let response = http::Response::new(kube::client::Body::from(list.into_bytes()));
            std::future::ready(Ok::<_, std::convert::Infallible>(response))
        });
        let requests = Requests::new(kube::Client::new(server, "games"));
        let (events, _writer) = super::super::events::EventRecorder::new();
        let metrics = super::super::Metrics::default();
        let applier = Applier::new(requests, events, metrics, std::sync::Arc::new(|_| true));
        let others = applier.other_budgets(&super::super::tests::target()).await;
        assert_eq!(others.len(), MAX_BUDGETS);
    }
}

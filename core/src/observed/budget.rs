//! PodDisruptionBudgets of other clients.

use std::collections::BTreeMap;

use kube::core::{Selector, SelectorExt};

/// A PodDisruptionBudget of another client. If two budgets select a pod, the API server answers its eviction with an
/// error, instead of asking the client to try again.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherBudget {
    /// Its name.
    pub name: String,
    /// The pods that it selects.
    pub selector: Selector,
}

impl OtherBudget {
    /// Whether it selects a pod with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }
}

//! Resources of containers in a canonical form, and whether a kubelet has applied them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use gamekeeper_core::observed::quantity;

type Quantities = BTreeMap<String, Quantity>;

/// The canonical JSON of a container's resources: equal amounts have equal text.
pub(super) fn canonical(resources: Option<&ResourceRequirements>) -> String {
    let amounts = |quantities: Option<&Quantities>| -> BTreeMap<String, String> {
        let quantities = quantities.into_iter().flatten();
        quantities.map(|(name, quantity)| (name.clone(), amount(quantity))).collect()
    };
    let part =
        |pick: fn(&ResourceRequirements) -> Option<&Quantities>| amounts(resources.and_then(pick));
    json!({
        "limits": part(|it| it.limits.as_ref()),
        "requests": part(|it| it.requests.as_ref()),
    })
    .to_string()
}

/// Whether a kubelet reports that a container runs with the CPU and memory that its spec sets. An amount that the
/// kubelet does not report counts as not applied.
pub(super) fn applied(
    wanted: Option<&ResourceRequirements>,
    reported: Option<&ResourceRequirements>,
) -> bool {
    let agree = |pick: fn(&ResourceRequirements) -> Option<&Quantities>| {
        let amount_in = |from: Option<&ResourceRequirements>, name: &str| {
            from.and_then(pick)?.get(name).map(amount)
        };
        ["cpu", "memory"].into_iter().all(|name| {
            let wanted = amount_in(wanted, name);
            wanted.is_none() || wanted == amount_in(reported, name)
        })
    };
    agree(|it| it.requests.as_ref()) && agree(|it| it.limits.as_ref())
}

fn amount(quantity: &Quantity) -> String {
    quantity::canonical(&Value::String(quantity.0.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(requests: &[(&str, &str)]) -> ResourceRequirements {
        let quantities = requests
            .iter()
            .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())));
        ResourceRequirements { requests: Some(quantities.collect()), ..Default::default() }
    }

    #[test]
    fn equal_resources_have_the_same_text() {
        let one = resources(&[("cpu", "1"), ("memory", "1Gi")]);
        let other = resources(&[("cpu", "1000m"), ("memory", "1024Mi")]);
        assert_eq!(canonical(Some(&one)), canonical(Some(&other)));
        assert_ne!(canonical(Some(&one)), canonical(None));
    }

    #[test]
    fn resources_are_applied_when_the_kubelet_reports_the_wanted_cpu_and_memory() {
        let wanted = resources(&[("cpu", "1"), ("memory", "1Gi"), ("example.com/gpu", "1")]);
        let old = resources(&[("cpu", "500m"), ("memory", "1Gi")]);
        let new = resources(&[("cpu", "1000m"), ("memory", "1024Mi")]);
        assert!(!applied(Some(&wanted), Some(&old)));
        assert!(applied(Some(&wanted), Some(&new)));
        assert!(!applied(Some(&wanted), None));
        assert!(applied(None, None));
    }
}

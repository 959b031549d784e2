//! The chart's ValidatingAdmissionPolicies, installed for the namespaces of a test only.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::webhook::rendered;
use crate::case::Case;

/// The release name of a test. Policies are named after it.
pub fn release(case: &Case) -> String {
    // The test namespaces differ in their last characters.
    let end = &case.namespace[case.namespace.len().saturating_sub(35)..];
    format!("keep-{}", end.trim_start_matches('-'))
}

/// Installs one of the chart's policies, for these namespaces only. `value` is the chart value (`KEY=VALUE`) that
/// enables the policy.
pub async fn install(case: &Case, value: &str, policy: &str, namespaces: &[&str]) -> Result<()> {
    let selector = json!({"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces},
    ]});
    install_where(case, value, policy, &selector).await
}

/// Like [`install`], but for the namespaces that a selector selects.
pub async fn install_where(case: &Case, value: &str, policy: &str, selector: &Value) -> Result<()> {
    let mut objects = rendered(case, &release(case), value).await?;
    let name = format!("{}-{policy}", release(case));
    objects.retain(|it| it["metadata"]["name"] == name.as_str());
    ensure!(objects.len() == 2, "{objects:#?}");
    for binding in objects.iter_mut().filter(|it| it["spec"]["policyName"].is_string()) {
        binding["spec"]["matchResources"] = json!({"namespaceSelector": selector});
    }
    case.plane().apply(&objects).await
}

/// Removes one of the chart's policies.
pub async fn uninstall(case: &Case, policy: &str) -> Result<()> {
    let policy = format!("{}-{policy}", release(case));
    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        case.plane().kubectl(&["delete", kind, &policy], "").await?;
    }
    Ok(())
}

//! Policies of the cluster that get in the operator's way, as those of platform teams and meshes do: they refuse what it
//! writes in a test's namespace, or change what is created there.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::policy::release;
use crate::case::Case;

const VERSION: &str = "admissionregistration.k8s.io/v1";
/// What a refusal says.
pub const REFUSED: &str = "not allowed here";

/// Requests: a group, a resource (which may have a subresource), and operations.
pub type Requests = (&'static str, &'static str, &'static [&'static str]);

/// A policy in force.
pub struct Interference {
    kind: &'static str,
    name: String,
}

impl Interference {
    /// Refuses these requests of the test's operator.
    pub async fn refuse(case: &Case, requests: Requests) -> Result<Self> {
        Self::refuse_where(case, requests, "true").await
    }

    /// Refuses those requests of the test's operator for which a condition holds, in CEL.
    pub async fn refuse_where(case: &Case, requests: Requests, condition: &str) -> Result<Self> {
        let expression = format!(
            "request.resource.resource != 'configmaps' && \
             (request.userInfo.username != '{}' || !({condition}))",
            case.operator.username()
        );
        let validation =
            json!({"expression": expression, "message": REFUSED, "reason": "Forbidden"});
        let this =
            Self { kind: "ValidatingAdmissionPolicy", name: format!("{}-no", release(case)) };
        let actions = json!({"validationActions": ["Deny"]});
        this.apply(case, requests, json!({"validations": [validation]}), actions).await?;
        case.eventually("the policy is in force", async || {
            let error = case.refused(&PROBE, &probe()).await?;
            ensure!(error.contains(REFUSED), "{error}");
            Ok(())
        })
        .await?;
        Ok(this)
    }

    /// Changes the objects of these requests, whatever client sends them: `patches` are the operations, in CEL.
    pub async fn change(case: &Case, requests: Requests, patches: &str) -> Result<Self> {
        let expression = format!(
            "request.resource.resource == 'configmaps' ? \
             [JSONPatch{{op: 'replace', path: '/data/probe', value: 'changed'}}] : ({patches})"
        );
        let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
        let spec = json!({"reinvocationPolicy": "Never", "mutations": [mutation]});
        let this = Self { kind: "MutatingAdmissionPolicy", name: format!("{}-yes", release(case)) };
        this.apply(case, requests, spec, json!({})).await?;
        this.until_changed(case, "changed").await?;
        Ok(this)
    }

    /// Removes the policy, and waits until it is no longer in force.
    pub async fn end(self, case: &Case) -> Result<()> {
        for kind in [format!("{}Binding", self.kind), self.kind.to_owned()] {
            case.plane().kubectl(&["delete", &kind, &self.name], "").await?;
        }
        self.until_changed(case, "unchanged").await
    }

    async fn until_changed(&self, case: &Case, expected: &str) -> Result<()> {
        case.eventually("the policy is in force, or no longer", async || {
            let stored = case.kubectl_with(&PROBE, &probe()).await?;
            ensure!(stored == expected, "{stored}");
            Ok(())
        })
        .await
    }

    /// Applies the policy. It also concerns the creation of ConfigMaps, which shows whether it is in force.
    async fn apply(
        &self,
        case: &Case,
        (group, resource, operations): Requests,
        mut spec: Value,
        mut binding: Value,
    ) -> Result<()> {
        let rule = |group: &str, resource: &str, operations: &[&str]| {
            json!({
                "apiGroups": [group], "apiVersions": ["*"], "operations": operations,
                "resources": [resource],
            })
        };
        let rules = [rule(group, resource, operations), rule("", "configmaps", &["CREATE"])];
        spec["matchConstraints"] = json!({"resourceRules": rules});
        binding["policyName"] = json!(self.name);
        binding["matchResources"] = json!({"namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": case.namespace},
        }});
        let object = |kind: String, spec: Value| json!({"apiVersion": VERSION, "kind": kind, "metadata": {"name": self.name}, "spec": spec});
        let policy = object(self.kind.to_owned(), spec);
        let binding = object(format!("{}Binding", self.kind), binding);
        case.plane().apply(&[policy, binding]).await
    }
}

const PROBE: [&str; 4] = ["create", "--dry-run=server", "-o=jsonpath={.data.probe}", "-f=-"];

fn probe() -> String {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"},
        "data": {"probe": "unchanged"},
    });
    map.to_string()
}

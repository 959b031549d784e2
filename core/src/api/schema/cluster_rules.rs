//! Schemas and CEL rules of Clusters.

use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::rules::rule;

/// No credentials of machines may be stored in a Cluster.
pub(crate) fn no_credentials() -> Vec<Rule> {
    let fields = ["password", "privateKey", "passPhrase"];
    let refused = fields.map(|field| {
        let message = format!(
            "remove {field}: it is not needed, because scripts run as Jobs on the nodes, and all users who \
             may read the Cluster could read it"
        );
        rule(field, format!("!has(self.{field})"), message)
    });
    refused.into()
}

/// A relative path in a source of files.
pub(crate) fn relative_path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 512,
        "x-kubernetes-validations": [rule(
            "",
            // The linter evaluates rules without Kubernetes' own functions, such as split.
            "!self.startsWith('/') && !self.endsWith('/') && !self.contains('//') && \
             !self.contains('{{') && !('/' + self + '/').contains('/../') && \
             !('/' + self + '/').contains('/./')",
            "must be a path such as hooks/pre-install: no / at either end, no //, no {{, and no part that is . or ..",
        )],
    })
}

/// A path on a node.
pub(crate) fn node_path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 2,
        "maxLength": 512,
        "x-kubernetes-validations": [rule(
            "",
            "self.startsWith('/') && !self.endsWith('/') && !self.contains('//') && \
             !self.contains(' ') && !self.contains('{{') && !(self + '/').contains('/../') && \
             !(self + '/').contains('/./')",
            "must be an absolute path such as /tmp/hooks/pre-install: no / at the end, no //, no blanks, no {{, and \
             no part that is . or ..",
        )],
    })
}

/// The labels of the nodes on which scripts run; the default is every Linux node.
pub(crate) fn node_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {"type": "string", "maxLength": 63},
        "default": json!({"kubernetes.io/os": "linux"}),
    })
}

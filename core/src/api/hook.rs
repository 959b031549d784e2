//! A workload's reference to a hook: a HookTemplate and its arguments.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// An argument: a name and its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookArgument {
    /// Name that `{{ args.NAME }}` refers to.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Value passed to the HookRun.
    #[schemars(length(max = 65536))]
    pub value: String,
}

/// A HookTemplate to run, and the arguments for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookStep {
    /// Name of a HookTemplate in the workload's namespace.
    #[schemars(schema_with = "schema::template_name")]
    pub template_name: String,
    /// Arguments for the template, in addition to those that the operator sets.
    #[schemars(length(max = 256), transform = schema::merged_by("name"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<HookArgument>,
}

/// A hook at one point in a pod's life (before deletion, before or after an in-place update).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodHookStrategy {
    /// The hook; without one, nothing is delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<HookStep>,
    /// Set to true to retry failed hooks at this point; the operator resets it to false.
    #[serde(default)]
    pub retry: bool,
}

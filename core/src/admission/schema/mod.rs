//! The API server's validation against the CRDs, offline and with its messages.
//!
//! The order is that of the API server: nulls and defaults, types and bounds, and then the rules, which are only
//! meaningful if the types are right. Rules about changes are skipped.

mod bounds;
mod defaults;
mod rules;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::Finding;
use crate::api::crds;

pub(super) use defaults::complete;

/// The schema of each kind.
static KINDS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let kinds = crds().into_iter().filter_map(|crd| {
        let kind = crd.spec.names.kind;
        let validation = crd.spec.versions.into_iter().next()?.schema?;
        let schema = serde_json::to_value(validation.open_api_v3_schema?).ok()?;
        Some((kind, schema))
    });
    kinds.collect()
});

/// Checks objects against the schemas of all kinds, and keeps the compiled rules.
#[derive(Default)]
pub struct Schemas {
    rules: rules::Rules,
}

/// The fields of an object that are not in its schema.
pub fn unknown_fields(kind: &str, object: &Value) -> Vec<Finding> {
    let schema = KINDS.get(kind);
    schema.map_or_else(Vec::new, |schema| defaults::unknown_fields(schema, object))
}

/// The unknown fields in Jobs, volume claims and sidecars. The API server stores them, but later refuses the Job or
/// claim, or drops the field. The findings are warnings, because the cluster may be newer. Pod templates are not
/// checked here, because the webhook tries them in a dry run.
pub(super) fn unknown_in_core_types(kind: &str, object: &Value) -> Vec<Finding> {
    let unknown = unknown_fields(kind, object).into_iter();
    let checked = unknown.filter(|it| defaults::is_in_core_type_outside_template(&it.field));
    checked.map(Finding::as_warning).collect()
}

impl Schemas {
    /// The errors that the API server would return if the object were created. Sets the object's defaults.
    pub fn check(&self, kind: &str, object: &mut Value) -> Vec<Finding> {
        let Some(schema) = KINDS.get(kind) else {
            return Vec::new();
        };
        let mut findings = defaults::unknown_fields(schema, object);
        complete(schema, object);
        let mut bounds = bounds::Bounds::default();
        bounds.check(schema, object, "");
        findings.append(&mut bounds.findings);
        if !bounds.skips_rules {
            self.rules.check(schema, object, "", &mut findings);
        }
        findings
    }
}

/// The path of a field of the object at `path`.
fn below(path: &str, field: &str) -> String {
    match path {
        "" => field.to_owned(),
        path => format!("{path}.{field}"),
    }
}

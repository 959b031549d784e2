//! What the API server itself refuses, offline: the schemas and rules of our own CRDs, in its words.
//!
//! It goes the server's way: nulls and defaults first, then types and bounds; the rules only when
//! those hold, because a rule on a field of another type would say nothing of use. What a rule says
//! about changes is left out: a file has no past.

mod bounds;
mod defaults;
mod rules;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::Finding;
use crate::api::crds;

pub use defaults::complete;

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

/// The schemas of all kinds, with the rules in them.
#[derive(Default)]
pub struct Schemas {
    rules: rules::Rules,
}

/// Fields of an object that its schema does not know, told as the linter tells them.
pub fn unknown_fields(kind: &str, object: &Value) -> Vec<Finding> {
    let schema = KINDS.get(kind);
    schema.map_or_else(Vec::new, |schema| defaults::unknown_fields(schema, object))
}

/// Those that the API server stores all the same, in Jobs and volume claims: the operator would be
/// refused for them when it makes one. A warning, because the cluster may know more than we do. Pod
/// templates of workloads are not looked at: the cluster is asked about those.
pub(super) fn unknown_to_us(kind: &str, object: &Value) -> Vec<Finding> {
    let unknown = unknown_fields(kind, object).into_iter();
    let kept = unknown.filter(|it| defaults::is_of_job_or_claim(&it.field));
    kept.map(Finding::as_warning).collect()
}

impl Schemas {
    /// What the API server would say to an object when it is created. The object gets its defaults,
    /// as it would there. Evaluates rules, so the operator calls it on its evaluation pool.
    pub fn check(&self, kind: &str, object: &mut Value) -> Vec<Finding> {
        let Some(schema) = KINDS.get(kind) else {
            return Vec::new();
        };
        let mut findings = defaults::unknown_fields(schema, object);
        complete(schema, object);
        let mut bounds = bounds::Bounds::default();
        bounds.check(schema, object, "");
        findings.append(&mut bounds.findings);
        if !bounds.hides_rules {
            self.rules.check(schema, object, "", &mut findings);
        }
        findings
    }
}

/// The path of a field in an object.
fn below(path: &str, field: &str) -> String {
    match path {
        "" => field.to_owned(),
        path => format!("{path}.{field}"),
    }
}

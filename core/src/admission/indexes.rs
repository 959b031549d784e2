//! Indexes of a GameDeployment's pods: their range, and environment variables that conflict with them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Finding;
use crate::api::names::{INDEX_ENV, INDEX_ON, INDEX_RANGE};
use crate::api::{GameDeployment, IndexRange};
use crate::workload::Workload;

/// The findings about the indexes of a GameDeployment's pods.
pub(super) fn check_deployment(workload: &GameDeployment) -> Vec<Finding> {
    let none = BTreeMap::new();
    let annotations = workload.metadata.annotations.as_ref().unwrap_or(&none);
    match IndexRange::of(annotations) {
        Ok(None) => invalid_switch(annotations).into_iter().collect(),
        Ok(Some(range)) => {
            let mut findings = check_environment(&workload.spec.template.parse());
            findings.extend(too_few(workload, range));
            findings
        }
        Err(why) => {
            let field = format!("metadata.annotations.{INDEX_RANGE}");
            vec![match annotations.get(INDEX_RANGE) {
                Some(range) => Finding::invalid(field, range, why),
                None => Finding::error(field, format!("Required value: {why}")),
            }]
        }
    }
}

/// Finds a value that is neither "true" nor "false" in the annotation that turns indexes on.
fn invalid_switch(annotations: &BTreeMap<String, String>) -> Option<Finding> {
    let value = annotations.get(INDEX_ON).filter(|value| *value != "false")?;
    let field = format!("metadata.annotations.{INDEX_ON}");
    Some(Finding::invalid(field, value, "only \"true\" gives pods an index").as_warning())
}

/// Finds a range with fewer indexes than pods: some pods would never be created.
fn too_few(workload: &GameDeployment, range: IndexRange) -> Option<Finding> {
    let resolved = Workload::of_game_deployment(workload).ok()?;
    let pods = resolved.replicas + resolved.max_surge;
    let field = format!("metadata.annotations.{INDEX_RANGE}");
    let message = format!(
        "Invalid value: the range has {} indexes, fewer than replicas + maxSurge ({pods}): pods without an index \
        are not created",
        range.count()
    );
    (pods > i64::from(range.count())).then(|| Finding::error(field, message).as_warning())
}

/// Finds environment variables of the template that the operator overwrites with the index.
fn check_environment(template: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in items(&template["spec"][list]) {
            for (number, variable) in items(&container["env"]) {
                if variable["name"] == INDEX_ENV {
                    let field = format!("spec.template.spec.{list}[{index}].env[{number}].name");
                    let fix = "is set to the pod's index by the operator; remove it";
                    findings.push(Finding::invalid(field, INDEX_ENV, fix).as_warning());
                }
            }
        }
    }
    findings
}

fn items(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

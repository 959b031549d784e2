//! The CustomResourceDefinitions, as printed by `gamekeeper crds` and stored in `crds/`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSON, JSONSchemaProps,
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::json;

use crate::api::{Cluster, GameDeployment, GameStatefulSet, HookRun, HookTemplate, SidecarSet};

/// A column of `kubectl get`: header, type and JSON path.
type Column = (&'static str, &'static str, &'static str);

/// Columns of both kinds of workload; the headers are those of bk-bcs' GameDeployment.
const WORKLOAD: [Column; 6] = [
    ("DESIRED", "integer", ".spec.replicas"),
    ("UPDATED", "integer", ".status.updatedReplicas"),
    ("UPDATED_READY", "integer", ".status.updatedReadyReplicas"),
    ("READY", "integer", ".status.readyReplicas"),
    ("TOTAL", "integer", ".status.replicas"),
    AGE,
];
/// Additional columns of both kinds of workload with `-o wide`.
const WORKLOAD_WIDE: [Column; 8] = [
    ("STATUS", "string", ".status.conditions[?(@.type==\"Ready\")].reason"),
    ("WHY", "string", ".status.causes[0].reason"),
    ("ACTIVE", "integer", ".status.activeReplicas"),
    ("AVAILABLE", "integer", ".status.availableReplicas"),
    ("STRATEGY", "string", ".spec.updateStrategy.type"),
    ("PAUSED", "boolean", ".spec.updateStrategy.paused"),
    ("STEP", "integer", ".status.currentStepIndex"),
    ("REVISION", "string", ".status.updateRevision"),
];
/// Columns of a SidecarSet; the headers are those of OpenKruise.
const SIDECAR_SET: [Column; 4] = [
    ("MATCHED", "integer", ".status.matchedPods"),
    ("UPDATED", "integer", ".status.updatedPods"),
    ("READY", "integer", ".status.readyPods"),
    AGE,
];
/// Additional columns of a SidecarSet with `-o wide`.
const SIDECAR_SET_WIDE: [Column; 3] = [
    ("UPDATED_READY", "integer", ".status.updatedReadyPods"),
    ("UNINJECTED", "integer", ".status.uninjectedPods"),
    ("REVISION", "string", ".status.latestRevision"),
];
/// Columns of Clusters.
const CLUSTER: [Column; 5] = [
    PHASE,
    ("NODES", "integer", ".status.nodes"),
    ("INSTALLED", "integer", ".status.installedNodes"),
    ("FIRST_MASTER", "string", ".status.firstMaster"),
    AGE,
];
const PHASE: Column = ("PHASE", "string", ".status.phase");
const AGE: Column = ("AGE", "date", ".metadata.creationTimestamp");

/// The CustomResourceDefinitions of all kinds.
pub fn crds() -> [CustomResourceDefinition; 6] {
    [
        crd::<Cluster>(&CLUSTER, &[]),
        crd::<GameDeployment>(&WORKLOAD, &WORKLOAD_WIDE),
        crd::<GameStatefulSet>(&WORKLOAD, &WORKLOAD_WIDE),
        crd::<HookRun>(&[PHASE, AGE], &[("MESSAGE", "string", ".status.message")]),
        crd::<HookTemplate>(&[AGE], &[]),
        crd::<SidecarSet>(&SIDECAR_SET, &SIDECAR_SET_WIDE),
    ]
}

fn crd<K: CustomResourceExt>(columns: &[Column], wide: &[Column]) -> CustomResourceDefinition {
    let mut crd = K::crd();
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(
            columns
                .iter()
                .map(|column| printer_column(column, None))
                .chain(wide.iter().map(|column| printer_column(column, Some(1))))
                .collect(),
        );
        if let Some(validation) = &mut version.schema
            && let Some(schema) = &mut validation.open_api_v3_schema
        {
            drop_nullable(schema);
            let properties = schema.properties.iter_mut();
            let status = properties.flat_map(|it| it.get_mut("status"));
            status.for_each(default_to_unobserved);
        }
    }
    crd
}

fn printer_column(
    (name, type_, json_path): &Column,
    priority: Option<i32>,
) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: (*name).to_owned(),
        type_: (*type_).to_owned(),
        json_path: (*json_path).to_owned(),
        priority,
        ..Default::default()
    }
}

/// Lets a new object have an observed generation that is not its own, so that kstatus waits for the operator.
fn default_to_unobserved(status: &mut JSONSchemaProps) {
    status.default = Some(JSON(json!({})));
    let mut properties = status.properties.iter_mut();
    if let Some(observed) = properties.find_map(|it| it.get_mut("observedGeneration")) {
        observed.default = Some(JSON(json!(-1)));
    }
}

/// Removes `nullable`, which the derive sets on each optional field. Where a field is not nullable, the API server drops
/// a null such as `replicas: null` and applies the default, as it does for its own kinds. Kubernetes' own types have no
/// defaults here, and keep theirs.
fn drop_nullable(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    let is_selector = schema.x_kubernetes_map_type.is_some();
    if is_selector || schema.x_kubernetes_preserve_unknown_fields == Some(true) {
        return;
    }
    schema
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
        .for_each(drop_nullable);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        drop_nullable(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        drop_nullable(values);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// `kubectl apply` stores the whole object in an annotation of at most 256 KiB.
    const LARGEST: usize = 256 * 1024;

    #[test]
    fn the_crd_files_match_the_types() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let files = |plural: &str| {
            // The chart has its own copy, because a chart can read only files inside it.
            ["crds", "charts/gamekeeper/files/crds"]
                .map(|folder| top.join(folder).join(format!("{plural}.yaml")))
        };
        for crd in crds() {
            let wanted = format!(
                "# Generated by `make crds` from core/src/api; do not edit.\n{}",
                serde_yaml_ng::to_string(&crd).expect("a CRD is YAML")
            );
            for file in files(&crd.spec.names.plural) {
                check_or_write(&file, &wanted);
            }
        }
    }

    fn check_or_write(file: &Path, wanted: &str) {
        if std::env::var_os("WRITE_CRDS").is_some() {
            std::fs::write(file, wanted).expect("the file can be written");
        } else {
            let found = std::fs::read_to_string(file).unwrap_or_default();
            assert!(
                found == wanted,
                "{} does not match the types: run `make crds` and commit the result",
                file.display()
            );
        }
    }

    #[test]
    fn each_crd_is_small_enough_for_client_side_apply() {
        for crd in crds() {
            let size = serde_json::to_vec(&crd).expect("a CRD is JSON").len();
            assert!(size < LARGEST, "{}: {size} bytes", crd.spec.names.plural);
        }
    }
}

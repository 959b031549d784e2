//! Clusters: problems with files, hooks and machines, and fields of TKEStack's manifests that have no effect here.

use super::Finding;
use crate::api::ClusterSpec;
use crate::lifecycle::problems;

pub(super) fn check_cluster(spec: &ClusterSpec) -> Vec<Finding> {
    let problems = problems(spec).into_iter();
    let mut findings: Vec<Finding> =
        problems.map(|it| Finding::invalid(it.field, &it.value, it.fix)).collect();
    for (field, is_set) in [
        ("spec.clusterCIDR", spec.cluster_cidr.is_some()),
        ("spec.type", spec.type_.is_some()),
        ("spec.tenantID", spec.tenant_id.is_some()),
    ] {
        findings.extend(is_set.then(|| without_effect(field.to_owned())));
    }
    for (index, machine) in spec.machines.iter().enumerate() {
        for (field, is_set) in
            [("port", machine.port.is_some()), ("username", machine.username.is_some())]
        {
            let field = format!("spec.machines[{index}].{field}");
            findings.extend(is_set.then(|| without_effect(field)));
        }
    }
    findings
}

fn without_effect(field: String) -> Finding {
    let message = "has no effect: scripts run as Jobs on the nodes, and the operator does not install Kubernetes";
    Finding::error(field, message).as_warning()
}

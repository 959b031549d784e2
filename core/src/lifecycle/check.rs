//! Errors in a Cluster that its CRD cannot detect. Admission reports them, and no script starts while there are any.

use std::fmt;
use std::net::IpAddr;

use super::paths::{Volume, is_copied, origin};
use crate::api::{ClusterSpec, LifecycleStep};

/// An invalid field, and its fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterProblem {
    /// The field, as in `spec.features.files[0].dst`.
    pub field: String,
    /// Its value.
    pub value: String,
    /// The fix.
    pub fix: String,
}

impl fmt::Display for ClusterProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, fix } = self;
        write!(f, "{field}: Invalid value: {value:?}: {fix}")
    }
}

/// All problems of a spec.
pub fn problems(spec: &ClusterSpec) -> Vec<ClusterProblem> {
    let mut problems = machines(spec);
    problems.extend(files(spec));
    problems.extend(hooks(spec));
    problems
}

fn machines(spec: &ClusterSpec) -> Vec<ClusterProblem> {
    let machines = spec.machines.iter().enumerate();
    let wrong = machines.filter(|(_, machine)| machine.ip.parse::<IpAddr>().is_err());
    wrong
        .map(|(index, machine)| ClusterProblem {
            field: format!("spec.machines[{index}].ip"),
            value: machine.ip.clone(),
            fix: "must be an IP address of a node, such as 10.0.0.9".to_owned(),
        })
        .collect()
}

/// Problems of files: a src that names a ConfigMap with an invalid name, or a path with directories in a ConfigMap. A
/// ConfigMap has keys, but no directories.
fn files(spec: &ClusterSpec) -> Vec<ClusterProblem> {
    let features = &spec.features;
    let files = features.files.iter().enumerate();
    files
        .filter_map(|(index, file)| {
            let origin = origin(features, &file.src);
            let fix = match origin.volume {
                Volume::ConfigMap(name) if !is_object_name(name) => format!(
                    "{name:?} cannot be the name of a ConfigMap; write a name in lower case, or add a source \
                     with this path to spec.features.sources"
                ),
                Volume::ConfigMap(name) if origin.path.contains('/') => format!(
                    "ConfigMap {name} has no directories; write {name}/KEY, or add a source with a longer path \
                     to spec.features.sources"
                ),
                _ => return None,
            };
            Some(ClusterProblem {
                field: format!("spec.features.files[{index}].src"),
                value: file.src.clone(),
                fix,
            })
        })
        .collect()
}

fn is_object_name(name: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = |c: char| is_alphanumeric(c) || c == '-' || c == '.';
    name.len() <= 253
        && name.chars().all(fits)
        && name.starts_with(is_alphanumeric)
        && name.ends_with(is_alphanumeric)
}

/// Problems of hooks: each must run a file that is copied.
fn hooks(spec: &ClusterSpec) -> Vec<ClusterProblem> {
    let features = &spec.features;
    let commands =
        LifecycleStep::all().filter_map(|step| Some((step, step.command(&features.hooks)?)));
    commands
        .filter_map(|(step, command)| {
            let program = command.split_whitespace().next().unwrap_or_default();
            let fix = if program.is_empty() {
                "must begin with the path of a script; remove the hook if there is none"
            } else if command.contains("{{") {
                "must not contain {{; pass values as labels or annotations of the Cluster"
            } else if !is_copied(features, program) {
                "must begin with the dst of a file in spec.features.files or, if this dst is a directory, with \
                 the path of a file directly in it"
            } else {
                return None;
            };
            Some(ClusterProblem {
                field: format!("spec.features.hooks.{}", step.hook()),
                value: command.to_owned(),
                fix: fix.to_owned(),
            })
        })
        .collect()
}

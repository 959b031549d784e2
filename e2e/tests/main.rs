//! All end-to-end tests on simulated nodes, in one binary, so that they share one control plane.

use std::process::ExitCode;

mod admission;
mod api;
mod argo_cd;
mod autoscaling;
mod batches;
mod bk_bcs;
mod bk_bcs_fields;
mod canary;
mod chart;
mod chart_values;
mod container_order;
mod control_plane;
mod defaults;
mod examples;
mod first_hour;
mod gitops;
mod guard;
mod guard_actors;
mod guard_costs;
mod guard_crds;
mod guard_deletions;
mod guard_drains;
mod guard_evictions;
mod guard_histories;
mod guard_namespace;
mod guard_nodes;
mod guard_setup;
mod guard_uninstall;
mod histories;
mod hook_examples;
mod hook_exec;
mod hook_jobs;
mod hook_options;
mod hook_runs;
mod hook_servers;
mod hot_patch;
mod in_place;
mod indexes;
mod k9s;
mod kstatus;
mod kubectl;
mod kubelet;
mod late_writes;
mod leader;
mod lifecycle_hooks;
mod metrics;
mod migrated;
mod nothing_to_lose;
mod nulls;
mod on_delete;
mod other_writers;
mod ownership;
mod plugin;
mod pod_hooks;
mod process;
mod protection;
mod readiness_gate;
mod refused_changes;
mod revisions;
mod rolling;
mod run;
mod scaling;
mod sidecar_absence;
mod sidecar_annotations;
mod sidecar_creation;
mod sidecar_kills;
mod sidecar_revisions;
mod sidecar_updates;
mod sidecar_webhook;
mod sidecars;
mod situations;
mod stateful_hooks;
mod stateful_identity;
mod stateful_ordinals;
mod stateful_reserved;
mod stateful_updates;
mod stateful_volumes;
mod tenants;
mod unreadable;
mod view;
mod walkthroughs;
mod warnings;
mod yaml;

/// The modules with the longest tests come first, so that no long test is left for the end. The attacks of a tenant come after
/// those that start a control plane of their own: they need an API server that is not much slower than on a machine that does
/// nothing else.
const FIRST: [&str; 23] = [
    "chart::lifecycle::",
    "histories::",
    "first_hour::",
    "lifecycle_hooks::install::",
    "lifecycle_hooks::failures::",
    "lifecycle_hooks::interruptions::",
    "lifecycle_hooks::upgrades::",
    "lifecycle_hooks::chart::",
    "sidecar_updates::",
    "sidecar_kills::",
    "admission::",
    "guard_crds::",
    "plugin::",
    "view::",
    "situations::",
    "leader::",
    "metrics::",
    "examples::",
    "walkthroughs::hooks::",
    "walkthroughs::canary::",
    "walkthroughs::crowded::",
    "guard_histories::",
    "tenants::",
];

fn main() -> anyhow::Result<ExitCode> {
    let mut tests = e2e::trial::all();
    let position = |name: &str| FIRST.iter().position(|module| name.starts_with(module));
    tests.sort_by_key(|test| position(test.name()).unwrap_or(FIRST.len()));
    e2e::areas::keep_selected(&mut tests)?;
    e2e::trial::main(tests)
}

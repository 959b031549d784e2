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

fn main() -> anyhow::Result<ExitCode> {
    let tests = [
        // The modules with the longest tests come first, so that no long test is left for the end.
        chart::lifecycle::tests(),
        histories::tests(),
        first_hour::tests(),
        lifecycle_hooks::tests(),
        tenants::tests(),
        sidecar_updates::tests(),
        sidecar_kills::tests(),
        admission::tests(),
        guard_crds::tests(),
        plugin::tests(),
        view::tests(),
        situations::tests(),
        leader::tests(),
        metrics::tests(),
        examples::tests(),
        walkthroughs::hooks::tests(),
        walkthroughs::canary::tests(),
        walkthroughs::crowded::tests(),
        guard_histories::tests(),
        // All others.
        autoscaling::tests(),
        bk_bcs_fields::tests(),
        bk_bcs::tests(),
        canary::tests(),
        chart::tests(),
        chart::deleted_namespace::tests(),
        chart::ipv6::tests(),
        chart::names::tests(),
        chart::platform::tests(),
        chart::removal::tests(),
        chart::rendered::tests(),
        chart::settings::tests(),
        chart::sidecars::tests(),
        chart::unguard::tests(),
        chart::users::tests(),
        chart_values::tests(),
        pod_hooks::tests(),
        nothing_to_lose::tests(),
        hook_runs::tests(),
        hook_options::tests(),
        hook_jobs::tests(),
        hook_exec::tests(),
        hook_examples::tests(),
        hook_servers::tests(),
        in_place::tests(),
        container_order::tests(),
        defaults::tests(),
        nulls::tests(),
        indexes::tests(),
        hot_patch::tests(),
        readiness_gate::tests(),
        refused_changes::tests(),
        rolling::tests(),
        on_delete::tests(),
        scaling::tests(),
        sidecar_absence::tests(),
        sidecar_annotations::tests(),
        sidecar_creation::tests(),
        sidecar_revisions::tests(),
        sidecar_webhook::tests(),
        sidecars::tests(),
        batches::tests(),
        other_writers::tests(),
        ownership::tests(),
        stateful_ordinals::tests(),
        stateful_updates::tests(),
        stateful_hooks::tests(),
        stateful_volumes::tests(),
        stateful_reserved::tests(),
        stateful_identity::tests(),
        unreadable::tests(),
        revisions::tests(),
        argo_cd::tests(),
        control_plane::tests(),
        k9s::tests(),
        kstatus::tests(),
        kubectl::tests(),
        process::tests(),
        late_writes::tests(),
        protection::tests(),
        guard::tests(),
        guard_actors::tests(),
        guard_deletions::tests(),
        guard_drains::tests(),
        guard_costs::tests(),
        guard_evictions::tests(),
        guard_namespace::tests(),
        guard_nodes::tests(),
        guard_uninstall::tests(),
        migrated::tests(),
        api::tests(),
        gitops::tests(),
        warnings::tests(),
        yaml::tests(),
        kubelet::tests(),
    ];
    let mut tests = tests.into_iter().flatten().collect();
    e2e::areas::keep_selected(&mut tests)?;
    e2e::trial::main(tests)
}

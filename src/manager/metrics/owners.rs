//! The workloads that there are, gathered once for a page: what is shown or counted is of these alone.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::cache::{Cache, Cached, Reflector};
use crate::controller::RunOwner;
use gamekeeper_core::api::HookRun;
use gamekeeper_core::api::names::WorkloadKind;

/// Uids by name, by namespace.
type Uids = HashMap<String, HashMap<String, String>>;

pub(super) struct Owners {
    game_deployments: Uids,
    game_stateful_sets: Uids,
    /// Namespaces in which there are HookRuns.
    with_runs: BTreeSet<String>,
}

fn uids<T: Cached>(reflector: &Reflector<T>) -> Uids {
    let mut uids = Uids::new();
    for it in reflector.store().all() {
        let of_namespace = uids.entry(it.namespace().to_owned()).or_default();
        of_namespace.insert(it.name().to_owned(), it.uid().to_owned());
    }
    uids
}

impl Owners {
    pub(super) fn of(cache: &Cache) -> Self {
        let runs = cache.hook_runs.store().all();
        Self {
            game_deployments: uids(&cache.game_deployments),
            game_stateful_sets: uids(&cache.game_stateful_sets),
            with_runs: runs.iter().map(|run| run.namespace().to_owned()).collect(),
        }
    }

    fn uid(&self, kind: WorkloadKind, namespace: &str, name: &str) -> Option<&String> {
        let uids = match kind {
            WorkloadKind::GameDeployment => &self.game_deployments,
            WorkloadKind::GameStatefulSet => &self.game_stateful_sets,
        };
        uids.get(namespace)?.get(name)
    }

    /// Whether there is a workload of this name.
    pub(super) fn has_name(&self, kind: WorkloadKind, namespace: &str, name: &str) -> bool {
        self.uid(kind, namespace, name).is_some()
    }

    /// Whether there is the workload that an owner reference means.
    pub(super) fn has(&self, kind: WorkloadKind, namespace: &str, owner: &OwnerReference) -> bool {
        self.uid(kind, namespace, &owner.name) == Some(&owner.uid)
    }

    pub(super) fn owner(&self, run: &HookRun) -> RunOwner {
        RunOwner::of(run, |kind, namespace, owner| {
            self.has(kind, namespace, owner)
        })
    }

    /// All that may be an owner of runs, or of none.
    pub(super) fn owners(&self) -> BTreeSet<RunOwner> {
        let of_kind = |kind: WorkloadKind, uids: &Uids, owners: &mut BTreeSet<RunOwner>| {
            for (namespace, names) in uids {
                owners.extend(
                    names
                        .keys()
                        .map(|name| RunOwner::workload(kind, namespace, name)),
                );
            }
        };
        let mut owners = BTreeSet::new();
        of_kind(
            WorkloadKind::GameDeployment,
            &self.game_deployments,
            &mut owners,
        );
        of_kind(
            WorkloadKind::GameStatefulSet,
            &self.game_stateful_sets,
            &mut owners,
        );
        owners.extend(self.with_runs.iter().map(|namespace| RunOwner {
            namespace: namespace.clone(),
            owner: String::new(),
        }));
        owners
    }
}

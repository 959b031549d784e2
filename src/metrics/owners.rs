//! The existing workloads: only these have series.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::kinds::Cache;
use crate::reconcile::RunOwner;
use crate::runtime::reflector::Reflector;
use crate::runtime::store::Cached;
use gamekeeper_core::api::HookRun;
use gamekeeper_core::api::names::WorkloadKind;

/// Uids by namespace, then by name.
type Uids = HashMap<String, HashMap<String, String>>;

pub(super) struct Owners {
    game_deployments: Uids,
    game_stateful_sets: Uids,
    /// Namespaces that have HookRuns.
    with_runs: BTreeSet<String>,
}

fn uids<T: Cached>(reflector: &Reflector<T>) -> Uids {
    let mut uids = Uids::new();
    for object in reflector.store().all() {
        let by_name = uids.entry(object.namespace().to_owned()).or_default();
        by_name.insert(object.name().to_owned(), object.uid().to_owned());
    }
    uids
}

impl Owners {
    pub(super) fn read(cache: &Cache) -> Self {
        let runs = cache.hook_runs.store().all();
        Self {
            game_deployments: uids(&cache.game_deployments),
            game_stateful_sets: uids(&cache.game_stateful_sets),
            with_runs: runs.iter().map(|run| run.namespace().to_owned()).collect(),
        }
    }

    fn uids(&self, kind: WorkloadKind) -> &Uids {
        match kind {
            WorkloadKind::GameDeployment => &self.game_deployments,
            WorkloadKind::GameStatefulSet => &self.game_stateful_sets,
        }
    }

    fn uid(&self, kind: WorkloadKind, namespace: &str, name: &str) -> Option<&String> {
        self.uids(kind).get(namespace)?.get(name)
    }

    pub(super) fn has_name(&self, kind: WorkloadKind, namespace: &str, name: &str) -> bool {
        self.uid(kind, namespace, name).is_some()
    }

    pub(super) fn has(&self, kind: WorkloadKind, namespace: &str, owner: &OwnerReference) -> bool {
        self.uid(kind, namespace, &owner.name) == Some(&owner.uid)
    }

    pub(super) fn owner(&self, run: &HookRun) -> RunOwner {
        RunOwner::of(run, |kind, namespace, owner| self.has(kind, namespace, owner))
    }

    /// All possible owners of runs, including an empty owner for each namespace with runs.
    pub(super) fn owners(&self) -> BTreeSet<RunOwner> {
        let mut owners = BTreeSet::new();
        for kind in WorkloadKind::ALL {
            for (namespace, names) in self.uids(kind) {
                let names = names.keys();
                owners.extend(names.map(|name| RunOwner::workload(kind, namespace, name)));
            }
        }
        owners.extend(
            self.with_runs
                .iter()
                .map(|namespace| RunOwner { namespace: namespace.clone(), owner: String::new() }),
        );
        owners
    }
}

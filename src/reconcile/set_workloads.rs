//! What the plan of a SidecarSet reads about the workloads of its pods: which workloads hold updates back, and the
//! hooks of pods with a token.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use jiff::Timestamp;

use crate::kinds::{Cache, Whole};
use crate::runtime::reflector::Reflector;
use crate::runtime::store::Cached;
use gamekeeper_core::api::GameWorkload;
use gamekeeper_core::observed::Pod;
use gamekeeper_core::sidecar_set::{Held, MatchedPod, Sidecars, TokenHook};
use gamekeeper_core::workload::{token_hook, why_sidecars_are_held};

/// The workloads in the namespaces that a set reaches.
pub(super) struct SetWorkloads<'c> {
    cache: &'c Cache,
    set: &'c Sidecars,
    /// The workloads that hold updates back, by uid.
    held: HashMap<String, Arc<Held>>,
    /// The hooks of pods, by the uids of the workload and the pod. Read only for workloads with a pod that has a token.
    hooks: HashMap<String, HashMap<String, TokenHook>>,
}

impl<'c> SetWorkloads<'c> {
    pub(super) fn of(cache: &'c Cache, set: &'c Sidecars) -> Self {
        let mut held = HashMap::new();
        for (namespace, _) in cache.sidecars.reached_by(set) {
            held.extend(held_in(&cache.game_deployments, &namespace));
            held.extend(held_in(&cache.game_stateful_sets, &namespace));
        }
        Self { cache, set, held, hooks: HashMap::new() }
    }

    /// Adds whether the pod's workload holds updates back, and the pod's hook.
    pub(super) fn describe(&mut self, pod: &Pod, matched: &mut MatchedPod) {
        let Some(workload) = &pod.controller else {
            return;
        };
        matched.held = self.held.get(workload).cloned();
        let mark = pod.sidecars.get(&self.set.name);
        if mark.is_some_and(|mark| mark.allows(&self.set.revision)) {
            let hooks = self.hooks(&pod.namespace, workload);
            matched.hook = hooks.get(&pod.uid).copied().unwrap_or_default();
        }
    }

    fn hooks(&mut self, namespace: &str, workload: &str) -> &HashMap<String, TokenHook> {
        match self.hooks.entry(workload.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let runs = self.cache.hook_runs_of(namespace, workload);
                let hooks = runs.iter().filter_map(|run| {
                    let (pod, hook) = token_hook(&run.object, &self.set.revision)?;
                    Some((pod.to_owned(), hook))
                });
                unknown.insert(hooks.collect())
            }
        }
    }
}

fn held_in<K: GameWorkload>(
    workloads: &Reflector<Whole<K>>,
    namespace: &str,
) -> Vec<(String, Arc<Held>)> {
    let store = workloads.store();
    let workloads = store.in_namespace(namespace);
    let held = workloads.filter_map(|workload| {
        let held = why_sidecars_are_held(workload.object.as_ref())?;
        Some((workload.uid().to_owned(), Arc::new(held)))
    });
    held.collect()
}

/// Pods that have a token of the set, but are in namespaces that the set no longer reaches.
pub(super) fn deselected_pods(cache: &Cache, set: &Sidecars, now: Timestamp) -> Vec<MatchedPod> {
    let namespaces = cache.sidecars.not_reached_by(set).into_iter();
    let pods = namespaces.flat_map(|namespace| {
        // Only the references are copied while the store is locked.
        let pods: Vec<_> = cache.pods.store().in_namespace(&namespace).cloned().collect();
        let with_token = pods.iter().filter(|pod| {
            let marks = pod.own().map(|own| &own.sidecars);
            let mark = marks.and_then(|marks| marks.get(&set.name));
            mark.is_some_and(|mark| mark.token.is_some())
        });
        let matched = with_token.filter_map(|pod| pod.matched(set, false, now));
        matched.collect::<Vec<_>>()
    });
    pods.map(|pod| MatchedPod { deselected: true, ..pod }).collect()
}

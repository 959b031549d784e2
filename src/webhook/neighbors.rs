//! The stored objects on which the validity of a SidecarSet depends: workloads with which it conflicts, and its
//! revisions.

use std::collections::{BTreeMap, BTreeSet};

use super::review::{AdmissionRequest, concerns_spec};
use crate::kinds::Cache;
use gamekeeper_core::admission::{Neighbor, sidecar_set};
use gamekeeper_core::sidecar_set::Namespace;

/// Whether the request writes the spec of a SidecarSet. Only then is there anything to compare it with.
pub(super) fn concerns_sidecar_set(request: &AdmissionRequest) -> bool {
    concerns_spec(request) && sidecar_set(&request.object).is_some()
}

/// The maximum number of namespaces that are read for one request.
const MAX_READ: usize = 16;

/// What the review of a SidecarSet needs to know: the workloads that conflict with the set because both have a
/// container of the same name, the namespaces of these workloads, and the revisions of the set.
#[derive(Debug, Default)]
pub(super) struct Neighbors {
    pub workloads: Vec<Neighbor>,
    /// The workloads' namespaces, except those with unknown labels.
    pub namespaces: BTreeMap<String, Namespace>,
    /// The revisions of the set; None if this process does not know them.
    pub revisions: Option<Vec<String>>,
}

impl Neighbors {
    /// The neighbors of the SidecarSet in a request; none for other kinds.
    pub(super) fn of(request: &AdmissionRequest, cache: &Cache) -> Self {
        let set = sidecar_set(&request.object).filter(|_| concerns_spec(request));
        let Some(set) = set else {
            return Self::default();
        };
        let deployments = cache.game_deployments.store().all().into_iter();
        let stateful_sets = cache.game_stateful_sets.store().all().into_iter();
        let all = deployments
            .map(|it| Neighbor::of(it.object.as_ref()))
            .chain(stateful_sets.map(|it| Neighbor::of(it.object.as_ref())));
        let workloads: Vec<Neighbor> =
            all.filter(|it| it.conflicts_with(&set, cache.sidecars.policy())).collect();
        let names = workloads.iter().map(|it| it.namespace.as_str());
        let known = names.filter_map(|name| cache.sidecars.namespace(name));
        let namespaces = known.map(|it| (it.name.clone(), Namespace::clone(&it)));
        let is_ours = cache.sidecars.is_ours(&set);
        let revisions = is_ours.then(|| {
            let uid = set.metadata.uid.as_deref().unwrap_or_default();
            let revisions = cache.sidecars.revisions(uid).into_iter();
            revisions.map(|it| it.name.clone()).collect()
        });
        Self { revisions, namespaces: namespaces.collect(), workloads }
    }

    /// The workloads' namespaces with unknown labels, which are yet to be read. At most `MAX_READ`, so that the request
    /// is answered in time.
    pub(super) fn unknown_namespaces(&self) -> BTreeSet<String> {
        let names = self.workloads.iter().map(|it| &it.namespace);
        let unknown = names.filter(|name| !self.namespaces.contains_key(*name));
        let unknown: BTreeSet<String> = unknown.cloned().collect();
        unknown.into_iter().take(MAX_READ).collect()
    }
}

//! Invariant 7: the indexes of a GameDeployment's pods. A new pod gets the lowest index of the range that no other
//! pod has.
//!
//! A pod keeps its index until it no longer exists: a game server that is still shutting down may occupy what the index
//! stands for, such as a port. So Terminating and ended pods count, and so do orphans that are being adopted.
//! Expectations ensure that the cache shows all pods that this operator has created.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::api::names::{INDEX_ENV, INDEX_ID, INDEX_RANGE};
use crate::api::{IndexRange, Reason};
use crate::observed::Pod;
use crate::workload::decision::Blocked;
use crate::workload::spec::Workload;
use crate::workload::world::World;

/// The indexes of new pods.
pub(crate) struct Indexes<'a> {
    range: Result<Option<IndexRange>, Blocked>,
    world: &'a World,
    /// The indexes of existing pods.
    taken: HashSet<u32>,
    /// No index below this one is free.
    lowest: u32,
}

/// Why a pod does not get an index.
pub(crate) enum NoIndex {
    /// It gets one once pods that are being deleted no longer exist.
    Awaited(Blocked),
    /// It gets none until a user changes something.
    Blocked(Blocked),
}

impl<'a> Indexes<'a> {
    /// The indexes that no pod has.
    pub(crate) fn new(workload: &Workload, world: &'a World) -> Self {
        let range = match why_invalid(workload) {
            Some(blocked) => Err(blocked),
            None => Ok(workload.indexes.clone().unwrap_or_default()),
        };
        let taken = match range {
            Ok(Some(_)) => pods_whose_index_counts(world).filter_map(|pod| pod.index).collect(),
            _ => HashSet::new(),
        };
        Self { range, world, taken, lowest: 0 }
    }

    /// The index of the next new pod; None if pods have no indexes.
    ///
    /// # Errors
    /// If no index is free, so the pod cannot be created now.
    pub(crate) fn take(&mut self) -> Result<Option<u32>, NoIndex> {
        let Some(range) = self.range.clone().map_err(NoIndex::Blocked)? else {
            return Ok(None);
        };
        let mut candidates = self.lowest.max(range.start)..range.end;
        let Some(free) = candidates.find(|index| !self.taken.contains(index)) else {
            return Err(self.exhausted(range));
        };
        self.lowest = free + 1;
        debug_assert!(range.contains(free), "invariant 7");
        Ok(Some(free))
    }

    fn exhausted(&self, range: IndexRange) -> NoIndex {
        let IndexRange { start, end } = range;
        let has_index = |pod: &&Pod| pod.index.is_some_and(|index| range.contains(index));
        let pods = pods_whose_index_counts(self.world).filter(has_index);
        let ending = pods.filter(|pod| pod.terminating || pod.ended()).count();
        let last = end - 1;
        let blocked = |message| Blocked { reason: Reason::PodIndexExhausted, message };
        match ending {
            0 => NoIndex::Blocked(blocked(format!(
                "all indexes from {start} to {last} are in use, so no more pods are created; set a larger range in \
                annotation {INDEX_RANGE}, or reduce replicas"
            ))),
            1 => NoIndex::Awaited(blocked(format!(
                "all indexes from {start} to {last} are in use; the next one becomes free when a pod has been deleted"
            ))),
            more => NoIndex::Awaited(blocked(format!(
                "all indexes from {start} to {last} are in use; the next ones become free when {more} pods have been deleted"
            ))),
        }
    }
}

/// Pods whose index counts. An orphan that has ended is left out, because a GameDeployment never adopts it.
fn pods_whose_index_counts(world: &World) -> impl Iterator<Item = &Pod> {
    let pods = world.pods.iter().map(AsRef::as_ref);
    pods.filter(|pod: &&Pod| pod.controller.is_some() || !pod.ended())
}

/// Why no pod may be created or recreated while the range is invalid.
pub(crate) fn why_invalid(workload: &Workload) -> Option<Blocked> {
    let why = workload.indexes.as_ref().err()?;
    Some(Blocked {
        reason: Reason::PodIndexInvalid,
        message: format!(
            "annotation {INDEX_RANGE} {why}; no pod is created or recreated until it is fixed"
        ),
    })
}

/// Gives a pod its index, in an annotation and in the environment of all its containers.
pub(crate) fn set(index: u32, pod: &mut Value) {
    pod["metadata"]["annotations"][INDEX_ID] = json!(index.to_string());
    for list in ["initContainers", "containers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            set_in_container(index, container);
        }
    }
}

/// Sets the variable in a container. If the template has a variable of that name, it is replaced in place, because only
/// later variables can refer to it.
fn set_in_container(index: u32, container: &mut Value) {
    let variable = json!({"name": INDEX_ENV, "value": index.to_string()});
    let is_ours = |it: &Value| it["name"] == INDEX_ENV;
    let mut env = container["env"].as_array().cloned().unwrap_or_default();
    match env.iter().any(is_ours) {
        true => env.iter_mut().filter(|it| is_ours(it)).for_each(|it| *it = variable.clone()),
        false => env.push(variable),
    }
    container["env"] = Value::Array(env);
}

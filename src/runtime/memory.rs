//! The memory of cached objects, for each namespace and in total, and its limits.
//!
//! Every replica keeps the objects of all namespaces, and their authors decide how large they are: 2,000 HookRuns may be
//! 3 GB. So an object that exceeds the limit of its namespace is not kept. It is never treated as if it did not exist:
//! the reflector records it as unreadable, and nothing is planned for a workload while something that belongs to it is
//! unreadable.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use gamekeeper_core::api::{Argument, CanaryStep, CanaryStrategy, HookRunStatus, Metric};
use gamekeeper_core::observed::{Claim, InPlaceRecord, Pod, Resize};

/// Limits on the memory of cached objects, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryLimits {
    /// The most that the objects of one namespace may take.
    pub namespace: usize,
    /// The most that all objects may take, except those of namespaces that take less than [`ALWAYS`].
    pub total: usize,
}

/// What each namespace may use whatever the others use, in bytes.
const ALWAYS: usize = 8 << 20;

impl Default for MemoryLimits {
    fn default() -> Self {
        Self { namespace: 96 << 20, total: 320 << 20 }
    }
}

/// The memory that cached objects take, as estimated by [`Cached::memory`](super::store::Cached::memory).
#[derive(Default)]
pub(crate) struct MemoryUse {
    limits: MemoryLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    total: usize,
    namespaces: HashMap<Box<str>, usize>,
}

impl MemoryUse {
    pub(crate) fn new(limits: MemoryLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// Whether the objects of one kind in a namespace may grow from `old` to `new` bytes.
    ///
    /// # Errors
    /// If not: why.
    pub(crate) fn check(&self, namespace: &str, old: usize, new: usize) -> Result<(), String> {
        if new <= old {
            return Ok(());
        }
        let state = self.lock();
        let growth = new - old;
        let used = state.namespaces.get(namespace).copied().unwrap_or_default() + growth;
        let MemoryLimits { namespace: most, total } = self.limits;
        let advice = "delete objects that are not needed, or raise the operator's limit";
        if used > most {
            return Err(format!(
                "the objects of namespace {namespace} take more than the {} MiB of memory that the operator keeps for a \
                 namespace; {advice}",
                most >> 20
            ));
        }
        if state.total + growth > total && used > ALWAYS {
            return Err(format!(
                "all objects together take more than the {} MiB of memory that the operator keeps, and those of \
                 namespace {namespace} more than {} MiB; {advice}",
                total >> 20,
                ALWAYS >> 20
            ));
        }
        Ok(())
    }

    /// Records that the objects of one kind in a namespace have changed from `old` to `new` bytes.
    pub(crate) fn change(&self, namespace: &str, old: usize, new: usize) {
        if old == new {
            return;
        }
        let mut state = self.lock();
        state.total = (state.total + new).saturating_sub(old);
        let used = state.namespaces.entry(namespace.into()).or_default();
        *used = (*used + new).saturating_sub(old);
        if *used == 0 {
            state.namespaces.remove(namespace);
        }
    }

    /// Whether there is room again for objects of a namespace: an eighth of its limit, and of the total.
    pub(crate) fn has_room(&self, namespace: &str) -> bool {
        let used = self.lock().namespaces.get(namespace).copied();
        let used = used.unwrap_or_default();
        self.check(namespace, 0, self.limits.namespace / 8).is_ok() || used < ALWAYS / 2
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory of an allocation and of its place in a map or list.
const ENTRY: usize = 96;

/// The memory of a pod's slim form.
pub(crate) fn of_pod(pod: &Pod) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let pairs = |pairs: &mut dyn Iterator<Item = (usize, usize)>| -> usize {
        pairs.map(|(key, value)| key + value + ENTRY).sum()
    };
    let labels = pairs(&mut pod.labels.iter().map(|(key, value)| (key.len(), value.len())));
    let marks = pod.sidecars.iter().map(|(set, mark)| {
        let names = mark.containers.iter().map(|it| it.len() + 32);
        let texts = [&mark.left_out, &mark.token].map(text).iter().sum::<usize>();
        let read_from = mark.read_from.as_ref().map_or(0, |it| it.len());
        let lists = names.sum::<usize>() + texts + read_from;
        set.len() + mark.revision.len() + mark.shape.len() + lists + 3 * ENTRY
    });
    let containers = pod.containers.iter().map(|it| {
        let status = it.status.as_ref();
        let status =
            status.map_or(0, |it| it.image.len() + it.image_id.len() + it.container_id.len());
        size_of_val(it) + it.name.len() + it.image.len() + it.resources.len() + status + ENTRY
    });
    let postponed = pod.postponed.iter().flat_map(|it| it.iter());
    let postponed = pairs(&mut postponed.map(|(key, value)| (key.len(), value.len())));
    let first = pod.first_status.iter().flat_map(|it| &it.container_ids);
    let first: usize = first.map(|it| it.len() + 32).sum();
    let texts = [&pod.controller, &pod.node, &pod.pod_ip, &pod.host_ip];
    let resize = match &pod.resize {
        Resize::Deferred(why) | Resize::Infeasible(why) => why.len(),
        Resize::Settled | Resize::InProgress => 0,
    };
    let trouble =
        pod.trouble.as_ref().map_or(0, |it| size_of_val(&**it) + it.kind.text_bytes() + ENTRY);
    trouble
        + size_of::<Pod>()
        + pod.namespace.len()
        + pod.name.len()
        + pod.uid.len()
        + texts.map(text).iter().sum::<usize>()
        + pod.ended_at_once.as_ref().map_or(0, |it| it.len())
        + pod.overhead.as_ref().map_or(0, |it| it.len())
        + resize
        + labels
        + marks.sum::<usize>()
        + containers.sum::<usize>()
        + pod.record.as_ref().map_or(0, |it| of_record(it))
        + postponed
        + first
        // Its places in the index.
        + 4 * ENTRY
}

fn of_record(record: &InPlaceRecord) -> usize {
    let containers = record.containers.iter().map(|(name, change)| {
        let resources = change.resources.as_ref().map_or(0, |it| it.text().len());
        let texts = change.from_image.len() + change.from_container_id.len() + resources;
        size_of_val(&**change) + name.len() + texts + 2 * ENTRY
    });
    let sidecars = record.sidecars.iter();
    let sidecars = sidecars.map(|(set, revision)| set.len() + revision.len() + ENTRY);
    let texts = record.revision.len() + size_of::<InPlaceRecord>();
    containers.sum::<usize>() + sidecars.sum::<usize>() + texts
}

/// The memory of a claim's slim form. Each of its owners is a key of the index.
pub(crate) fn of_claim(claim: &Claim) -> usize {
    let owners = claim
        .owners
        .iter()
        .map(|it| size_of_val(it) + it.kind.len() + it.name.len() + 2 * it.uid.len() + 4 * ENTRY);
    let names = claim.namespace.len() + claim.name.len() + claim.uid.len();
    size_of::<Claim>() + names + owners.sum::<usize>() + 4 * ENTRY
}

/// The memory of canary steps, beyond the length of their text.
pub(crate) fn of_steps(canary: &CanaryStrategy) -> usize {
    canary.steps.capacity() * size_of::<CanaryStep>()
}

/// The memory of the arguments and metrics of a hook, beyond the length of their text, which may be as short as their
/// names.
pub(crate) fn of_hook(args: &[Argument], metrics: &[Metric]) -> usize {
    size_of_val(args) + size_of_val(metrics)
}

/// The memory of the results in the status of a run, beyond the length of their text: an item may be as short as `{}`, and
/// no schema limits how many there are.
pub(crate) fn of_results(status: &HookRunStatus) -> usize {
    let results = &status.metric_results;
    let measurements = results.iter().map(|it| size_of_val(&*it.measurements));
    size_of_val(&**results) + measurements.sum::<usize>()
}

/// The memory of the lists and maps in an object's metadata, beyond the length of their text.
pub(crate) fn of_metadata(meta: &ObjectMeta) -> usize {
    let labels = meta.labels.as_ref().map_or(0, |it| it.len());
    let annotations = meta.annotations.as_ref().map_or(0, |it| it.len());
    let finalizers = meta.finalizers.as_ref().map_or(0, Vec::len);
    let owners = meta.owner_references.as_ref().map_or(0, Vec::len);
    (labels + annotations + finalizers + 2 * owners) * ENTRY
}

#[cfg(test)]
mod tests {
    use super::*;
    use gamekeeper_core::observed::ClaimOwner;

    const MIB: usize = 1 << 20;

    /// Each owner of a claim is a key of the index, and may be as short as its uid.
    #[test]
    fn the_owners_of_a_claim_are_counted() {
        let owner = ClaimOwner {
            kind: String::new(),
            name: String::new(),
            uid: "u".to_owned(),
            controller: false,
        };
        let claim = |owners: usize| Claim {
            namespace: "games".to_owned(),
            name: "data-world-0".to_owned(),
            uid: "uid".to_owned(),
            resource_version: 1,
            terminating: false,
            owners: vec![owner.clone(); owners],
        };
        let counted = of_claim(&claim(10_000)) - of_claim(&claim(0));
        assert!(counted >= 10_000 * (size_of::<ClaimOwner>() + 3 * ENTRY), "{counted}");
    }

    #[test]
    fn a_namespace_is_limited_and_small_ones_are_kept_whatever_others_use() {
        let memory = MemoryUse::new(MemoryLimits { namespace: 32 * MIB, total: 48 * MIB });
        let add = |namespace: &str, size: usize| {
            let fits = memory.check(namespace, 0, size).is_ok();
            memory.change(namespace, 0, if fits { size } else { 0 });
            fits
        };
        assert!(add("a", 32 * MIB) && !add("a", 1));
        assert!(add("b", 16 * MIB) && !add("b", 1), "the total is used up");
        assert!(add("small", 8 * MIB) && !add("small", 1));
        assert!(memory.check("a", 2, 2).is_ok(), "no growth");
        assert!(!memory.has_room("a") && memory.has_room("other"));
        memory.change("a", 32 * MIB, 0);
        assert!(memory.has_room("a") && add("b", 1));
        let why = memory.check("a", 0, 33 * MIB).expect_err("too much");
        assert!(why.contains("namespace a take more than the 32 MiB"), "{why}");
    }
}

//! Guarded pods that keep a node from being removed, and those whose workload no longer exists, read from the caches at
//! each scrape.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use prometheus_client::encoding::DescriptorEncoder;

use super::workloads::labels;
use crate::kinds::{Cache, NodeState, Whole};
use crate::reconcile::apply::WorkloadLabels;
use crate::runtime::metrics::encode_family;
use crate::runtime::reflector::Reflector;
use crate::runtime::store::Cached;
use gamekeeper_core::api::{GameWorkload, PodProtection};
use gamekeeper_core::observed::Taint;
use gamekeeper_core::workload::delays_removal;

#[derive(Default)]
pub(super) struct Guarded {
    /// The longest time that a node has waited for pods of a workload; 0 if no node waits.
    node_waits: BTreeMap<WorkloadLabels, f64>,
    /// Guarded pods without a workload, by namespace.
    orphans: BTreeMap<String, f64>,
}

/// When it was first observed that a node is going to be removed, by the node's uid: not every taint records a time.
/// Each replica keeps its own record, even while another one leads.
#[derive(Debug, Default)]
pub(super) struct FirstSeen(Mutex<BTreeMap<String, Timestamp>>);

/// A node that is going to be removed.
struct GoingNode<'a> {
    taints: &'a [Taint],
    since: Timestamp,
}

type GoingNodes<'a> = HashMap<&'a str, GoingNode<'a>>;

pub(super) fn read(cache: &Cache, first_seen: &FirstSeen, now: Timestamp) -> Guarded {
    let nodes = cache.nodes.store().all();
    let going = first_seen.going(nodes.iter().map(AsRef::as_ref), now);
    let mut guarded = Guarded { orphans: orphans(cache), ..Guarded::default() };
    guarded.add_waits(cache, &cache.game_deployments, &going, now);
    guarded.add_waits(cache, &cache.game_stateful_sets, &going, now);
    guarded
}

impl FirstSeen {
    /// The nodes that are going to be removed, by name. All others are forgotten.
    fn going<'a>(
        &self,
        nodes: impl Iterator<Item = &'a NodeState>,
        now: Timestamp,
    ) -> GoingNodes<'a> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let previous = std::mem::take(&mut *seen);
        let going = nodes.filter(|node| !node.going.is_empty());
        let going = going.map(|node| {
            let first = previous.get(node.uid()).copied().unwrap_or(now);
            seen.insert(node.uid().to_owned(), first);
            let going = GoingNode {
                taints: &node.going,
                since: node.going_since.map_or(first, |since| since.min(first)),
            };
            (node.name(), going)
        });
        going.collect()
    }
}

impl Guarded {
    fn add_waits<K: GameWorkload>(
        &mut self,
        cache: &Cache,
        workloads: &Reflector<Whole<K>>,
        going: &GoingNodes<'_>,
        now: Timestamp,
    ) {
        for workload in workloads.store().all() {
            let protection = workload.object.protection();
            if protection.is_some_and(|it| it.pods == PodProtection::Guarded) {
                let key = WorkloadLabels {
                    kind: K::KIND,
                    namespace: workload.namespace().to_owned(),
                    name: workload.name().to_owned(),
                };
                let since = waiting_since(cache, &workload, going);
                let wait = since.map(|since| now.duration_since(since).as_secs_f64().max(0.0));
                self.node_waits.insert(key, wait.unwrap_or_default());
            }
        }
    }

    pub(super) fn encode(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let waits = self.node_waits.iter();
        let waits = waits.map(|(workload, wait)| (labels(workload), *wait));
        let help = "Longest time that a node which is going to be removed has waited for guarded pods of a workload";
        encode_family(to, "gamekeeper_node_wait_seconds", help, waits)?;
        let orphans = self.orphans.iter();
        let orphans = orphans.map(|(namespace, count)| ([("namespace", namespace)], *count));
        let help = "Guarded pods whose workload no longer exists";
        encode_family(to, "gamekeeper_guarded_orphans", help, orphans)
    }
}

/// Since when a node has waited for pods of a workload; None if no node waits.
fn waiting_since<K: GameWorkload>(
    cache: &Cache,
    workload: &Whole<K>,
    going: &GoingNodes<'_>,
) -> Option<Timestamp> {
    if going.is_empty() {
        return None;
    }
    let pods = cache.pods.store();
    let pods = pods.controlled_by(workload.namespace(), Some(workload.uid()));
    let pods = pods.iter().filter_map(|pod| pod.own());
    let mut template = None;
    let waits = pods.filter_map(|pod| {
        let node = going.get(pod.node.as_deref()?)?;
        let template = template.get_or_insert_with(|| workload.object.pod_template().parse());
        let delays = delays_removal(workload.uid(), template, node.taints, pod);
        delays.then(|| node.since.max(pod.created))
    });
    waits.min()
}

fn orphans(cache: &Cache) -> BTreeMap<String, f64> {
    let mut uids = uids_of(&cache.game_deployments);
    uids.extend(uids_of(&cache.game_stateful_sets));
    let mut orphans = BTreeMap::new();
    for pod in cache.pods.store().all() {
        let guard = pod.guarded_by().filter(|_| !pod.terminating());
        if guard.is_some_and(|uid| !uids.contains(uid)) {
            *orphans.entry(pod.namespace().to_owned()).or_default() += 1.0;
        }
    }
    orphans
}

/// The uids of all workloads of a kind, including those that cannot be decoded.
fn uids_of<K: GameWorkload>(workloads: &Reflector<Whole<K>>) -> BTreeSet<String> {
    let workloads_read = workloads.store().all();
    let mut uids: BTreeSet<_> = workloads_read.iter().map(|it| it.uid().to_owned()).collect();
    let unreadable = workloads.all_unreadable();
    uids.extend(unreadable.values().map(|it| it.uid.clone()));
    uids
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::{Settings, test_feed};
    use crate::runtime::reflector::Origin;
    use gamekeeper_core::api::names::{GUARDED_LABEL, INSTANCE_LABEL, REVISION_LABEL};
    use gamekeeper_core::api::{GROUP, GameDeployment};

    fn at(minute: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute)
    }

    fn show_workload(cache: &Cache, tolerations: Value) {
        let workload = json!({
            "metadata": {"namespace": "games", "name": "arena", "uid": "uid-arena", "resourceVersion": "1"},
            "spec": {
                "selector": {}, "template": {"spec": {"tolerations": tolerations}},
                "protection": {"pods": "Guarded"},
            },
        });
        let workload: GameDeployment = serde_json::from_value(workload).expect("a workload");
        cache.game_deployments.show(1, vec![Whole::new(workload, false)]);
    }

    /// A running pod on the node `node`, guarded and controlled by the workload with this uid, with these changes.
    fn pod(name: &str, workload_uid: &str, changes: Value) -> Value {
        let mut pod = json!({
            "metadata": {
                "namespace": "games", "name": name, "uid": name, "resourceVersion": "1",
                "creationTimestamp": at(0).to_string(),
                "labels": {GUARDED_LABEL: workload_uid},
                "ownerReferences": [{
                    "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "GameDeployment", "name": "arena",
                    "uid": workload_uid, "controller": true,
                }],
            },
            "spec": {"nodeName": "node", "containers": [{"name": "game"}]},
            "status": {"phase": "Running"},
        });
        json_patch::merge(&mut pod, &changes);
        pod
    }

    fn show_pods(cache: &Cache, pods: &[Value]) {
        let interner = &mut crate::kinds::Interner::default();
        let pods = pods.iter();
        let pods = pods.filter_map(|it| test_feed::pod(None, Origin::List, it, interner));
        // An object that is listed with the same version would count as unchanged.
        cache.pods.show(1, Vec::new());
        cache.pods.show(1, pods.collect());
    }

    fn show_node(cache: &Cache, spec: Value) {
        let node = json!({
            "metadata": {"name": "node", "uid": "uid-node", "resourceVersion": "1"}, "spec": spec,
        });
        let node = serde_json::from_value(node).expect("a node");
        let node = NodeState::new(node, &Settings::default());
        cache.nodes.show(1, Vec::new());
        cache.nodes.show(1, node.into_iter().collect());
    }

    /// How many minutes a node has waited for pods of the workload, observed at this minute.
    fn waited(cache: &Cache, seen: &FirstSeen, minute: i64) -> Option<f64> {
        let guarded = read(cache, seen, at(minute));
        guarded.node_waits.values().next().map(|it| it / 60.0)
    }

    #[test]
    fn a_node_waits_from_its_cordon_until_the_last_guarded_pod_has_left() {
        let (cache, seen) = (Cache::default(), FirstSeen::default());
        show_workload(&cache, json!([]));
        show_pods(&cache, &[pod("a", "uid-arena", json!({}))]);
        show_node(&cache, json!({}));
        assert_eq!(waited(&cache, &seen, 5), Some(0.0));
        show_node(&cache, json!({"unschedulable": true}));
        assert_eq!(waited(&cache, &seen, 10), Some(0.0));
        assert_eq!(waited(&cache, &seen, 80), Some(70.0));
        // The taint that follows a cordon records the time, which outlasts a restart of the operator.
        let taint = json!({
            "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": at(9).to_string(),
        });
        show_node(&cache, json!({"unschedulable": true, "taints": [taint]}));
        assert_eq!(waited(&cache, &FirstSeen::default(), 80), Some(71.0));
        let terminating = json!({"metadata": {"deletionTimestamp": at(80).to_string()}});
        show_pods(&cache, &[pod("a", "uid-arena", terminating)]);
        assert_eq!(waited(&cache, &seen, 81), Some(0.0));
    }

    #[test]
    fn a_node_does_not_wait_for_pods_that_do_not_delay_its_removal() {
        let cordon = json!({"unschedulable": true});
        let unguarded = json!({"metadata": {"labels": {GUARDED_LABEL: null}}});
        let ended = json!({"status": {"phase": "Failed"}});
        let elsewhere = json!({"spec": {"nodeName": "other"}});
        for (case, changes) in
            [("unguarded", unguarded), ("ended", ended), ("elsewhere", elsewhere)]
        {
            let (cache, seen) = (Cache::default(), FirstSeen::default());
            show_workload(&cache, json!([]));
            show_node(&cache, cordon.clone());
            show_pods(&cache, &[pod("a", "uid-arena", changes)]);
            waited(&cache, &seen, 0);
            assert_eq!(waited(&cache, &seen, 90), Some(0.0), "{case}");
        }
        // A pod that tolerates the cordon, such as one of a dedicated pool.
        let (cache, seen) = (Cache::default(), FirstSeen::default());
        show_workload(&cache, json!([{"operator": "Exists"}]));
        show_node(&cache, cordon);
        show_pods(&cache, &[pod("a", "uid-arena", json!({}))]);
        waited(&cache, &seen, 0);
        assert_eq!(waited(&cache, &seen, 90), Some(0.0));
    }

    #[test]
    fn a_cordon_that_was_lifted_is_forgotten() {
        let (cache, seen) = (Cache::default(), FirstSeen::default());
        show_workload(&cache, json!([]));
        show_pods(&cache, &[pod("a", "uid-arena", json!({}))]);
        show_node(&cache, json!({"unschedulable": true}));
        waited(&cache, &seen, 0);
        show_node(&cache, json!({}));
        assert_eq!(waited(&cache, &seen, 30), Some(0.0));
        show_node(&cache, json!({"unschedulable": true}));
        assert_eq!(waited(&cache, &seen, 60), Some(0.0));
    }

    #[test]
    fn guarded_pods_of_workloads_that_do_not_exist_are_counted() {
        let cache = Cache::default();
        show_workload(&cache, json!([]));
        let labels = json!({REVISION_LABEL: "arena-1", INSTANCE_LABEL: "1"});
        let no_owner = json!({"metadata": {"ownerReferences": null, "labels": labels}});
        // Any user may set the label on any pod.
        let never_owned = json!({"metadata": {"ownerReferences": null}});
        let terminating = json!({"metadata": {"deletionTimestamp": at(1).to_string()}});
        let released = json!({"metadata": {"labels": {GUARDED_LABEL: null}}});
        show_pods(
            &cache,
            &[
                pod("own", "uid-arena", json!({})),
                pod("left-behind", "uid-deleted", json!({})),
                pod("orphaned", "uid-deleted", no_owner),
                pod("labeled", "any", never_owned),
                pod("terminating", "uid-deleted", terminating),
                pod("released", "uid-deleted", released),
            ],
        );
        let guarded = read(&cache, &FirstSeen::default(), at(2));
        assert_eq!(guarded.orphans, BTreeMap::from([("games".to_owned(), 2.0)]));
    }
}

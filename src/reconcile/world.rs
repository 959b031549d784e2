//! Collects the inputs of a plan.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::core::SelectorExt;

use crate::kinds::{Cache, Reaching, Whole};
use crate::runtime::control::Control;
use crate::runtime::objects::ObjectKey;
use crate::runtime::reflector::{Unreadable, unreadable_in};
use crate::runtime::store::Cached;
use gamekeeper_core::api::{GameWorkload, names};
use gamekeeper_core::observed::{Claim, LostNode, OldKubelet, Pod, Taint};
use gamekeeper_core::workload::{Memory, World};

/// Why nothing can be planned for a workload.
pub(super) enum NotPlanned {
    /// Its pods might get sidecars that are not known yet. The workload is queued once its namespace is in the cache.
    UnknownNamespace,
    /// Something that belongs to it, or may belong to it, cannot be read. If it were taken not to exist, a running pod
    /// would be replaced, or its revision would count as a change of the template.
    Unreadable(String),
}

/// The world around a workload. What is remembered about it is not part of the cache.
pub(super) fn world<K: GameWorkload>(
    cache: &Cache,
    workload: &Whole<K>,
) -> Result<World, NotPlanned> {
    let (namespace, uid) = (workload.namespace(), workload.uid());
    if let Some(why) = unreadable_part(cache, workload) {
        return Err(NotPlanned::Unreadable(why));
    }
    let sidecars = cache.sidecars.reaching(namespace);
    let sidecars = sidecars.ok_or(NotPlanned::UnknownNamespace)?;
    let Reaching { sets: sidecars, unreadable: unreadable_sidecars } = sidecars;
    let selector = workload.object.selector();
    let selected =
        |labels: &BTreeMap<String, String>| selector.as_ref().is_some_and(|it| it.matches(labels));
    let pods = cache.pods.store().of_workload(namespace, uid, selected);
    let revisions = {
        let store = cache.revisions.store();
        let mut revisions = store.controlled_by(namespace, Some(uid));
        let orphans = store.controlled_by(namespace, None);
        revisions.extend(orphans.into_iter().filter(|it| selected(&it.labels)));
        revisions
    };
    let runs = cache.hook_runs_of(namespace, uid);
    let template_names = workload.object.hook_templates();
    let templates = {
        let store = cache.hook_templates.store();
        let found = template_names.iter().filter_map(|name| {
            let template = store.get(namespace, name)?;
            Some(((*name).to_owned(), Arc::clone(&template.object)))
        });
        found.collect()
    };
    let unreadable_templates = {
        let unreadable = cache.hook_templates.all_unreadable();
        let is_unreadable =
            |name: &&str| unreadable.contains_key(&ObjectKey::new(namespace, *name));
        let names = template_names.into_iter().filter(is_unreadable);
        names.map(str::to_owned).collect()
    };
    let Nodes { node_costs, lost_nodes, old_kubelets, going_nodes } = nodes(cache, &pods);
    let world = World {
        now: Timestamp::now(),
        pods,
        runs: runs.iter().map(|run| Arc::clone(&run.object)).collect(),
        revisions: revisions.iter().map(|it| Arc::clone(&it.revision)).collect(),
        templates,
        unreadable_templates,
        node_costs,
        lost_nodes,
        old_kubelets,
        going_nodes,
        claims: claims(cache, workload),
        sidecars,
        unreadable_sidecars,
        memory: Memory::default(),
        priority_class: cache.settings.priority_class.clone(),
        guards_pods: !cache.settings.leaves_pods_unguarded,
    };
    // Something that has just become unreadable may be missing in what was read.
    match unreadable_part(cache, workload) {
        Some(why) => Err(NotPlanned::Unreadable(why)),
        None => Ok(world),
    }
}

/// Which object that belongs to a workload cannot be read, and why. Pods and revisions without a controller may belong
/// to it as well: their labels are not known.
fn unreadable_part<K: GameWorkload>(cache: &Cache, workload: &Whole<K>) -> Option<String> {
    let (namespace, uid) = (workload.namespace(), workload.uid());
    let is_own = |it: &Unreadable| matches!(&it.control, Control::Ours(owner) if owner == uid);
    let is_own_or_orphan = |it: &Unreadable| is_own(it) || it.control == Control::None;
    let prefixes: Vec<String> = workload.object.claim_prefixes().collect();
    let is_own_claim = |key: &ObjectKey| {
        let prefix = names::split_ordinal(&key.name).map(|(prefix, _)| prefix);
        prefix.is_some_and(|prefix| prefixes.iter().any(|it| it == prefix))
    };
    let find = |kind: &str,
                unreadable: &BTreeMap<ObjectKey, Unreadable>,
                belongs: &dyn Fn(&ObjectKey, &Unreadable) -> bool| {
        let mut found = unreadable_in(unreadable, namespace);
        let (key, it) = found.find(|(key, it)| belongs(key, it))?;
        Some(format!("{kind} {} cannot be read: {}", key.name, it.reason))
    };
    find("pod", &cache.pods.all_unreadable(), &|_, it| is_own_or_orphan(it))
        .or_else(|| {
            let unreadable = cache.revisions.all_unreadable();
            find("ControllerRevision", &unreadable, &|_, it| is_own_or_orphan(it))
        })
        .or_else(|| find("HookRun", &cache.hook_runs.all_unreadable(), &|_, it| is_own(it)))
        .or_else(|| {
            let unreadable = cache.claims.all_unreadable();
            find("claim", &unreadable, &|key, _| is_own_claim(key))
        })
}

/// What a plan reads about nodes, by node name.
#[derive(Default)]
struct Nodes {
    node_costs: BTreeMap<String, i64>,
    lost_nodes: BTreeMap<String, LostNode>,
    /// Kubelets that cannot make every change in a running pod.
    old_kubelets: BTreeMap<String, OldKubelet>,
    /// Taints that announce the removal of a node.
    going_nodes: BTreeMap<String, Arc<[Taint]>>,
}

/// Reads the nodes that these pods are bound to.
fn nodes(cache: &Cache, pods: &[Arc<Pod>]) -> Nodes {
    let store = cache.nodes.store();
    let names: HashSet<&String> = pods.iter().filter_map(|pod| pod.node.as_ref()).collect();
    let mut nodes = Nodes::default();
    for name in names {
        let Some(node) = store.get("", name) else {
            continue;
        };
        let node_cost = node.cost.map(|cost| (name.clone(), cost));
        nodes.node_costs.extend(node_cost);
        nodes.lost_nodes.extend(node.lost.map(|lost| (name.clone(), lost)));
        if !node.going.is_empty() {
            let going = Arc::clone(&node.going);
            nodes.going_nodes.insert(name.clone(), going);
        }
        let kubelet = node.old_kubelet.clone();
        nodes.old_kubelets.extend(kubelet.map(|it| (name.clone(), it)));
    }
    nodes
}

/// The claims that are named after the workload's pods, or that it owns.
fn claims<K: GameWorkload>(cache: &Cache, workload: &Whole<K>) -> BTreeMap<String, Arc<Claim>> {
    if workload.object.claim_templates().is_empty() {
        return BTreeMap::new();
    }
    let (namespace, store) = (workload.namespace(), cache.claims.store());
    let keys = workload.object.claim_prefixes().chain([workload.uid().to_owned()]);
    let claims = keys.flat_map(|key| store.by_index(namespace, &key));
    claims.map(|claim| (claim.name.clone(), claim)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::{CachedNamespace, NamespaceHead, Router, slim_claim};
    use gamekeeper_core::api::{GameDeployment, GameStatefulSet, SidecarSet};

    #[test]
    fn a_workload_waits_for_its_namespace_only_if_there_are_sidecar_sets() {
        let cache = Cache::default();
        let router = Router::to_nowhere(&cache.sidecars);
        let workload = json!({
            "metadata": {"namespace": "games", "name": "arena", "uid": "uid-arena"},
            "spec": {"selector": {"matchLabels": {"app": "arena"}}, "template": {}},
        });
        let workload: GameDeployment = serde_json::from_value(workload).expect("a workload");
        let workload = Whole::new(workload, false);
        let sidecars = || world(&cache, &workload).ok().map(|it| it.sidecars.len());
        assert_eq!(sidecars(), Some(0));
        let set = json!({
            "metadata": {"name": "log"},
            "spec": {"selector": {"matchLabels": {"app": "arena"}}, "containers": [{"name": "log"}]},
        });
        let set: SidecarSet = serde_json::from_value(set).expect("a set");
        router.sidecar_set(&(None, Some(Arc::new(Whole::new(set, true)))));
        assert_eq!(sidecars(), None);
        let head = json!({"metadata": {"name": "games"}});
        let head: NamespaceHead = serde_json::from_value(head).expect("a namespace");
        router.namespace(&(None, Some(Arc::new(CachedNamespace::from(head)))));
        assert_eq!(sidecars(), Some(1));
    }

    /// If a pod that is not kept counted as deleted, it would be replaced while a match is played in it.
    #[test]
    fn nothing_is_planned_while_something_of_the_workload_is_unreadable() {
        let cache = Cache::default();
        let set = json!({
            "metadata": {"namespace": "games", "name": "world", "uid": "uid-world"},
            "spec": {
                "selector": {"matchLabels": {"app": "world"}}, "template": {},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            },
        });
        let set: GameStatefulSet = serde_json::from_value(set).expect("a set");
        let set = Whole::new(set, false);
        let reason = || {
            let planned = world(&cache, &set);
            match planned {
                Ok(_) => None,
                Err(NotPlanned::Unreadable(why)) => Some(why),
                Err(NotPlanned::UnknownNamespace) => panic!("there are no sets"),
            }
        };
        let unreadable = |control: &Control| Unreadable {
            uid: "uid".into(),
            resource_version: "1".into(),
            reason: "too large".into(),
            control: control.clone(),
            over_budget: true,
        };
        let [own, other] = ["uid-world", "uid-other"].map(|uid| Control::Ours(uid.into()));
        let key = |name: &str| ObjectKey::new("games", name);
        cache.pods.show_unreadable(key("other-0"), unreadable(&other));
        cache.pods.show_unreadable(key("deployment"), unreadable(&Control::Foreign));
        cache.pods.show_unreadable(ObjectKey::new("else", "x"), unreadable(&own));
        cache.hook_runs.show_unreadable(key("manual"), unreadable(&Control::None));
        cache.claims.show_unreadable(key("data-worlds-0"), unreadable(&Control::None));
        assert_eq!(reason(), None);
        cache.claims.show_unreadable(key("data-world-1"), unreadable(&Control::None));
        assert_eq!(reason().as_deref(), Some("claim data-world-1 cannot be read: too large"));
        cache.hook_runs.show_unreadable(key("run"), unreadable(&own));
        assert!(reason().is_some_and(|it| it.starts_with("HookRun run")));
        cache.revisions.show_unreadable(key("world-1"), unreadable(&Control::None));
        assert!(reason().is_some_and(|it| it.starts_with("ControllerRevision world-1")));
        cache.pods.show_unreadable(key("world-0"), unreadable(&own));
        assert!(reason().is_some_and(|it| it.starts_with("pod world-0")));
    }

    #[test]
    fn a_game_stateful_set_sees_claims_that_are_named_after_its_pods_or_that_it_owns() {
        let claim = |name: &str, owner: Option<&str>| {
            let owners = owner
                .map(|uid| json!([{"apiVersion": "v1", "kind": "Any", "name": "any", "uid": uid}]));
            let claim: Value = json!({"metadata": {
                "namespace": "games", "name": name, "ownerReferences": owners,
            }});
            slim_claim(serde_json::from_value(claim).expect("claim"))
        };
        let cache = Cache::default();
        cache.claims.show(
            1,
            vec![
                claim("data-world-0", None),
                claim("data-world-10", Some("uid-pod")),
                claim("logs-world-0", None),
                claim("old-world-3", Some("uid-world")),
                claim("data-worlds-0", None),
                claim("data-world-x", None),
                claim("data-world-00", None),
            ],
        );
        let set = json!({
            "metadata": {"namespace": "games", "name": "world", "uid": "uid-world"},
            "spec": {
                "selector": {}, "template": {},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}}, {"metadata": {"name": "logs"}}],
            },
        });
        let set: GameStatefulSet = serde_json::from_value(set).expect("set");
        let seen = claims(&cache, &Whole::new(set, false));
        let names: Vec<_> = seen.keys().collect();
        let expected = ["data-world-0", "data-world-10", "logs-world-0", "old-world-3"];
        assert_eq!(names, expected);
    }
}

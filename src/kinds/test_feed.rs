//! Feeds a cache in tests.

use serde_json::{Value, json};

use super::{Cache, CachedPod, Interner};
use crate::runtime::reflector::Origin;
use crate::runtime::watch::{Identity, Object};
use gamekeeper_core::api::HookRun;

/// The cached form of a pod.
pub(crate) fn pod(
    previous: Option<&CachedPod>,
    origin: Origin,
    pod: &Value,
    interner: &mut Interner,
) -> Option<CachedPod> {
    read(previous, origin, pod, false, interner)
}

/// The cached form of a pod that the watch shows in a namespace in which pods of other controllers are kept.
pub(crate) fn kept_pod(previous: Option<&CachedPod>, pod: &Value) -> CachedPod {
    let interner = &mut Interner::default();
    read(previous, Origin::Watch, pod, true, interner).expect("it is kept")
}

fn read(
    previous: Option<&CachedPod>,
    origin: Origin,
    pod: &Value,
    keep_foreign: bool,
    interner: &mut Interner,
) -> Option<CachedPod> {
    let text = pod.to_string();
    let metadata = pod["metadata"].to_string();
    let identity: Identity = serde_json::from_str(&metadata).expect("metadata");
    let object = Object::Item(&text);
    CachedPod::read(previous, origin, &identity, object, keep_foreign, interner).expect("a pod")
}

/// A HookRun that the GameDeployment `games/arena` controls; `workload` is the uid of that GameDeployment.
pub(crate) fn run(name: &str, workload: &str) -> HookRun {
    let run = json!({
        "metadata": {
            "name": name, "namespace": "games",
            "ownerReferences": [{
                "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment", "name": "arena",
                "uid": workload, "controller": true,
            }],
        },
        "spec": {"metrics": []},
    });
    serde_json::from_value(run).expect("a run")
}

/// Feeds the cache a list of exactly these pods, which have no controllers.
pub(crate) fn pods(cache: &Cache, version: u64, names: &[&str]) {
    let mut interner = Interner::default();
    let pods = names.iter().filter_map(|name| {
        let object = json!({"metadata": {
            "namespace": "games",
            "name": name,
            "uid": format!("uid-{name}"),
            "resourceVersion": version.to_string(),
        }});
        pod(None, Origin::List, &object, &mut interner)
    });
    cache.pods.show(version, pods.collect());
}

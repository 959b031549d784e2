//! What a cached pod costs. A process of its own, because it is measured by what the process grows.

use gamekeeper::cache::{CachedPod, Interner, Sight, Store, slim};
use gamekeeper::plan::Pod;
use k8s_openapi::api::core::v1::Pod as CorePod;
use serde_json::{Value, json};

const PODS: usize = 10_000;
const LIMIT: usize = 4_096;

/// A pod of two containers, updated in place, as a kubelet reports it.
fn pod(n: usize) -> Value {
    let container = |name: &str| {
        json!({
            "name": name,
            "image": format!("registry.example.com/games/{name}:v1.27.3-build.9981"),
            "imageID": format!("registry.example.com/games/{name}@sha256:{n:064x}"),
            "containerID": format!("containerd://{n:064x}"),
            "ready": true, "started": true, "restartCount": 1,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        })
    };
    let wanted = |name: &str| {
        json!({
            "name": name,
            "image": format!("registry.example.com/games/{name}:v1.27.3-build.9981"),
            "resources": {"requests": {"cpu": "2", "memory": "4Gi"}},
        })
    };
    let record = json!({
        "revision": "lobby-6d8dd69fd8",
        "gateClosedAt": "2026-01-01T00:00:00Z",
        "patchedAt": "2026-01-01T00:00:05Z",
        "containers": {"game": {
            "fromImage": "registry.example.com/games/game:v1.27.2-build.9980",
            "fromContainerId": format!("containerd://{n:064x}"),
            "fromRestartCount": 0,
        }},
    });
    json!({
        "metadata": {
            "namespace": "games", "name": format!("lobby-{n:05}"),
            "uid": format!("3d1f2a9c-5b3e-4c63-9b57-{n:012x}"),
            "resourceVersion": (1_000_000 + n).to_string(), "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "app": "lobby", "team": "matchmaking", "region": "eu-central-1",
                "controller-revision-hash": "lobby-6d8dd69fd8",
                "tkex.bkbcs.tencent.com/gamedeployment-instance-id": format!("{n:05}"),
            },
            "annotations": {"gamekeeper.tkex.tencent.com/in-place-record": record.to_string()},
            "ownerReferences": [{
                "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
                "name": "lobby", "uid": "0b7a7f9e-3d07-4a0c-9a54-0d3f5a1e6b11", "controller": true,
            }],
        },
        "spec": {
            "nodeName": format!("node-{}", n % 500),
            "readinessGates": [{"conditionType": "InPlaceUpdateReady"}],
            "containers": [wanted("game"), wanted("sidecar")],
        },
        "status": {
            "phase": "Running", "observedGeneration": 2, "podIP": "10.12.117.204",
            "hostIP": "192.168.14.71",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"},
                {"type": "InPlaceUpdateReady", "status": "True",
                 "lastTransitionTime": "2026-01-01T00:00:08Z"},
            ],
            "containerStatuses": [container("game"), container("sidecar")],
        },
    })
}

/// Memory of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("a Linux process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    let kilobytes = kilobytes.and_then(|number| number.parse::<usize>().ok());
    kilobytes.expect("a number of kilobytes") * 1024
}

fn fold(n: usize, interner: &mut Interner) -> CachedPod {
    let mut before = pod(n);
    before["status"]["observedGeneration"] = json!(1);
    let states =
        [before, pod(n)].map(|state| serde_json::from_value::<CorePod>(state).expect("a pod"));
    let previous = None;
    let folded = states
        .into_iter()
        .fold(previous, |previous: Option<Pod>, state| {
            slim(previous.as_ref(), Sight::Watched, state, interner)
        });
    CachedPod::Own(folded.expect("one of ours").into())
}

#[test]
fn a_cached_pod_costs_at_most_4_kb() {
    let mut interner = Interner::default();
    let mut store = Store::default();
    store.put(fold(PODS, &mut interner));
    let before = resident();
    for n in 0..PODS {
        store.put(fold(n, &mut interner));
    }
    let each = (resident() - before) / PODS;
    println!("{each} bytes a cached pod of two containers, index included");
    assert_eq!(store.len(), PODS + 1);
    assert!(each <= LIMIT, "{each}");
}

//! The memory of cached objects: at most 4 kB for a pod or HookRun of a workload, so that ten thousand fit into the
//! chart's limit, and at most 300 bytes for any other pod of the cluster.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gamekeeper::kinds::{
    CachedPod, CachedRevision, Interner, Whole, read_hook_template, read_run, read_workload,
    slim_run,
};
use gamekeeper::provider::{Call, HttpOptions, Probe};
use gamekeeper::runtime::reflector::Origin;
use gamekeeper::runtime::store::{Cached, Store};
use gamekeeper::runtime::watch::{Identity, Object};
use gamekeeper_core::api::{GameDeployment, HookPhase, HookRun, Metric};
use gamekeeper_core::hook_run::used_arguments;
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The number of objects over which the mean is taken.
const OBJECTS: usize = 1_000;
/// The maximum for an object, in bytes.
const MAX: usize = 4_096;
/// The maximum for a pod that no workload controls, in bytes.
const MAX_FOREIGN: usize = 300;

/// The mean number of bytes per object.
fn bytes_per_object<T>(make: impl Fn(usize) -> T) -> usize {
    let mut objects = Vec::with_capacity(OBJECTS);
    let before = ALLOCATOR.current_usage();
    objects.extend((0..OBJECTS).map(make));
    (ALLOCATOR.current_usage() - before) / OBJECTS + size_of::<T>()
}

fn metadata(name: &str, owner: &str) -> Value {
    json!({
        "name": name, "namespace": "games", "uid": format!("{name}-aa9f-4a2e-9c41-0d2f1f6f7c55"),
        "resourceVersion": "123456789", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": owner, "name": "test",
            "uid": "7f0b2f0a-aa9f-4a2e-9c41-0d2f1f6f7c55", "controller": true,
            "blockOwnerDeletion": true,
        }],
        "labels": {"app": "test", "controller-revision-hash": "test-6c947d899c"},
        "managedFields": [{"manager": "gamekeeper", "operation": "Update",
            "fieldsV1": {"f:spec": {"f:metrics": {}}}}],
    })
}

/// A workload's run, with three measurements.
fn hook_run(index: usize) -> Value {
    let time = "2026-01-01T00:00:00.123456Z";
    let measurement = json!({
        "phase": "Successful", "value": "45", "startedAt": time, "finishedAt": time,
    });
    json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookRun",
        "metadata": metadata(&format!("pre-delete-hook-test-6c947d899c-{index}-test"), "GameDeployment"),
        "spec": {
            "args": [
                {"name": "PodName", "value": format!("test-{index}")},
                {"name": "PodNamespace", "value": "games"},
                {"name": "PodIP", "value": "127.9.0.4"},
                {"name": "HostIP", "value": "127.0.0.1"},
                {"name": "PodContainer[0]", "value": "game"},
            ],
            "metrics": [{
                "name": "players", "count": 3, "interval": "1s",
                "successCondition": "asInt(result) > 30",
                "provider": {"web": {
                    "url": "http://{{ args.PodIP }}:9091/", "jsonPath": "{$.age}",
                }},
            }],
            "policy": "Parallel",
        },
        "status": {
            "phase": "Successful", "startedAt": time, "finishedAt": time,
            "metricResults": [{
                "name": "players", "phase": "Successful", "count": 3, "successful": 3,
                "consecutiveSuccessful": 3,
                "measurements": [measurement, measurement, measurement],
            }],
        },
    })
}

/// The mean number of bytes per pod in the cache, including the index.
fn bytes_per_pod(make: impl Fn(usize) -> Value) -> usize {
    let mut interner = Interner::default();
    let mut store = Store::default();
    let before = ALLOCATOR.current_usage();
    for index in 0..OBJECTS {
        let text = make(index).to_string();
        let object = Object::Item(&text);
        let metadata = make(index)["metadata"].to_string();
        let identity: Identity = serde_json::from_str(&metadata).unwrap();
        let pod =
            CachedPod::read(None, Origin::List, &identity, object, false, &mut interner).unwrap();
        if let Some(pod) = pod {
            store.put(pod);
        }
    }
    (ALLOCATOR.current_usage() - before) / OBJECTS
}

/// A pod of another controller.
fn foreign_pod(index: usize) -> Value {
    let mut pod = pod(index);
    pod["metadata"]["ownerReferences"][0]["apiVersion"] = json!("apps/v1");
    pod
}

/// A pod without a controller.
fn orphan(index: usize) -> Value {
    let mut pod = pod(index);
    pod["metadata"]["name"] = json!(format!("notebook-of-one-user-{index:05}-8dd69fd8"));
    pod["metadata"]["ownerReferences"] = Value::Null;
    pod
}

/// A ready pod with a readiness gate, as a kubelet reports it.
fn pod(index: usize) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": metadata(&format!("test-{index}"), "GameDeployment"),
        "spec": {
            "nodeName": format!("node-{}", index % 20),
            "readinessGates": [{"conditionType": "InPlaceUpdateReady"}],
            "containers": [{"name": "game", "image": "registry/game:v1",
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}],
        },
        "status": {
            "phase": "Running", "podIP": "127.9.0.4", "hostIP": "127.0.0.1",
            "observedGeneration": 1,
            "conditions": [condition("Ready"), condition("InPlaceUpdateReady"),
                condition("ContainersReady"), condition("PodScheduled")],
            "containerStatuses": [{
                "name": "game", "image": "registry/game:v1", "ready": true, "restartCount": 0,
                "imageID": digest, "containerID": format!("containerd://{digest}"),
                "started": true, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }],
        },
    })
}

/// JSON that takes eighty times its length in memory when it is parsed into maps.
fn hostile_json(length: usize) -> String {
    let items = vec![r#"{"":0}"#; length / 7].join(",");
    format!(r#"{{"a":[{items}]}}"#)
}

/// Checks that a HookRun with the maximum amount of JSON takes less than twice the memory of its text.
fn hostile_runs_are_kept_as_text() {
    let body = hostile_json(200 << 10);
    let web = format!(r#"{{"web":{{"url":"http://game","method":"POST","jsonBody":{body}}}}}"#);
    let job = format!(r#"{{"job":{{"spec":{body},"metadata":{{"labels":{body}}}}}}}"#);
    let metrics = [&web, &job, &web].map(|it| format!(r#"{{"name":"n","provider":{it}}}"#));
    let metadata = r#"{"name":"hostile","namespace":"games"}"#;
    let metrics = metrics.join(",");
    let text = format!(r#"{{"metadata":{metadata},"spec":{{"metrics":[{metrics}]}}}}"#);
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let run: HookRun = serde_json::from_str(&text).unwrap();
    let run = slim_run(run);
    let (kept, peak) = (ALLOCATOR.current_usage() - before, ALLOCATOR.peak_usage() - before);
    println!("a run of {} bytes: {kept} kept, peak {peak}", text.len());
    assert!(kept < 2 * text.len(), "{kept} kept of {}", text.len());
    assert!(peak < 4 * text.len(), "peak {peak} for {}", text.len());
    drop(run);
}

/// Checks that a workload whose template and managed fields are small maps, and its revisions, take little more memory
/// than their text, and no more while they are read.
fn hostile_templates_are_kept_as_text() {
    let env = vec![r#"{"name":"a"}"#; 20_000].join(",");
    let template = format!(r#"{{"spec":{{"containers":[{{"name":"game","env":[{env}]}}]}}}}"#);
    let metadata = |more: &str| {
        let owner = r#"{"apiVersion":"tkex.tencent.com/v1alpha1","kind":"GameDeployment","name":"hostile","uid":"u","controller":true}"#;
        format!(r#"{{"name":"hostile","namespace":"games","ownerReferences":[{owner}]{more}}}"#)
    };
    let (revision_metadata, keys) = (metadata(""), vec![r#""k":{}"#; 20_000].join(","));
    let revision = format!(
        r#"{{"metadata":{revision_metadata},"data":{{"spec":{{"template":{template}}}}},"revision":1}}"#
    );
    let fields = format!(
        r#","managedFields":[{{"manager":"kubectl","operation":"Update","fieldsV1":{{{keys}}}}}]"#
    );
    let workload_metadata = metadata(&fields);
    let workload = format!(
        r#"{{"metadata":{workload_metadata},"spec":{{"selector":{{}},"template":{template}}}}}"#
    );
    let measure = |read: &dyn Fn() -> Box<dyn std::any::Any>, length: usize, what: &str| {
        ALLOCATOR.reset_peak_usage();
        let before = ALLOCATOR.current_usage();
        let kept = read();
        let peak = ALLOCATOR.peak_usage() - before;
        let size = ALLOCATOR.current_usage() - before;
        println!("a {what} of {length} bytes: {size} kept, peak {peak}");
        assert!(size < length * 3 / 2, "{what}: {size} kept of {length}");
        assert!(peak < 4 * length, "{what}: peak {peak} for {length}");
        drop(kept);
    };
    let read_revision = || -> Box<dyn std::any::Any> {
        let object = Object::Item(&revision).read().unwrap();
        Box::new(CachedRevision::new(object).unwrap())
    };
    measure(&read_revision, revision.len(), "revision");
    let read_workload = || -> Box<dyn std::any::Any> {
        let object: GameDeployment = Object::Item(&workload).read().unwrap();
        Box::new(Whole::new(object, false))
    };
    measure(&read_workload, workload.len(), "workload");
}

/// Checks that objects whose lists have as many items as fit, each as short as possible, are counted with the memory that
/// they take.
fn short_items_are_counted() {
    let metadata = r#""metadata":{"name":"a","namespace":"games","uid":"u"}"#;
    let list = |item: &str, count: usize| vec![item; count].join(",");
    let metrics = list(r#"{"name":"a","provider":{"web":{"url":"u"}}}"#, 32);
    let args = list(r#"{"name":"a"}"#, 256);
    let hook = format!(r#"{{{metadata},"spec":{{"args":[{args}],"metrics":[{metrics}]}}}}"#);
    let results = list(r#"{"name":""}"#, 1_000);
    let measurements = list("{}", 10_000);
    let status = format!(r#"[{results},{{"name":"","measurements":[{measurements}]}}]"#);
    let run =
        format!(r#"{{{metadata},"spec":{{"metrics":[]}},"status":{{"metricResults":{status}}}}}"#);
    let steps = list(r#"{"pause":{}}"#, 100);
    let workload = |steps: &str| {
        let strategy = format!(r#"{{"canary":{{"steps":[{steps}]}}}}"#);
        format!(
            r#"{{{metadata},"spec":{{"selector":{{}},"template":{{}},"updateStrategy":{strategy}}}}}"#
        )
    };
    let keys: Vec<String> = (0..20_000).map(|key| format!(r#""k{key}":{{}}"#)).collect();
    let fields = format!(
        r#""managedFields":[{{"manager":"a","operation":"Update","fieldsV1":{{{}}}}}]"#,
        keys.join(",")
    );
    let managed = workload("").replacen(r#""name":"a""#, &format!(r#""name":"a",{fields}"#), 1);
    fn check<K: Cached>(what: &str, text: &str, read: fn(Object<'_>) -> serde_json::Result<K>) {
        const COPIES: usize = 20;
        let mut copies = Vec::with_capacity(COPIES);
        let before = ALLOCATOR.current_usage();
        copies.extend((0..COPIES).map(|_| read(Object::Item(text)).unwrap()));
        let kept = (ALLOCATOR.current_usage() - before) / COPIES;
        let counted = copies[0].memory();
        println!("{what} of {} bytes: {kept} kept, {counted} counted", text.len());
        assert!(kept <= counted, "{what}: {kept} kept, {counted} counted");
    }
    check("a run with short metrics", &hook, read_run);
    check("a template with short metrics", &hook, read_hook_template);
    check("a run with short measurements", &run, read_run);
    check("a small workload", &workload(""), read_workload::<GameDeployment>);
    check("a workload with managed fields", &managed, read_workload::<GameDeployment>);
    check("a workload with steps", &workload(&steps), read_workload::<GameDeployment>);
}

/// Checks that the paths of texts are not built as strings. Each of the many texts here would have a long path.
fn arguments_are_found_without_building_paths() {
    let (name, texts) = ("n".repeat(20 << 10), vec![r#""""#; 10_000].join(","));
    let body = format!(r#"{{"{name}":[{texts}]}}"#);
    let text = format!(r#"{{"name":"n","provider":{{"web":{{"url":"u","jsonBody":{body}}}}}}}"#);
    let metric: Metric = serde_json::from_str(&text).unwrap();
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    assert_eq!(used_arguments(&metric).len(), 0);
    let peak = ALLOCATOR.peak_usage() - before;
    println!("texts of {} bytes: peak {peak}", text.len());
    assert!(peak < 4 * text.len(), "peak {peak} for {}", text.len());
}

/// Starts a server that keeps its connections open and answers either every request with 200 or none at all. Returns
/// its URL and the number of connections that it has accepted.
fn serve(answers: bool) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            count.fetch_add(1, Ordering::Relaxed);
            if answers {
                let _ = stream.read(&mut [0; 4_096]).unwrap();
                let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(head).unwrap();
            }
            kept.push(stream);
        }
    });
    (url, accepted)
}

/// Checks that long requests are limited: a request is kept in memory until its response arrives, which may take long.
async fn long_requests_are_limited() {
    let run = |url: &str, length: usize| {
        let web =
            json!({"url": url, "method": "POST", "body": "{{ args.long }}", "timeoutSeconds": 60});
        let run = json!({"metadata": {"namespace": "hostile"}, "spec": {
            "args": [{"name": "long", "value": "x".repeat(length)}],
            "metrics": [{"name": "web", "provider": {"web": web}}],
        }});
        Arc::new(serde_json::from_value(run).unwrap())
    };
    let call = |run: &Arc<HookRun>| Call { run: Arc::clone(run), metric: 0, number: 1, job: None };
    let (silent, accepted) = serve(false);
    let (long, short) = (run(&silent, 900_000), run(&serve(true).0, 10));
    let options = HttpOptions { allow_loopback: true, ..HttpOptions::default() };
    let probe = Probe::new(options, None).unwrap();
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let mut calls = JoinSet::new();
    for _ in 0..300 {
        let (probe, call) = (probe.clone(), call(&long));
        calls.spawn(async move { probe.measure(&call).await });
    }
    // A short request does not wait for the long ones.
    let outcome = probe.measure(&call(&short)).await;
    assert_eq!(outcome.phase, HookPhase::Successful, "{outcome:?}");
    while accepted.load(Ordering::Relaxed) < 49 {
        tokio::task::yield_now().await;
    }
    let peak = ALLOCATOR.peak_usage() - before;
    println!("300 requests of 900 kB: peak {peak}");
    assert!(peak < 160 << 20, "peak {peak}");
}

/// A single test, because the allocator counts the memory of the whole process.
#[test]
fn cached_objects_are_small() {
    let run = bytes_per_object(|index| {
        let run: HookRun = serde_json::from_value(hook_run(index)).unwrap();
        slim_run(run)
    });
    let [pod, foreign, orphan] = [pod, foreign_pod, orphan].map(bytes_per_pod);
    println!(
        "bytes per HookRun: {run}, per pod: {pod}, per pod of another controller: {foreign}, \
         per pod without a controller: {orphan}"
    );
    assert!(run <= MAX, "{run} bytes per HookRun");
    assert!(pod <= MAX, "{pod} bytes per pod");
    assert!(foreign <= MAX_FOREIGN, "{foreign} bytes");
    assert!(orphan <= MAX_FOREIGN, "{orphan} bytes");
    hostile_runs_are_kept_as_text();
    hostile_templates_are_kept_as_text();
    short_items_are_counted();
    arguments_are_found_without_building_paths();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(long_requests_are_limited());
}

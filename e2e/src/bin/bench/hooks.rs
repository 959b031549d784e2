//! Measures 10,000 concurrent HookRuns, each with three measurements a second apart, against a server on this
//! machine: how late they start, and what they cost.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use axum::Router;
use axum::extract::State;
use axum::http::Uri;
use e2e::case::Case;
use e2e::cluster::control_plane::ControlPlane;
use e2e::wait::eventually;
use futures::{StreamExt, TryStreamExt, stream};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The default number of HookRuns.
pub const RUNS: usize = 10_000;
/// The number of measurements per HookRun.
const MEASUREMENTS: usize = 3;
/// The number of concurrent requests by the benchmark.
const CONCURRENCY: usize = 64;
/// How long each wait may take.
const LIMIT: Duration = Duration::from_secs(600);

/// When each path was called.
type Calls = Arc<Mutex<HashMap<String, Vec<Instant>>>>;

/// The results.
pub struct Measured {
    runs: usize,
    /// Times from the creation of a run to its first call, in ascending order.
    lags: Vec<Duration>,
    /// Time from the first creation to the end of the last run.
    time: Duration,
    /// Creations per second.
    creations: f64,
    /// Status writes per second by a client that does nothing else.
    raw_writes: f64,
    status_writes: usize,
    memory: u64,
    processor: Duration,
}

/// Measures this number of HookRuns.
pub async fn measure(plane: &'static ControlPlane, runs: usize) -> Result<Measured> {
    let folder = std::env::temp_dir().join(format!("bench-hooks-{}", std::process::id()));
    let mut case = Case::open(plane, "bench-hooks", &folder).await?;
    let calls = Calls::default();
    let url = serve(Arc::clone(&calls)).await?;
    let kind = GroupVersionKind::gvk("tkex.tencent.com", "v1alpha1", "HookRun");
    let resource = ApiResource::from_gvk_with_plural(&kind, "hookruns");
    let api = Api::namespaced_with(plane.client(), &case.namespace, &resource);

    warm_up(&api, &url, &calls).await?;

    let writes_before = case.writes()?.resource("hookruns/status");
    let memory = case.operator.memory()?;
    let processor = case.operator.processor_time()?;
    let started = Instant::now();
    let created = create(&api, &url, runs).await?;
    let creations = runs as f64 / started.elapsed().as_secs_f64();
    eventually("all calls are made", LIMIT, async || {
        let count = { lock(&calls).values().map(Vec::len).sum::<usize>() };
        ensure!(count >= runs * MEASUREMENTS, "{count} calls");
        Ok(())
    })
    .await?;
    let memory = case.operator.memory()?.saturating_sub(memory);
    eventually("all runs have ended", LIMIT, async || {
        let list = api.list(&Default::default()).await?;
        let ended = list.iter().filter(|run| run.data["status"]["phase"] == "Successful").count();
        ensure!(ended == runs, "{ended} runs");
        Ok(())
    })
    .await?;
    let time = started.elapsed();
    let processor = case.operator.processor_time()?.saturating_sub(processor);
    let status_writes = case.writes()?.resource("hookruns/status") - writes_before;
    case.operator.terminate().await?;
    let raw_writes = raw_writes(&api, runs).await?;

    let calls = lock(&calls);
    let first_call = |index: &usize| calls.get(&format!("/{index}"))?.first().copied();
    let lag = |(index, created): (usize, Instant)| {
        first_call(&index).map(|call| call.saturating_duration_since(created))
    };
    let mut lags: Vec<Duration> = created.into_iter().filter_map(lag).collect();
    lags.sort();
    Ok(Measured { runs, lags, time, creations, raw_writes, status_writes, memory, processor })
}

/// Waits until a first run has ended, which shows that the operator is the leader and works.
async fn warm_up(api: &Api<DynamicObject>, url: &str, calls: &Calls) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(hook_run(url, usize::MAX))?;
    let created = api.create(&PostParams::default(), &object).await?;
    let name = created.metadata.name.unwrap_or_default();
    eventually("the operator works", LIMIT, async || {
        let run = api.get(&name).await?;
        ensure!(run.data["status"]["phase"] == "Successful", "{name} is still running");
        Ok(())
    })
    .await?;
    api.delete(&name, &Default::default()).await?;
    lock(calls).clear();
    Ok(())
}

fn lock(calls: &Calls) -> MutexGuard<'_, HashMap<String, Vec<Instant>>> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a server that answers each call immediately and records when it arrived. Returns its URL.
async fn serve(calls: Calls) -> Result<String> {
    let answer = async |State(calls): State<Calls>, uri: Uri| {
        let now = Instant::now();
        lock(&calls).entry(uri.path().to_owned()).or_default().push(now);
        r#"{"age":45}"#
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let router = Router::new().fallback(answer).with_state(calls);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            eprintln!("the server ended: {error}");
        }
    });
    Ok(url)
}

fn hook_run(url: &str, index: usize) -> Value {
    json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookRun",
        "metadata": {"name": format!("run-{index}")},
        "spec": {"metrics": [{
            "name": "age", "count": MEASUREMENTS, "interval": "1s",
            "successCondition": "asInt(result) > 30",
            "provider": {"web": {"url": format!("{url}/{index}"), "jsonPath": "{$.age}"}},
        }]},
    })
}

/// Creates the runs. Returns the time at which the creation of each was requested.
async fn create(api: &Api<DynamicObject>, url: &str, runs: usize) -> Result<Vec<(usize, Instant)>> {
    stream::iter(0..runs)
        .map(async |index| {
            let object: DynamicObject = serde_json::from_value(hook_run(url, index))?;
            let requested = Instant::now();
            api.create(&PostParams::default(), &object).await?;
            anyhow::Ok((index, requested))
        })
        .buffer_unordered(CONCURRENCY)
        .try_collect()
        .await
}

/// How many status writes per second the API server accepts from a client that does nothing else.
async fn raw_writes(api: &Api<DynamicObject>, runs: usize) -> Result<f64> {
    let started = Instant::now();
    stream::iter(0..runs)
        .map(async |index| {
            let patch = json!({"status": {"message": "written again"}});
            let patch = Patch::Merge(&patch);
            let name = format!("run-{index}");
            api.patch_status(&name, &PatchParams::default(), &patch).await?;
            anyhow::Ok(())
        })
        .buffer_unordered(CONCURRENCY)
        .try_for_each(async |()| Ok(()))
        .await?;
    Ok(runs as f64 / started.elapsed().as_secs_f64())
}

impl Measured {
    fn lag(&self, percent: usize) -> Duration {
        let last = self.lags.len().saturating_sub(1);
        self.lags.get(last * percent / 100).copied().unwrap_or_default()
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.runs as f64;
        let measurements = runs * MEASUREMENTS as f64;
        let rows = [
            ("start lag p50", format!("{:?}", self.lag(50))),
            ("start lag p99", format!("{:?}", self.lag(99))),
            ("time for all", format!("{:.1} s", self.time.as_secs_f64())),
            ("creations", format!("{:.0}/s", self.creations)),
            (
                "status writes",
                format!("{:.0}/s", self.status_writes as f64 / self.time.as_secs_f64()),
            ),
            ("status writes of a bare client", format!("{:.0}/s", self.raw_writes)),
            (
                "status writes per measurement",
                format!("{:.2}", self.status_writes as f64 / measurements),
            ),
            (
                "memory per run, cached object and garbage included",
                format!("{:.1} kB", self.memory as f64 / runs / 1024.0),
            ),
            (
                "CPU time per measurement",
                format!("{:.0} µs", self.processor.as_secs_f64() * 1e6 / measurements),
            ),
        ];
        writeln!(f, "| {} HookRuns of {MEASUREMENTS} measurements | |", self.runs)?;
        writeln!(f, "|---|---|")?;
        for (name, value) in rows {
            writeln!(f, "| {name} | {value} |")?;
        }
        Ok(())
    }
}

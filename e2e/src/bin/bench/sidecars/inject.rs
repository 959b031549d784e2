//! The webhook that injects sidecars into pods of other controllers: how long it takes per pod while 100 pods are
//! created per second. The pods are never scheduled, so simulated kubelets do not compete with the webhook for
//! processors.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::addons::webhook::Webhook;
use e2e::case::Case;
use e2e::cluster::control_plane::ControlPlane;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use tokio::task::JoinSet;
use tokio::time::interval;

use super::{create_sets, server_page};
use crate::histogram::Histogram;
use crate::scale::figures::Times;
use crate::scale::foreign::pod;
use crate::scale::{open, until_at_rest};

/// The default number of pods.
pub const PODS: usize = 3000;
/// Pods per second.
const RATE: u32 = 100;
/// The aim: 99% of the calls take no longer than this, in microseconds.
const AIM: u64 = 5000;
/// The label `app` of the pods.
const APP: &str = "other";

/// The results.
pub struct Measured {
    pods: usize,
    took: Duration,
    /// The operator's handling of a call, from the parsed request to the response.
    handling: Histogram,
    /// The call as the API server sees it, network, TLS and the reading of the pod included.
    calls: Histogram,
    times: Times,
}

/// The durations of all calls of the webhook so far.
struct WebhookTimes {
    handling: Histogram,
    calls: Histogram,
}

/// Measures the injection into this number of pods.
pub async fn measure(plane: &'static ControlPlane, pods: usize) -> Result<Measured> {
    let (mut case, folder) = open(plane, "inject", &[]).await?;
    let installed = Webhook::install(&mut case, "2160h").await?;
    installed.until_called(&case).await?;
    let label = "gamekeeper.tkex.tencent.com/sidecars=enabled";
    case.kubectl(&["label", "namespace", &case.namespace, label]).await?;
    create_sets(&case, APP).await?;
    let api: Api<Pod> = Api::namespaced(plane.client(), &case.namespace);
    let probe: Pod = serde_json::from_value(pod(pods, None))?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    case.eventually("new pods get sidecars", async || {
        ensure_injected(&api.create(&dry_run, &probe).await?)
    })
    .await?;
    until_at_rest(&case).await?;
    eprintln!("sidecars: {pods} pods at {RATE} per second");
    let (before, times) = (WebhookTimes::now(&case).await?, Times::now(&case)?);
    let started = Instant::now();
    create(&api, pods).await?;
    let took = started.elapsed();
    // The metrics page that the operator returns may be a few moments old.
    until_at_rest(&case).await?;
    let after = WebhookTimes::now(&case).await?;
    let measured = Measured {
        pods,
        took,
        handling: after.handling.since(&before.handling),
        calls: after.calls.since(&before.calls),
        times: Times::now(&case)?.since(times),
    };
    installed.remove(&case).await?;
    case.operator.terminate().await?;
    std::fs::remove_dir_all(&folder)?;
    Ok(measured)
}

/// Creates pods at an even rate.
async fn create(api: &Api<Pod>, pods: usize) -> Result<()> {
    let mut beat = interval(Duration::from_secs(1) / RATE);
    let mut in_flight = JoinSet::new();
    for number in 0..pods {
        beat.tick().await;
        let (api, pod) = (api.clone(), serde_json::from_value(pod(number, None))?);
        in_flight.spawn(async move { api.create(&PostParams::default(), &pod).await });
    }
    while let Some(created) = in_flight.join_next().await {
        ensure_injected(&created?.context("create a pod")?)?;
    }
    Ok(())
}

fn ensure_injected(pod: &Pod) -> Result<()> {
    let spec = pod.spec.as_ref().context("no spec")?;
    let native = spec.init_containers.iter().flatten();
    let names = spec.containers.iter().chain(native).map(|container| &*container.name);
    let names: Vec<&str> = names.collect();
    ensure!(names == ["web", "log", "mesh"], "{names:?}");
    Ok(())
}

impl WebhookTimes {
    async fn now(case: &Case) -> Result<Self> {
        let (code, page) = case.operator.get("/metrics").await?;
        ensure!(code == 200, "/metrics returns {code}: {page}");
        let handling = "gamekeeper_admission_request_duration_seconds";
        let handling = Histogram::read(&page, handling, &[("kind", "Pod")]);
        let calls = "apiserver_admission_webhook_admission_duration_seconds";
        let page = server_page(case.plane()).await?;
        let name = ("name", "inject.gamekeeper.tkex.tencent.com");
        let calls = Histogram::read(&page, calls, &[name, ("operation", "CREATE")]);
        Ok(Self { handling, calls })
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.pods as f64 / self.took.as_secs_f64();
        let aim = AIM / 1000;
        writeln!(
            f,
            "| {} pods, {rate:.0} a second, two SidecarSets | calls | p50 | p99 | within {aim} ms |",
            self.pods
        )?;
        writeln!(f, "|---|---|---|---|---|")?;
        for (name, durations) in [
            ("the operator's handling", &self.handling),
            ("the call, as kube-apiserver sees it", &self.calls),
        ] {
            let (calls, share) = (durations.count(), durations.share_within(AIM) * 1e2);
            let (p50, p99) = (durations.quantile(0.5), durations.quantile(0.99));
            writeln!(f, "| {name} | {calls} | {p50:.2} ms | {p99:.2} ms | {share:.2}% |")?;
        }
        let calls = self.calls.count() as f64 / self.pods as f64;
        let per_pod = |time: Duration| time.as_secs_f64() * 1e3 / self.pods as f64;
        writeln!(
            f,
            "\n{calls:.2} calls per pod. CPU time per pod: {:.2} ms of the operator, {:.2} ms of kube-apiserver.",
            per_pod(self.times.operator),
            per_pod(self.times.server)
        )
    }
}

//! What the page of `kubectl game view` costs with many pods, in a real Chromium: until all tiles are painted, from a
//! change of a pod to its tile, and its heap.

use std::fmt;

use anyhow::{Context, Result, bail};
use e2e::browser::{PageServer, Tab};
use e2e::case::Case;
use e2e::cluster::control_plane::ControlPlane;
use e2e::workload::GAME;
use e2e::workload::manifest::Game;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::pods::Pods;
use crate::report::median;

/// The default number of pods.
pub const PODS: usize = 3_000;
/// The number of reloads, and of pods that are changed.
const ROUNDS: usize = 10;

/// The annotation with which `kubectl game move` requests the replacement of a pod.
const MOVE_ANNOTATION: &str = "gamekeeper.tkex.tencent.com/move-requested";
/// Resolves to the time since the start of the navigation at which all tiles have been painted.
const PAINTED: &str = "window.painted = new Promise((done) => { const look = () => \
    document.querySelectorAll('.tile').length >= PODS \
    ? requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))) \
    : requestAnimationFrame(look); look(); })";
/// Resolves to the time of the clock at which the tile of POD has changed, and the next frame was drawn.
const CHANGED: &str = "window.changed = new Promise((done) => { \
    const tile = document.querySelector(\".tile[data-pod='POD']\"); \
    new MutationObserver((_, it) => { it.disconnect(); \
    requestAnimationFrame(() => done(performance.timeOrigin + performance.now())); }) \
    .observe(tile, { attributes: true, attributeFilter: ['class'] }); }), true";

/// The results.
pub struct Measured {
    pods: usize,
    /// Milliseconds from the start of the navigation until all tiles are painted.
    painted: Vec<f64>,
    /// Milliseconds from the request that changes a pod until its tile is painted.
    changed: Vec<f64>,
    /// The heap of the page's JavaScript, in bytes.
    heap: f64,
}

/// Measures this number of pods in one workload.
pub async fn measure(plane: &'static ControlPlane, pods: usize) -> Result<Measured> {
    let folder = std::env::temp_dir().join(format!("bench-view-{}", std::process::id()));
    let mut case = Case::open(plane, "bench-view", &folder).await?;
    let outcome = measure_in(&mut case, pods).await;
    plane.audit.forget(&case.namespace);
    std::fs::remove_dir_all(&folder)?;
    outcome
}

async fn measure_in(case: &mut Case, pods: usize) -> Result<Measured> {
    let watched = Pods::watch(case.plane().client(), &case.namespace);
    case.apply(Game::in_place(i64::try_from(pods)?)).await?;
    watched.until_ready(pods, "game:v1").await?;
    // It would replace the pods that are changed.
    case.operator.terminate().await?;
    let server = PageServer::start(case, &[GAME]).await?;
    let Some((_browser, tab)) = server.browse().await? else {
        bail!("there is no browser");
    };
    let painted = PAINTED.replace("PODS", &pods.to_string());
    tab.call("Page.addScriptToEvaluateOnNewDocument", json!({"source": painted})).await?;
    let mut measured = Measured { pods, painted: Vec::new(), changed: Vec::new(), heap: 0.0 };
    for _ in 0..ROUNDS {
        tab.call("Page.reload", json!({})).await?;
        tab.until("the page is loaded again", "window.painted").await?;
        measured.painted.push(number(&tab.evaluate("window.painted").await?)?);
    }
    for pod in case.view().await?.pod_names().into_iter().step_by(pods / ROUNDS).take(ROUNDS) {
        measured.changed.push(change(case, &tab, pod).await?);
    }
    tab.call("HeapProfiler.collectGarbage", json!({})).await?;
    measured.heap = number(&tab.call("Runtime.getHeapUsage", json!({})).await?["usedSize"])?;
    Ok(measured)
}

/// Requests the replacement of a pod, and returns how many milliseconds later its tile shows it.
async fn change(case: &Case, tab: &Tab, pod: &str) -> Result<f64> {
    tab.evaluate(&CHANGED.replace("POD", pod)).await?;
    let patch =
        json!([{"op": "add", "path": "/metadata/annotations", "value": {MOVE_ANNOTATION: "true"}}]);
    let sent = Timestamp::now();
    case.patch(&format!("pods/{pod}"), patch).await?;
    let shown = number(&tab.evaluate("window.changed").await?)?;
    Ok(shown - sent.as_microsecond() as f64 / 1000.0)
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("{value} is not a number"))
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pods, painted, changed, heap } = self;
        let row =
            |values: &[f64]| (median(values.to_vec()), values.iter().copied().fold(0.0, f64::max));
        let (paint, slowest_paint) = row(painted);
        let (change, slowest_change) = row(changed);
        writeln!(f, "kubectl game view, {pods} pods of one workload | median | slowest")?;
        writeln!(f, "all tiles painted after a reload | {paint:.0} ms | {slowest_paint:.0} ms")?;
        writeln!(f, "a changed pod shown | {change:.0} ms | {slowest_change:.0} ms")?;
        writeln!(f, "heap | {:.1} MB |", heap / 1e6)
    }
}

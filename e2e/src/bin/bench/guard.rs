//! What guards cost: the pods of a workload with a PreDelete hook are created and deleted, with and without a guard.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::addons::policy::{install, uninstall};
use e2e::case::Case;
use e2e::cluster::control_plane::ControlPlane;
use e2e::servers::hook_server::Answer;
use e2e::wait::eventually;
use e2e::workload::manifest::{Game, hook_template};
use judge::Counts;
use serde_json::json;

use crate::pods::Pods;
use crate::report::median;
use crate::subject::until_quiet;

/// The default number of pods.
pub const PODS: usize = 200;
/// The number of rounds. In each, a plain workload is measured first, and then a guarded one.
const ROUNDS: usize = 3;
/// The time limit for a guard to come into force.
const LIMIT: Duration = Duration::from_secs(60);

/// The results of all rounds.
pub struct Measured {
    pods: usize,
    plain: Vec<Life>,
    guarded: Vec<Life>,
}

/// What it costs to create the pods of a workload and to delete them again.
struct Life {
    creation: Phase,
    deletion: Phase,
}

struct Phase {
    /// Time from the request to the last pod.
    time: Duration,
    /// The operator's writes.
    writes: Counts,
}

/// Measures this number of pods.
pub async fn measure(plane: &'static ControlPlane, pods: usize) -> Result<Measured> {
    let mut measured = Measured { pods, plain: Vec::new(), guarded: Vec::new() };
    for round in 1..=ROUNDS {
        let game = Game::in_place(0).pre_delete("test");
        eprintln!("round {round} of {ROUNDS}: {pods} pods with a hook, not guarded");
        let name = format!("bench-plain-{round}");
        measured.plain.push(life(plane, &name, &game, pods).await?);
        eprintln!("round {round} of {ROUNDS}: {pods} pods with a hook, guarded");
        let (name, game) = (format!("bench-guarded-{round}"), game.guarded());
        measured.guarded.push(life(plane, &name, &game, pods).await?);
    }
    Ok(measured)
}

/// Scales a workload from no pods to this number and back. Its hook allows each deletion immediately.
async fn life(plane: &'static ControlPlane, name: &str, game: &Game, pods: usize) -> Result<Life> {
    let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    let mut case = Case::open(plane, name, &folder).await?;
    let value = "admission.guardedPods=true";
    install(&case, value, "guard", &[&case.namespace]).await?;
    case.hooks.answer("/", Answer::Json(json!({"age": 45})));
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(game).await?;
    let is_guarded = game.to_string().contains("\"Guarded\"");
    eventually("the workload has settled", LIMIT, async || {
        let view = case.view().await?;
        let is_ready = view.is_settled(0) && view.is_true("Guarded") == is_guarded;
        view.ensure(is_ready)
    })
    .await?;
    let watched = Pods::watch(plane.client(), &case.namespace);
    let creation = phase(&case, pods, async || watched.until_ready(pods, "game:v1").await);
    let creation = creation.await?;
    let query = "pods?labelSelector=gamekeeper.tkex.tencent.com/guarded";
    let labeled = case.list(query).await?.len();
    ensure!(labeled == if is_guarded { pods } else { 0 }, "{labeled} labeled pods");
    let deletion = phase(&case, 0, async || watched.until("deleted", |pods| pods.len() == 0).await);
    let deletion = deletion.await?;
    case.operator.terminate().await?;
    uninstall(&case, "guard").await?;
    plane.audit.forget(&case.namespace);
    std::fs::remove_dir_all(&folder)?;
    Ok(Life { creation, deletion })
}

/// Scales the workload, and waits for its pods.
async fn phase(
    case: &Case,
    replicas: usize,
    until_done: impl AsyncFn() -> Result<()>,
) -> Result<Phase> {
    let before = case.writes()?;
    let start = Instant::now();
    let replicas = json!([{"op": "replace", "path": "/spec/replicas", "value": replicas}]);
    case.plane().patch(&case.path(), &replicas).await?;
    until_done().await?;
    let time = start.elapsed();
    let after = until_quiet(|| own_writes(case), |writes| writes).await?;
    Ok(Phase { time, writes: after.since(&before) })
}

/// The operator's writes so far, except to its lease.
fn own_writes(case: &Case) -> Result<Counts> {
    let mut writes = case.writes()?;
    writes.0.retain(|kind, _| kind.resource != "leases");
    Ok(writes)
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pods = self.pods;
        writeln!(
            f,
            "| {pods} pods with a PreDelete hook | 0 to {pods} | writes per pod | {pods} to 0 | writes per pod |"
        )?;
        writeln!(f, "|---|---|---|---|---|")?;
        for (name, lives) in [("not guarded", &self.plain), ("guarded", &self.guarded)] {
            let cells = |pick: fn(&Life) -> &Phase| {
                let median_of = |value: &dyn Fn(&Phase) -> f64| {
                    median(lives.iter().map(|life| value(pick(life))).collect())
                };
                let time = median_of(&|phase| phase.time.as_secs_f64());
                let per_pod = |count: usize| count as f64 / pods as f64;
                let pod_writes = |writes: &Counts| writes.sum(|it| it.resource.starts_with("pods"));
                let all = median_of(&|phase| per_pod(phase.writes.sum(|_| true)));
                let to_pods = median_of(&|phase| per_pod(pod_writes(&phase.writes)));
                let refused = median_of(&|phase| phase.writes.sum(|it| it.code >= 400) as f64);
                format!("{time:.1} s | {to_pods:.2} to pods, {all:.2} in all, {refused:.0} refused")
            };
            let creation = cells(|life| &life.creation);
            let deletion = cells(|life| &life.deletion);
            writeln!(f, "| {name} | {creation} | {deletion} |")?;
        }
        Ok(())
    }
}

//! `bench fleet`: what a large fleet costs, by default 20,000 pods in workloads of 1,000 on 200 nodes with heartbeats:
//! the operator's CPU time per pod by tenths, without what it takes at rest; its memory; what it takes at rest, and what its
//! watches cost the API server; an update of one workload among all others; /metrics; and how soon it is ready and acts
//! after kill -9, and after a takeover by the standby. `fleet foreign` adds five times as many pods of another controller.

mod nodes;
mod report;
mod restart;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::cluster::control_plane::ControlPlane;
use e2e::workload::manifest::Game;
use serde_json::{Value, json};
use tokio::time::sleep;

use self::report::{Measured, Rest, Tenth, Update};
use crate::pods::Pods;
use crate::scale::figures::Times;
use crate::scale::{foreign, open, until_at_rest};

/// The default number of pods.
pub const PODS: usize = 20_000;
/// The number of pods of each workload, in a fleet of at least ten times as many.
const PER_WORKLOAD: usize = 1_000;
/// All pods are in one namespace, which has room for 30,000 by default.
const ROOM_IN_NAMESPACE: &str = "--cache-namespace-mib=320";
/// How long the operator is observed at rest between two tenths, to subtract what it takes then.
const SHORT_REST: Duration = Duration::from_secs(10);
/// How long it is observed at rest, once all pods are ready.
const LONG_REST: Duration = Duration::from_secs(60);

/// A fleet of pods in workloads of the same size.
pub(crate) struct Fleet {
    case: Case,
    pods: Pods,
    size: usize,
    per_workload: usize,
}

/// Measures a fleet of this size.
pub async fn measure(
    plane: &'static ControlPlane,
    part: Option<&str>,
    size: usize,
) -> Result<Measured> {
    ensure!(part.is_none_or(|it| it == "foreign"), "fleet has the part foreign");
    ensure!(size >= 10 && size.is_multiple_of(10), "not a multiple of ten: {size}");
    let _heartbeats = nodes::create(plane).await?;
    let (case, folder) = open(plane, "fleet", &[ROOM_IN_NAMESPACE]).await?;
    let foreign = if part.is_some() { 5 * size } else { 0 };
    if foreign > 0 {
        eprintln!("{foreign} pods of another controller");
        foreign::create_controlled(&case, foreign).await?;
    }
    // Opened after the pods of another controller, which do not count.
    let pods = Pods::watch_selected(plane.client(), &case.namespace, "fleet=games");
    let per_workload = PER_WORKLOAD.min(size / 10);
    let mut fleet = Fleet { case, pods, size: size / per_workload * per_workload, per_workload };
    let measured = fleet.measure(foreign).await?;
    fleet.case.operator.terminate().await?;
    std::fs::remove_dir_all(&folder)?;
    Ok(measured)
}

impl Fleet {
    async fn measure(&mut self, foreign: usize) -> Result<Measured> {
        until_at_rest(&self.case).await?;
        let memory = self.case.operator.memory()?;
        let tenths = self.grow().await?;
        let memory = self.case.operator.memory()?.saturating_sub(memory);
        eprintln!("at rest for {LONG_REST:?}");
        let rest = self.rest().await?;
        let update = self.update().await?;
        let page = self.page().await?;
        let restarts = self.restarts().await?;
        let takeovers = self.takeovers().await?;
        Ok(Measured {
            pods: self.size,
            per_workload: self.per_workload,
            foreign,
            tenths,
            memory,
            rest,
            update,
            page,
            restarts,
            takeovers,
        })
    }

    /// Creates the workloads, a tenth of all pods at a time.
    async fn grow(&self) -> Result<Vec<Tenth>> {
        let workloads = self.size / self.per_workload;
        let mut tenths = Vec::new();
        for tenth in 0..10 {
            let numbers = workloads * tenth / 10..workloads * (tenth + 1) / 10;
            let (pods, done) = (numbers.len() * self.per_workload, numbers.end * self.per_workload);
            eprintln!("{done} of {} pods", self.size);
            let games: Vec<Value> = numbers.map(|it| self.game(it).into()).collect();
            let (before, started) = (Times::now(&self.case)?, Instant::now());
            self.case.apply(json!({"apiVersion": "v1", "kind": "List", "items": games})).await?;
            self.pods.until_ready(done, "game:v1").await?;
            let took = started.elapsed();
            until_at_rest(&self.case).await?;
            let (times, whole) = (Times::now(&self.case)?.since(before), started.elapsed());
            let rest = self.observe(SHORT_REST).await?;
            tenths.push(Tenth { pods, took, whole, times, rest });
        }
        Ok(tenths)
    }

    fn game(&self, number: usize) -> Game {
        Game::in_place(self.per_workload as i64)
            .max_unavailable("10%")
            .named(&workload(number))
            .set("/spec/template/metadata/labels/fleet", "games")
    }

    /// The processor time of the operator and the API server while nothing happens, per second.
    async fn observe(&self, time: Duration) -> Result<Times> {
        let (before, started) = (Times::now(&self.case)?, Instant::now());
        sleep(time).await;
        let used = Times::now(&self.case)?.since(before);
        Ok(used.per(started.elapsed()))
    }

    /// What is used at rest, with the operator and without it.
    async fn rest(&mut self) -> Result<Rest> {
        let with = self.observe(LONG_REST).await?;
        self.case.operator.terminate().await?;
        let without = self.observe(LONG_REST).await?;
        self.case.operator.start().await?;
        until_at_rest(&self.case).await?;
        Ok(Rest { with, without })
    }

    /// Updates one workload in place, while all others stay as they are.
    async fn update(&self) -> Result<Update> {
        eprintln!("an update of {} pods", self.per_workload);
        let (before, started) = (Times::now(&self.case)?, Instant::now());
        let image = json!([{
            "op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "game:v2",
        }]);
        self.case.plane().patch(&self.path(0), &image).await?;
        self.pods.until_ready(self.per_workload, "game:v2").await?;
        let took = started.elapsed();
        until_at_rest(&self.case).await?;
        Ok(Update { took, times: Times::now(&self.case)?.since(before) })
    }

    /// The size of /metrics in bytes, and the time until it is read.
    async fn page(&self) -> Result<(usize, Duration)> {
        let started = Instant::now();
        let (_, page) = self.case.operator.get("/metrics").await?;
        Ok((page.len(), started.elapsed()))
    }

    /// The path of a workload.
    fn path(&self, number: usize) -> String {
        let namespace = &self.case.namespace;
        let name = workload(number);
        format!("/apis/tkex.tencent.com/v1alpha1/namespaces/{namespace}/gamedeployments/{name}")
    }
}

fn workload(number: usize) -> String {
    format!("fleet-{number:04}")
}

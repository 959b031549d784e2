//! Compares pods that get their sidecars from SidecarSets with pods whose template contains them. One operator creates
//! both in turn, and the order alternates, because machines are noisy.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::case::Case;
use e2e::cluster::control_plane::ControlPlane;
use e2e::workload::manifest::Game;
use judge::{Counts, Event};
use serde_json::json;

use super::{agent, create_sets, proxy, server_page};
use crate::pods::Pods;
use crate::report::median;
use crate::scale::figures::Times;
use crate::scale::{open, until_at_rest};

/// The default number of pods.
pub const PODS: usize = 1000;
/// How many times each workload is measured.
const ROUNDS: usize = 5;

/// Where a workload's sidecars come from; also its name and the label `app` of its pods.
const IN_TEMPLATE: &str = "in-template";
const INJECTED: &str = "injected";

/// The cost of creating all pods once.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// How long it took until all pods were created.
    created: Duration,
    /// How long it took until all pods were ready.
    ready: Duration,
    times: Times,
    /// Writes by the operator in the namespace, except to its lease.
    writes: usize,
    /// Writes to the status of SidecarSets, which are cluster-scoped.
    status_writes: usize,
}

/// The results.
pub struct Measured {
    pods: usize,
    in_template: Vec<Cost>,
    injected: Vec<Cost>,
}

/// Measures workloads of this size.
pub async fn measure(plane: &'static ControlPlane, pods: usize) -> Result<Measured> {
    let (mut case, folder) = open(plane, "sidecars", &[]).await?;
    create_sets(&case, INJECTED).await?;
    let plain = || Game::in_place(0);
    case.apply(plain().named(INJECTED)).await?;
    let (container, volume) = agent();
    let in_template = plain().named(IN_TEMPLATE);
    let in_template = in_template.set("/spec/template/spec/volumes", json!([volume]));
    let in_template = in_template.set("/spec/template/spec/initContainers", json!([proxy()]));
    let game = json!({"name": "game", "image": "game:v1"});
    let containers = json!([game, container]);
    case.apply(in_template.set("/spec/template/spec/containers", containers)).await?;
    let run = Run { watched: Pods::watch(plane.client(), &case.namespace), case: &case, pods };
    let mut measured = Measured { pods, in_template: Vec::new(), injected: Vec::new() };
    // The first pods of an operator cost more: it fills its caches and opens connections.
    run.measure_once(IN_TEMPLATE).await?;
    for round in 0..ROUNDS {
        eprintln!("sidecars: round {} of {ROUNDS}", round + 1);
        let mut order = [IN_TEMPLATE, INJECTED];
        if round % 2 == 1 {
            order.reverse();
        }
        for name in order {
            let cost = run.measure_once(name).await?;
            eprintln!("{name}: {cost:?}");
            let costs = match name {
                IN_TEMPLATE => &mut measured.in_template,
                _ => &mut measured.injected,
            };
            costs.push(cost);
        }
    }
    case.operator.terminate().await?;
    plane.audit.forget(&case.namespace);
    std::fs::remove_dir_all(&folder)?;
    Ok(measured)
}

struct Run<'a> {
    case: &'a Case,
    watched: Pods,
    pods: usize,
}

impl Run<'_> {
    /// Creates all pods of a workload, and deletes them again.
    async fn measure_once(&self, name: &str) -> Result<Cost> {
        until_at_rest(self.case).await?;
        let (times, writes) = (Times::now(self.case)?, self.writes()?);
        let status_writes = self.status_writes().await?;
        let started = Instant::now();
        self.scale(name, self.pods).await?;
        self.watched.until("created", |pods| pods.len() == self.pods).await?;
        let created = started.elapsed();
        self.watched.until_ready(self.pods, "game:v1").await?;
        let ready = started.elapsed();
        until_at_rest(self.case).await?;
        let cost = Cost {
            created,
            ready,
            times: Times::now(self.case)?.since(times),
            writes: self.writes()? - writes,
            status_writes: self.status_writes().await? - status_writes,
        };
        self.scale(name, 0).await?;
        self.watched.until("deleted", |pods| pods.len() == 0).await?;
        Ok(cost)
    }

    async fn scale(&self, name: &str, replicas: usize) -> Result<()> {
        let namespace = &self.case.namespace;
        let path = format!(
            "/apis/tkex.tencent.com/v1alpha1/namespaces/{namespace}/gamedeployments/{name}"
        );
        let replicas = json!([{"op": "replace", "path": "/spec/replicas", "value": replicas}]);
        self.case.plane().patch(&path, &replicas).await?;
        Ok(())
    }

    fn writes(&self) -> Result<usize> {
        let operator = self.case.operator.username();
        let events = self.case.plane().audit.writes(&self.case.namespace)?;
        let is_by_operator = |event: &Event| event.user.username == operator;
        let counts = Counts::of(&events, is_by_operator);
        Ok(counts.sum(|write| write.resource != "leases"))
    }

    async fn status_writes(&self) -> Result<usize> {
        let page = server_page(self.case.plane()).await?;
        let rows = page.lines().filter(|line| {
            line.starts_with("apiserver_request_total{")
                && line.contains("resource=\"sidecarsets\"")
                && line.contains("subresource=\"status\"")
        });
        let counts = rows.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        Ok(counts.sum::<f64>() as usize)
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pods = self.pods as f64;
        type Pick = fn(&Cost) -> f64;
        let rows: [(&str, f64, Pick); 6] = [
            ("until all are created, s", 1.0, |cost| cost.created.as_secs_f64()),
            ("until all are ready, s", 1.0, |cost| cost.ready.as_secs_f64()),
            ("operator, ms of CPU time per pod", 1e3 / pods, |cost| {
                cost.times.operator.as_secs_f64()
            }),
            ("kube-apiserver, ms of CPU time per pod", 1e3 / pods, |cost| {
                cost.times.server.as_secs_f64()
            }),
            ("writes by the operator per pod", 1.0 / pods, |cost| cost.writes as f64),
            ("writes to the status of the sets", 1.0, |cost| cost.status_writes as f64),
        ];
        writeln!(
            f,
            "Medians of {} rounds; ratios are medians of the rounds' ratios.\n",
            self.in_template.len()
        )?;
        writeln!(
            f,
            "| {} pods created | containers in the template | from two SidecarSets | ratio |",
            self.pods
        )?;
        writeln!(f, "|---|---|---|---|")?;
        for (name, unit, pick) in rows {
            let values_of = |costs: &[Cost]| costs.iter().map(pick).collect::<Vec<_>>();
            let (in_template, injected) = (values_of(&self.in_template), values_of(&self.injected));
            let both = in_template.iter().zip(&injected);
            let ratio =
                median(both.map(|(in_template, injected)| injected / in_template).collect());
            let [in_template, injected] =
                [in_template, injected].map(|values| median(values) * unit);
            let ratio = if ratio.is_finite() { format!("{ratio:.2}") } else { String::new() };
            writeln!(f, "| {name} | {in_template:.2} | {injected:.2} | {ratio} |")?;
        }
        Ok(())
    }
}

//! The controllers, the watches they live on, and when they may work.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

use super::RunError;
use super::lease::Elector;
use super::metrics::Counted;
use crate::api::names::WorkloadKind;
use crate::apply::events::{Events, Regarding, Told};
use crate::apply::{Applier, Requests};
use crate::cache::{BrokenSink, Cache, Cached, Mirror, Router, Sink, Whole, WorkloadSink};
use crate::controller::{HookRuns, Queue, Queues, Shared, Workloads, work};
use crate::plan::{Event, Planned};
use crate::provider::Probe;

/// Workloads that are looked at side by side.
const WORKLOADS: usize = 64;
/// HookRuns likewise; most of them wait for their turn to write.
const HOOK_RUNS: usize = 16_384;
/// How long syncs may take to end when the process is to end.
const FINISH: Duration = Duration::from_secs(10);

/// The controllers and all that they share.
pub struct Operator {
    cache: Arc<Cache>,
    requests: Requests,
    events: Events,
    game_deployments: Arc<Queue>,
    game_stateful_sets: Arc<Queue>,
    hook_runs: Arc<Queue>,
    counted: Counted,
    probe: Probe,
    /// The watches and the writer of events.
    lasting: JoinSet<()>,
}

impl Operator {
    /// Starts the watches, and the writer of events, who signs as `instance`.
    pub fn new(
        client: &Client,
        namespace: Option<&str>,
        streaming: bool,
        probe: Probe,
        instance: String,
        counted: Counted,
    ) -> Self {
        let requests = Requests::new(client.clone());
        let (events, writer) = Events::new();
        let cache = Arc::new(Cache::new(client, namespace, streaming));
        let game_deployments = Arc::new(Queue::default());
        let game_stateful_sets = Arc::new(Queue::default());
        let hook_runs = Arc::new(Queue::default());
        let router = Router::new(
            workload_sink(&game_deployments, &game_stateful_sets),
            sink(&hook_runs),
            broken(events.clone()),
        );
        let mut lasting = cache.start(&Arc::new(router));
        lasting.spawn(writer.run(requests.clone(), instance));
        Self {
            cache,
            requests,
            events,
            game_deployments,
            game_stateful_sets,
            hook_runs,
            counted,
            probe,
            lasting,
        }
    }

    /// What the cluster looks like.
    pub fn cache(&self) -> Arc<Cache> {
        Arc::clone(&self.cache)
    }

    /// The queues, by the name of their controller.
    pub fn queues(&self) -> Queues {
        Queues(vec![
            ("gamedeployment", Arc::clone(&self.game_deployments)),
            ("gamestatefulset", Arc::clone(&self.game_stateful_sets)),
            ("hookrun", Arc::clone(&self.hook_runs)),
        ])
    }

    /// Works until told to stop: always, or (with an elector) while this process leads.
    pub async fn run(
        mut self,
        elector: Option<Elector>,
        stop: watch::Receiver<bool>,
    ) -> Result<(), RunError> {
        let mut lasting = std::mem::take(&mut self.lasting);
        let work = async {
            match elector {
                Some(elector) => self.lead(elector, stop).await,
                None => {
                    self.control(stop).await;
                    Ok(())
                }
            }
        };
        tokio::select! {
            ended = work => ended,
            ended = lasting.join_next() => Err(RunError::Broken(ended)),
        }
    }

    /// Works from when this process leads until it is told to stop, or has lost the lease.
    async fn lead(
        &self,
        mut elector: Elector,
        mut stop: watch::Receiver<bool>,
    ) -> Result<(), RunError> {
        let leads = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => false,
            () = elector.acquire() => true,
        };
        if leads {
            let (end, ended) = watch::channel(false);
            let controllers = self.control(ended);
            tokio::pin!(controllers);
            tokio::select! {
                () = &mut controllers => {}
                () = elector.hold() => return Err(RunError::LeaseLost),
                _ = stop.wait_for(|stop| *stop) => {}
            }
            end.send_replace(true);
            // Syncs end while the lease is still held.
            tokio::select! {
                () = &mut controllers => {}
                () = elector.hold() => {}
                () = sleep(FINISH) => warn!("some syncs did not end in time"),
            }
        }
        elector.release().await;
        Ok(())
    }

    /// Runs the controllers until told to stop.
    async fn control(&self, stop: watch::Receiver<bool>) {
        let cache = &self.cache;
        let caught_up = async {
            while let Err(error) = cache.catch_up_with_server().await {
                warn!(%error, "the caches cannot be compared with the API server");
                sleep(Duration::from_secs(1)).await;
            }
        };
        let mut told = stop.clone();
        tokio::select! {
            _ = told.wait_for(|stop| *stop) => return,
            () = caught_up => {}
        }
        for run in cache.hook_runs.store().all() {
            self.hook_runs.add(run.key());
        }
        info!("controllers start");
        tokio::join!(
            self.control_workloads(
                &self.game_deployments,
                &cache.game_deployments,
                stop.clone()
            ),
            self.control_workloads(
                &self.game_stateful_sets,
                &cache.game_stateful_sets,
                stop.clone()
            ),
            self.control_hook_runs(stop),
        );
        info!("controllers have ended");
    }

    async fn control_workloads<K: Planned>(
        &self,
        queue: &Arc<Queue>,
        mirror: &Arc<Mirror<Whole<K>>>,
        stop: watch::Receiver<bool>,
    ) {
        for workload in mirror.store().all() {
            queue.add(workload.key());
        }
        let (requests, events) = (self.requests.clone(), self.events.clone());
        let shared = Shared {
            cache: Arc::clone(&self.cache),
            applier: Applier::new(requests, events.clone(), self.counted.writes.clone()),
            events,
            metrics: self.counted.writes.clone(),
        };
        let controller = Arc::new(Workloads::new(shared, Arc::clone(mirror)));
        let look = move |key| Arc::clone(&controller).look(key);
        work(Arc::clone(queue), WORKLOADS, stop, look).await;
    }

    async fn control_hook_runs(&self, stop: watch::Receiver<bool>) {
        let controller = Arc::new(HookRuns::new(
            Arc::clone(&self.cache),
            self.requests.clone(),
            self.probe.clone(),
            Arc::clone(&self.hook_runs),
            self.counted.hooks.clone(),
        ));
        let looking = Arc::clone(&controller);
        let look = move |key| Arc::clone(&looking).look(key);
        work(Arc::clone(&self.hook_runs), HOOK_RUNS, stop, look).await;
        controller.abandon();
    }
}

/// Puts keys into a queue.
fn sink(queue: &Arc<Queue>) -> Sink {
    let queue = Arc::clone(queue);
    Box::new(move |key| queue.add(key))
}

/// Puts keys into the queue of their kind.
fn workload_sink(game_deployments: &Arc<Queue>, game_stateful_sets: &Arc<Queue>) -> WorkloadSink {
    let (deployments, sets) = (Arc::clone(game_deployments), Arc::clone(game_stateful_sets));
    Box::new(move |kind, key| match kind {
        WorkloadKind::GameDeployment => deployments.add(key),
        WorkloadKind::GameStatefulSet => sets.add(key),
    })
}

/// Tells of objects that cannot be read.
fn broken(events: Events) -> BrokenSink {
    Box::new(move |kind, key, reason| {
        let about = Regarding {
            kind,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: String::new(),
        };
        let event = Event {
            warning: true,
            reason: "Unreadable".to_owned(),
            message: format!("the operator cannot read this object and leaves it alone: {reason}"),
        };
        events.tell(about, Told::Plain(event));
    })
}

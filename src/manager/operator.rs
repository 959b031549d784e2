//! The controllers, the watches they live on, and when they may work.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::RunError;
use super::fence::Fence;
use super::lease::Elector;
use super::metrics::Counters;
use crate::apply::events::{EventRecorder, PendingEvent, Regarding};
use crate::apply::{Applier, Requests};
use crate::cache::{BrokenSink, Cache, Cached, Reflector, Router, Sink, Whole, WorkloadSink};
use crate::controller::{HookRuns, Planners, Queue, Queues, Shared, Workloads, work};
use crate::fair::Capacity;
use crate::provider::Probe;
use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::causes::with_causes;
use gamekeeper_core::plan::{Event, Planned};

/// Concurrent reconciles of workloads of one kind.
const WORKLOAD_CAPACITY: Capacity = Capacity {
    shared: 64,
    per_namespace: 48,
    reserved: 4,
};
/// Concurrent reconciles of HookRuns; most of them wait for a permit to write.
const HOOK_RUN_CAPACITY: Capacity = Capacity {
    shared: 16_384,
    per_namespace: 12_288,
    reserved: 64,
};
/// How long reconciles may take to end at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long is waited after a comparison that failed, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How long a new leader may take to see what the API server has; a list of all pods fits into it.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(60);

/// The controllers and all that they share.
pub(super) struct Operator {
    cache: Arc<Cache>,
    requests: Requests,
    events: EventRecorder,
    game_deployments: Arc<Queue>,
    game_stateful_sets: Arc<Queue>,
    hook_runs: Arc<Queue>,
    counters: Counters,
    probe: Probe,
    /// The watches and the writer of events.
    lasting: JoinSet<()>,
}

impl Operator {
    /// Starts the watches, and the writer of events, which signs as `instance`. The fence is the client's.
    pub(super) fn new(
        client: &Client,
        namespace: Option<&str>,
        streaming: bool,
        probe: Probe,
        instance: String,
        counters: Counters,
        fence: Arc<Fence>,
    ) -> Self {
        let requests = Requests::new(client.clone());
        let (events, writer) = EventRecorder::new();
        let cache = Arc::new(Cache::new(client, namespace, streaming));
        let game_deployments = Arc::new(Queue::new(WORKLOAD_CAPACITY));
        let game_stateful_sets = Arc::new(Queue::new(WORKLOAD_CAPACITY));
        let hook_runs = Arc::new(Queue::new(HOOK_RUN_CAPACITY));
        let router = Router::new(
            workload_sink(&game_deployments, &game_stateful_sets),
            sink(&hook_runs),
            broken(events.clone(), fence),
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
            counters,
            probe,
            lasting,
        }
    }

    pub(super) fn cache(&self) -> Arc<Cache> {
        Arc::clone(&self.cache)
    }

    /// The queues, by the name of their controller.
    pub(super) fn queues(&self) -> Queues {
        Queues(vec![
            ("gamedeployment", Arc::clone(&self.game_deployments)),
            ("gamestatefulset", Arc::clone(&self.game_stateful_sets)),
            ("hookrun", Arc::clone(&self.hook_runs)),
        ])
    }

    /// Works until told to stop: always, or (with an elector) while this process leads.
    pub(super) async fn run(
        mut self,
        elector: Option<Elector>,
        stop: watch::Receiver<bool>,
    ) -> Result<(), RunError> {
        let mut lasting = std::mem::take(&mut self.lasting);
        let mut told = stop.clone();
        let work = async {
            tokio::select! {
                biased;
                _ = told.wait_for(|stop| *stop) => return Ok(()),
                () = self.sees_all() => {}
            }
            match elector {
                Some(elector) => self.lead(elector, stop).await,
                None => self.control(stop).await,
            }
        };
        tokio::select! {
            ended = work => ended,
            ended = lasting.join_next() => Err(RunError::Broken(ended)),
        }
    }

    /// Waits until this process has seen every kind and may read what a leader compares its caches with.
    /// Without these permissions it is no candidate.
    async fn sees_all(&self) {
        self.cache.filled().await;
        until_compared(|| self.cache.is_comparable(), |_| {}).await;
    }

    /// Works while this process leads, until it is told to stop or loses the lease. A leader that cannot
    /// see the cluster gives the lease back, because another candidate may see it.
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
                Err(error) = &mut controllers => {
                    elector.release().await;
                    return Err(error);
                }
                () = elector.hold() => return Err(RunError::LeaseLost),
                _ = stop.wait_for(|stop| *stop) => {}
            }
            end.send_replace(true);
            // Reconciles end while the lease is still held.
            tokio::select! {
                _ = &mut controllers => {}
                () = elector.hold() => {}
                () = sleep(SHUTDOWN_TIMEOUT) => warn!("some reconciles did not finish in time"),
            }
        }
        elector.release().await;
        Ok(())
    }

    /// Runs the controllers until told to stop, on caches that show what the API server had when it was
    /// called.
    async fn control(&self, stop: watch::Receiver<bool>) -> Result<(), RunError> {
        let cache = &self.cache;
        let mut told = stop.clone();
        tokio::select! {
            _ = told.wait_for(|stop| *stop) => return Ok(()),
            caught_up = in_time(CATCH_UP_TIMEOUT, || cache.catch_up_with_server()) => caught_up?,
        }
        for run in cache.hook_runs.store().all() {
            self.hook_runs.add(run.key());
        }
        let (requests, events) = (self.requests.clone(), self.events.clone());
        let shared = Shared {
            cache: Arc::clone(&self.cache),
            applier: Applier::new(requests, events.clone(), self.counters.writes.clone()),
            events,
            metrics: self.counters.writes.clone(),
            planners: Arc::new(Planners::start().map_err(RunError::Planners)?),
        };
        info!("starting controllers");
        tokio::join!(
            control_workloads(
                shared.clone(),
                &self.game_deployments,
                &cache.game_deployments,
                stop.clone()
            ),
            control_workloads(
                shared.clone(),
                &self.game_stateful_sets,
                &cache.game_stateful_sets,
                stop.clone()
            ),
            self.control_hook_runs(stop),
        );
        info!("controllers stopped");
        Ok(())
    }

    async fn control_hook_runs(&self, stop: watch::Receiver<bool>) {
        let controller = Arc::new(HookRuns::new(
            Arc::clone(&self.cache),
            self.requests.clone(),
            self.probe.clone(),
            Arc::clone(&self.hook_runs),
            self.counters.hooks.clone(),
        ));
        let reconciler = Arc::clone(&controller);
        let reconcile = move |key| Arc::clone(&reconciler).reconcile(key);
        work(Arc::clone(&self.hook_runs), stop, reconcile).await;
        controller.abandon();
    }
}

async fn control_workloads<K: Planned>(
    shared: Shared,
    queue: &Arc<Queue>,
    reflector: &Arc<Reflector<Whole<K>>>,
    stop: watch::Receiver<bool>,
) {
    for workload in reflector.store().all() {
        queue.add(workload.key());
    }
    let controller = Arc::new(Workloads::new(shared, Arc::clone(reflector)));
    let reconcile = move |key| Arc::clone(&controller).reconcile(key);
    work(Arc::clone(queue), stop, reconcile).await;
}

/// Tries to catch up until that succeeds, for at most so long; then tells what was in the way.
async fn in_time<F>(limit: Duration, catch_up: impl Fn() -> F) -> Result<(), RunError>
where
    F: Future<Output = Result<(), kube::Error>>,
{
    let mut why = None;
    let caught_up = until_compared(catch_up, |error| why = Some(error));
    let caught_up = timeout(limit, caught_up).await;
    caught_up.map_err(|_| RunError::Behind {
        limit,
        why: why.unwrap_or_else(|| "no response to a list or watch".to_owned()),
    })
}

/// Tries to compare the caches with the API server, less and less often, and tells what was in the way.
async fn until_compared<F>(compare: impl Fn() -> F, mut told: impl FnMut(String))
where
    F: Future<Output = Result<(), kube::Error>>,
{
    let mut pause = FIRST_PAUSE;
    while let Err(error) = compare().await {
        let error = with_causes(&error);
        warn!(error, "cannot compare the caches with the API server");
        told(error);
        sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
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

/// Publishes events for objects that cannot be read. A standby only logs them; when it becomes the leader,
/// its new lists show them again.
fn broken(events: EventRecorder, fence: Arc<Fence>) -> BrokenSink {
    Box::new(move |kind, key, reason| {
        if !fence.is_open() {
            return;
        }
        let about = Regarding {
            kind,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: String::new(),
        };
        let event = Event {
            warning: true,
            reason: "Unreadable".to_owned(),
            message: format!("the operator cannot decode this object and ignores it: {reason}"),
        };
        events.publish(about, PendingEvent::Plain(event));
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn refused() -> kube::Error {
        let message = "pods is forbidden: cannot list resource pods";
        kube::Error::Api(
            kube::core::Status::failure(message, "Forbidden")
                .with_code(403)
                .boxed(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_that_may_not_read_a_kind_gives_up_and_names_it() {
        let begun = Instant::now();
        let ended = in_time(LIMIT, || async { Err(refused()) }).await;
        let why = ended.expect_err("it gives up").to_string();
        assert!(
            why.contains("30 s") && why.contains("cannot list resource pods"),
            "{why}"
        );
        assert_eq!(begun.elapsed(), LIMIT);
        assert!(in_time(LIMIT, std::future::pending).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_outage_is_waited_for() {
        let tries = Cell::new(0);
        let third = || {
            tries.set(tries.get() + 1);
            let outcome = if tries.get() < 3 {
                Err(refused())
            } else {
                Ok(())
            };
            async { outcome }
        };
        assert!(in_time(LIMIT, third).await.is_ok());
    }
}

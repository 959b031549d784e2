//! The controllers and their watches. The watches always run; the controllers run while this process leads.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

use super::RunError;
use super::catch_up::{retry, retry_for};
use crate::kinds::{Cache, Router, Sink, Whole, WorkloadSink};
use crate::metrics::Counters;
use crate::provider::Probe;
use crate::reconcile::apply::Applier;
use crate::reconcile::apply::events::EventRecorder;
use crate::reconcile::{
    Clusters, HookRuns, Planners, Shared, SidecarSets, UnreadableReporter, Workloads,
};
use crate::runtime::fair::Capacity;
use crate::runtime::lease::Elector;
use crate::runtime::objects::Kind;
use crate::runtime::queue::{Queue, Queues, Requeue, work};
use crate::runtime::reflector::Reflector;
use crate::runtime::request::Requests;
use crate::runtime::store::Cached;
use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::sidecar_set::WebhookState;
use gamekeeper_core::workload::Planned;

/// The limits on concurrent reconciles of workloads of one kind.
const WORKLOAD_CAPACITY: Capacity = Capacity { shared: 64, per_namespace: 48, reserved: 4 };
/// The limits on concurrent reconciles of HookRuns; most of these reconciles wait for a permit to write.
const HOOK_RUN_CAPACITY: Capacity =
    Capacity { shared: 16_384, per_namespace: 12_288, reserved: 64 };
/// The limits on concurrent reconciles of HookTemplates; these reconciles never wait.
const HOOK_TEMPLATE_CAPACITY: Capacity = Capacity { shared: 4, per_namespace: 2, reserved: 2 };
/// The limits on concurrent reconciles of SidecarSets, which have no namespace.
const SIDECAR_SET_CAPACITY: Capacity = Capacity { shared: 4, per_namespace: 4, reserved: 4 };
/// The limits on concurrent reconciles of Clusters, of which there is seldom more than one.
const CLUSTER_CAPACITY: Capacity = Capacity { shared: 4, per_namespace: 4, reserved: 1 };
/// How long reconciles may take to finish at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the caches of a new leader may take to catch up with the API server, while nothing of a list arrives.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(60);

/// The controllers and what they share.
pub(super) struct Operator {
    cache: Arc<Cache>,
    requests: Requests,
    events: EventRecorder,
    game_deployments: Arc<Queue>,
    game_stateful_sets: Arc<Queue>,
    hook_runs: Arc<Queue>,
    /// Only templates that cannot be decoded.
    hook_templates: Arc<Queue>,
    sidecar_sets: Arc<Queue>,
    clusters: Arc<Queue>,
    /// The image that runs the scripts of Clusters; None if lifecycle hooks are disabled.
    hook_image: Option<String>,
    /// Whether the webhook that injects sidecars into pods of other controllers is in force.
    webhook: watch::Receiver<WebhookState>,
    counters: Counters,
    probe: Probe,
    /// The watches and the writer of events.
    background: JoinSet<()>,
}

impl Operator {
    /// Starts the watches of the cache, and the writer of events, which reports `instance` as its name.
    pub(super) fn new(
        client: &Client,
        cache: Cache,
        probe: Probe,
        instance: String,
        counters: Counters,
        hook_image: Option<String>,
        webhook: watch::Receiver<WebhookState>,
    ) -> Self {
        let requests = Requests::new(client.clone());
        let (events, writer) = EventRecorder::new();
        let cache = Arc::new(cache);
        let game_deployments = Arc::new(Queue::new(WORKLOAD_CAPACITY));
        let game_stateful_sets = Arc::new(Queue::new(WORKLOAD_CAPACITY));
        let hook_runs = Arc::new(Queue::new(HOOK_RUN_CAPACITY));
        let hook_templates = Arc::new(Queue::new(HOOK_TEMPLATE_CAPACITY));
        let sidecar_sets = Arc::new(Queue::new(SIDECAR_SET_CAPACITY));
        let clusters = Arc::new(Queue::new(CLUSTER_CAPACITY));
        let mut router = Router::new(
            workload_sink(&game_deployments, &game_stateful_sets),
            sink(&hook_runs),
            sink(&hook_templates),
            Arc::clone(&cache.sidecars),
            sink(&sidecar_sets),
        );
        if hook_image.is_some() {
            router = router.with_clusters(sink(&clusters));
        }
        let mut background = cache.start(&Arc::new(router));
        background.spawn(writer.run(requests.clone(), instance));
        Self {
            cache,
            requests,
            events,
            game_deployments,
            game_stateful_sets,
            hook_runs,
            hook_templates,
            sidecar_sets,
            clusters,
            hook_image,
            webhook,
            counters,
            probe,
            background,
        }
    }

    pub(super) fn cache(&self) -> Arc<Cache> {
        Arc::clone(&self.cache)
    }

    pub(super) fn queues(&self) -> Queues {
        let mut queues = vec![
            ("gamedeployment", Arc::clone(&self.game_deployments)),
            ("gamestatefulset", Arc::clone(&self.game_stateful_sets)),
            ("hookrun", Arc::clone(&self.hook_runs)),
            ("sidecarset", Arc::clone(&self.sidecar_sets)),
        ];
        if self.hook_image.is_some() {
            queues.push(("cluster", Arc::clone(&self.clusters)));
        }
        Queues(queues)
    }

    /// Runs the controllers until `stop`; with an elector, only while this process leads.
    pub(super) async fn run(
        mut self,
        mut elector: Option<Elector>,
        stop: watch::Receiver<bool>,
    ) -> Result<(), RunError> {
        let mut background = std::mem::take(&mut self.background);
        let mut stopped = stop.clone();
        let work = async {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stop| *stop) => return Ok(()),
                () = self.wait_until_synced() => {}
                () = observe_only(elector.as_mut()) => {}
            }
            match elector {
                Some(elector) => self.lead(elector, stop).await,
                None => self.control(stop).await,
            }
        };
        tokio::select! {
            result = work => result,
            ended = background.join_next() => Err(RunError::Broken(ended)),
        }
    }

    /// Waits until all caches are synced and can be compared with the API server. A process that lacks the
    /// permissions for this does not become a candidate.
    async fn wait_until_synced(&self) {
        self.cache.until_filled().await;
        retry(|| self.cache.check_access(), |_| {}).await;
    }

    /// Runs the controllers while this process leads, until `stop`. A leader that cannot read the cluster
    /// releases the lease, because another candidate may be able to.
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
            // Reconciles finish while the lease is still held.
            tokio::select! {
                _ = &mut controllers => {}
                () = elector.hold() => {}
                () = sleep(SHUTDOWN_TIMEOUT) => warn!("some reconciles did not finish in time"),
            }
        }
        elector.release().await;
        Ok(())
    }

    /// Waits until the caches show everything that the API server had at the time of the call.
    async fn catch_up(&self) -> Result<(), kube::Error> {
        self.cache.catch_up_with_server().await?;
        // If the first SidecarSet was observed only now, namespaces are not in the cache yet.
        self.cache.until_filled().await;
        Ok(())
    }

    /// Waits until the caches have caught up with the API server, and then runs the controllers until `stop`. All
    /// objects are queued first, because a standby queues, reconciles and reports nothing.
    async fn control(&self, stop: watch::Receiver<bool>) -> Result<(), RunError> {
        let cache = &self.cache;
        let mut stopped = stop.clone();
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return Ok(()),
            caught_up = retry_for(
                CATCH_UP_TIMEOUT,
                || self.catch_up(),
                || cache.last_list_progress(),
            ) => caught_up?,
        }
        // No change is lost in between: a reflector changes its store before it queues anything, so a change whose
        // keys were dropped is visible to the reconciles of all objects, which are queued below.
        self.open_queues();
        add_all(&self.hook_runs, &cache.hook_runs);
        add_all(&self.sidecar_sets, &cache.sidecar_sets);
        for template in cache.hook_templates.all_unreadable().keys() {
            self.hook_templates.add(template.clone());
        }
        let planners = Arc::new(Planners::start().map_err(RunError::Planners)?);
        let (requests, events) = (self.requests.clone(), self.events.clone());
        let unreadable = UnreadableReporter::new(requests.clone(), events.clone());
        let unstored_runs = Arc::clone(&self.cache.unstored_runs);
        let shared = Shared {
            cache: Arc::clone(&self.cache),
            applier: Applier::new(
                requests,
                events,
                self.counters.writes.clone(),
                Arc::new(move |run| unstored_runs.add(run)),
            ),
            unreadable: unreadable.clone(),
            metrics: self.counters.writes.clone(),
            planners: Arc::clone(&planners),
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
            self.control_hook_runs(unreadable.clone(), stop.clone()),
            self.control_sidecar_sets(shared.clone(), stop.clone()),
            self.control_hook_templates(unreadable.clone(), stop.clone()),
            self.control_clusters(shared, stop),
        );
        info!("controllers stopped");
        Ok(())
    }

    fn open_queues(&self) {
        for queue in [
            &self.game_deployments,
            &self.game_stateful_sets,
            &self.hook_runs,
            &self.hook_templates,
            &self.sidecar_sets,
            &self.clusters,
        ] {
            queue.open();
        }
    }

    async fn control_hook_runs(&self, unreadable: UnreadableReporter, stop: watch::Receiver<bool>) {
        let controller = Arc::new(HookRuns::new(
            Arc::clone(&self.cache),
            self.requests.clone(),
            unreadable,
            self.probe.clone(),
            Arc::clone(&self.hook_runs),
            self.counters.hooks.clone(),
        ));
        let reconciler = Arc::clone(&controller);
        let reconcile = move |key| Arc::clone(&reconciler).reconcile(key);
        work(Arc::clone(&self.hook_runs), stop, reconcile).await;
        controller.abandon();
    }

    async fn control_sidecar_sets(&self, shared: Shared, stop: watch::Receiver<bool>) {
        let controller = Arc::new(SidecarSets::new(shared, self.webhook.clone()));
        let reconcile = move |key| Arc::clone(&controller).reconcile(key);
        let mut webhook = self.webhook.clone();
        let requeue = async {
            while webhook.changed().await.is_ok() {
                add_all(&self.sidecar_sets, &self.cache.sidecar_sets);
            }
            // The sender is gone, so the state no longer changes.
            std::future::pending().await
        };
        tokio::select! {
            () = work(Arc::clone(&self.sidecar_sets), stop, reconcile) => {}
            () = requeue => {}
        }
    }

    /// Runs the scripts of Clusters, if lifecycle hooks are enabled.
    async fn control_clusters(&self, shared: Shared, stop: watch::Receiver<bool>) {
        let Some(image) = self.hook_image.clone() else {
            return;
        };
        add_all(&self.clusters, &self.cache.clusters);
        let controller = Arc::new(Clusters::new(shared, image));
        let reconcile = move |key| Arc::clone(&controller).reconcile(key);
        work(Arc::clone(&self.clusters), stop, reconcile).await;
    }

    /// Reports templates that cannot be decoded. A template has no status, so only an event can report this.
    /// Templates that can be decoded need no controller: the plans of workloads read them.
    async fn control_hook_templates(
        &self,
        reporter: UnreadableReporter,
        stop: watch::Receiver<bool>,
    ) {
        let report = move |key| {
            if let Some(unreadable) = self.cache.hook_templates.unreadable(&key) {
                reporter.publish(Kind::HookTemplate, &key, &unreadable);
            }
            std::future::ready(Requeue::Settled(None))
        };
        work(Arc::clone(&self.hook_templates), stop, report).await;
    }
}

/// Observes the lease, if there is one, until the caches are synced.
async fn observe_only(elector: Option<&mut Elector>) {
    match elector {
        Some(elector) => elector.observe_only().await,
        None => std::future::pending().await,
    }
}

/// Queues all objects of a kind, including those that cannot be decoded, so that a new leader reports these.
fn add_all<T: Cached>(queue: &Queue, reflector: &Reflector<T>) {
    for object in reflector.store().all() {
        queue.add(object.key());
    }
    for key in reflector.all_unreadable().keys() {
        queue.add(key.clone());
    }
}

async fn control_workloads<K: Planned>(
    shared: Shared,
    queue: &Arc<Queue>,
    reflector: &Arc<Reflector<Whole<K>>>,
    stop: watch::Receiver<bool>,
) {
    add_all(queue, reflector);
    let controller = Arc::new(Workloads::new(shared, Arc::clone(reflector)));
    let reconcile = move |key| Arc::clone(&controller).reconcile(key);
    work(Arc::clone(queue), stop, reconcile).await;
}

fn sink(queue: &Arc<Queue>) -> Sink {
    let queue = Arc::clone(queue);
    Box::new(move |key| queue.add(key))
}

fn workload_sink(game_deployments: &Arc<Queue>, game_stateful_sets: &Arc<Queue>) -> WorkloadSink {
    let (deployments, sets) = (Arc::clone(game_deployments), Arc::clone(game_stateful_sets));
    Box::new(move |kind, key| match kind {
        WorkloadKind::GameDeployment => deployments.add(key),
        WorkloadKind::GameStatefulSet => sets.add(key),
    })
}

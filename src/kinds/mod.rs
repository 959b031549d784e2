//! The observed state of the cluster, indexed by owner. One watch per kind serves the whole process.
//!
//! Controllers read this state without a request to the API server, and hold no lock across an await. Guarantees:
//! each change or deletion is applied to the store first, and then all workloads and runs that it
//! concerns are queued; [`Cache::until_caught_up`] lets a controller read its own writes; after
//! [`Cache::catch_up_with_server`] the cache is at least as new as the API server was at the time
//! of the call.

mod bcs;
mod cached;
mod comparison;
mod expectations;
mod nodes;
mod pods;
mod resources;
mod route;
mod set_revisions;
mod sidecars;
mod slim;
#[cfg(test)]
pub(crate) mod test_feed;
mod unstored_runs;
mod workload_index;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use cached::{
    CachedHookRun, CachedRevision, StoredRevision, Whole, read_hook_template, read_run,
    read_workload, slim_run,
};
pub use pods::CachedPod;
pub use slim::Interner;

use cached::{MAX_HOOK_BYTES, MAX_TEMPLATE_BYTES};

pub(crate) use cached::slim_claim;
pub(crate) use expectations::Expectations;
#[cfg(test)]
pub(crate) use nodes::NodeHead;
pub(crate) use nodes::NodeState;
pub(crate) use route::{Router, Sink, WorkloadSink};
pub(crate) use set_revisions::CachedSetRevision;
pub(crate) use sidecars::{CachedNamespace, NamespaceHead, Reaching, SidecarIndex};
pub(crate) use unstored_runs::UnstoredRuns;

use self::comparison::Newest;
use crate::runtime::control::Control;
use crate::runtime::memory::{MemoryLimits, MemoryUse};
use crate::runtime::objects::{Deleted, Kind, ObjectKey};
use crate::runtime::reflector::{Reflector, Routed, WatchProgress};
use crate::runtime::store::{Cached, Transition};
use crate::runtime::watch::{Identity, Object, Source};
use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::api::{Cluster, GameDeployment, GameStatefulSet, HookTemplate, SidecarSet};
use gamekeeper_core::observed::Claim;
use gamekeeper_core::sidecar_set::NamespacePolicy;

/// Kinds that are watched only if the features that need them are enabled.
#[derive(Clone, Copy, Default)]
pub(crate) struct OptionalKinds {
    pub sidecar_sets: bool,
    pub clusters: bool,
}

impl OptionalKinds {
    fn has(self, kind: Kind) -> bool {
        match kind {
            Kind::SidecarSet | Kind::Namespace | Kind::SetRevision => self.sidecar_sets,
            Kind::Cluster => self.clusters,
            _ => true,
        }
    }
}

/// The operator's settings that plans depend on.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub kinds: OptionalKinds,
    /// Keys of taints that announce the removal of a node.
    pub going_taints: Arc<[String]>,
    /// PriorityClass of new guarded pods whose template names none.
    pub priority_class: Option<Arc<str>>,
    /// Whether pods stay unguarded, whatever their workloads specify.
    pub leaves_pods_unguarded: bool,
    /// The operator's own namespace, which holds the revisions of SidecarSets.
    pub own_namespace: Arc<str>,
    /// Whether pods of other controllers get sidecars even in namespaces that are not labeled for it.
    pub sidecars_in_all_namespaces: bool,
    /// Limits on the memory of cached objects.
    pub memory: MemoryLimits,
}

#[derive(Default)]
pub(crate) struct Cache {
    pub game_deployments: Arc<Reflector<Whole<GameDeployment>>>,
    pub game_stateful_sets: Arc<Reflector<Whole<GameStatefulSet>>>,
    pub hook_runs: Arc<Reflector<CachedHookRun>>,
    /// HookRuns in namespaces that are being deleted.
    pub unstored_runs: Arc<UnstoredRuns>,
    pub hook_templates: Arc<Reflector<Whole<HookTemplate>>>,
    /// Pods that workloads of this operator control, pods without a controller, and pods of other controllers in
    /// namespaces that SidecarSets select.
    pub pods: Arc<Reflector<CachedPod>>,
    /// ControllerRevisions that workloads of this operator control, and those without a controller.
    pub revisions: Arc<Reflector<CachedRevision>>,
    /// Nodes on which a plan depends.
    pub nodes: Arc<Reflector<NodeState>>,
    pub settings: Settings,
    pub claims: Arc<Reflector<Claim>>,
    pub sidecar_sets: Arc<Reflector<Whole<SidecarSet>>>,
    /// Namespaces; empty until there is a SidecarSet.
    pub namespaces: Arc<Reflector<CachedNamespace>>,
    /// ControllerRevisions in the operator's own namespace; empty until there is a SidecarSet.
    pub set_revisions: Arc<Reflector<CachedSetRevision>>,
    /// The SidecarSets, and the namespaces that they select.
    pub sidecars: Arc<SidecarIndex>,
    pub clusters: Arc<Reflector<Whole<Cluster>>>,
    pub expectations: Expectations,
    sources: BTreeMap<Kind, Source>,
    newest: BTreeMap<Kind, Newest>,
}

/// Metrics of one reflector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReflectorStats {
    pub kind: Kind,
    pub objects: usize,
    /// Objects that cannot be decoded.
    pub unreadable: usize,
    pub lists: u64,
    /// When the last watch event arrived.
    pub last_event: Instant,
}

/// Evaluates an expression with the reflector of a kind.
macro_rules! reflector_of {
    ($cache:expr, $kind:expr, $reflector:ident => $value:expr) => {
        reflector_of!(
            $cache, $kind, $reflector => $value;
            GameDeployment game_deployments, GameStatefulSet game_stateful_sets, HookRun hook_runs,
            HookTemplate hook_templates, Pod pods, Revision revisions, Node nodes, Claim claims,
            SidecarSet sidecar_sets, Namespace namespaces, SetRevision set_revisions, Cluster clusters
        )
    };
    ($cache:expr, $kind:expr, $reflector:ident => $value:expr; $($name:ident $field:ident),+) => {
        match $kind {
            $(Kind::$name => {
                let $reflector = &$cache.$field;
                $value
            })+
        }
    };
}

impl Cache {
    /// A HookRun, stored or not.
    pub(crate) fn hook_run(&self, key: &ObjectKey) -> Option<Arc<CachedHookRun>> {
        let stored = self.hook_runs.get(key);
        stored.or_else(|| self.unstored_runs.get(key))
    }

    /// The HookRuns that a workload controls, stored or not.
    pub(crate) fn hook_runs_of(&self, namespace: &str, uid: &str) -> Vec<Arc<CachedHookRun>> {
        let mut runs = self.hook_runs.store().controlled_by(namespace, Some(uid));
        runs.extend(self.unstored_runs.controlled_by(namespace, uid));
        runs
    }

    /// Whether the workload with this name and uid exists.
    pub(crate) fn has_workload(
        &self,
        kind: WorkloadKind,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> bool {
        match kind {
            WorkloadKind::GameDeployment => has(&self.game_deployments, namespace, name, uid),
            WorkloadKind::GameStatefulSet => has(&self.game_stateful_sets, namespace, name, uid),
        }
    }

    /// An empty cache for the objects of one namespace, or of all namespaces if None.
    pub(crate) fn new(
        client: &Client,
        namespace: Option<&str>,
        streaming: bool,
        settings: Settings,
    ) -> Self {
        let kinds = Kind::ALL.iter().copied().filter(|kind| settings.kinds.has(*kind));
        let sources = kinds.clone().map(|kind| {
            let namespace = match kind {
                Kind::SetRevision => Some(&*settings.own_namespace),
                _ => namespace,
            };
            let source = Source {
                client: client.clone(),
                path: kind.collection(namespace),
                metadata_only: matches!(kind, Kind::Claim | Kind::Namespace),
                streaming,
            };
            (kind, source)
        });
        let policy = NamespacePolicy {
            own: Some(settings.own_namespace.to_string()),
            all: settings.sidecars_in_all_namespaces,
        };
        let memory = Arc::new(MemoryUse::new(settings.memory));
        Self {
            newest: kinds.map(|kind| (kind, Newest::default())).collect(),
            sources: sources.collect(),
            sidecars: Arc::new(SidecarIndex::new(namespace, policy)),
            settings,
            game_deployments: Reflector::counting(&memory),
            game_stateful_sets: Reflector::counting(&memory),
            hook_runs: Reflector::counting(&memory),
            hook_templates: Reflector::counting(&memory),
            pods: Reflector::counting(&memory),
            revisions: Reflector::counting(&memory),
            claims: Reflector::counting(&memory),
            ..Self::default()
        }
    }

    /// Starts the watches; they run until the JoinSet is dropped.
    pub(crate) fn start(&self, router: &Arc<Router>) -> JoinSet<()> {
        self.unstored_runs.route_to(router);
        let mut watches = JoinSet::new();
        for (kind, source) in &self.sources {
            let (source, router) = (source.clone(), Arc::clone(router));
            self.start_watch(*kind, source, router, &mut watches);
        }
        watches.spawn(list_pods(Arc::clone(&self.pods), Arc::clone(&self.sidecars)));
        watches
    }

    fn start_watch(
        &self,
        kind: Kind,
        source: Source,
        router: Arc<Router>,
        watches: &mut JoinSet<()>,
    ) {
        match kind {
            Kind::GameDeployment => watches.spawn(Arc::clone(&self.game_deployments).feed(
                source,
                |_, _, _, object| read_workload(object).map(Some),
                routed(router, Kind::GameDeployment, Router::workload),
            )),
            Kind::GameStatefulSet => watches.spawn(Arc::clone(&self.game_stateful_sets).feed(
                source,
                |_, _, _, object| read_workload(object).map(Some),
                routed(router, Kind::GameStatefulSet, Router::workload),
            )),
            Kind::HookRun => watches.spawn(Arc::clone(&self.hook_runs).feed(
                source,
                |_, _, _, object| read_run(object).map(Some),
                routed(router, Kind::HookRun, Router::hook_run),
            )),
            Kind::HookTemplate => watches.spawn(Arc::clone(&self.hook_templates).feed(
                source,
                |_, _, _, object| read_hook_template(object).map(Some),
                routed(router, Kind::HookTemplate, Router::hook_template),
            )),
            Kind::Pod => {
                let mut interner = Interner::default();
                let sidecars = Arc::clone(&self.sidecars);
                watches.spawn(Arc::clone(&self.pods).feed(
                    source,
                    move |previous, origin, identity, pod| {
                        let keep_foreign = sidecars.keeps_pods_of(&identity.namespace);
                        CachedPod::read(
                            previous,
                            origin,
                            identity,
                            pod,
                            keep_foreign,
                            &mut interner,
                        )
                    },
                    routed(router, Kind::Pod, Router::pod),
                ))
            }
            Kind::Revision => watches.spawn(Arc::clone(&self.revisions).feed(
                source,
                |_, _, identity, object| match identity.control {
                    Control::Foreign => Ok(None),
                    _ => Ok(CachedRevision::new(object.read_within(MAX_TEMPLATE_BYTES)?)),
                },
                routed(router, Kind::Revision, Router::revision),
            )),
            Kind::Node => {
                let settings = self.settings.clone();
                watches.spawn(Arc::clone(&self.nodes).feed(
                    source,
                    move |_, _, _, node| Ok(NodeState::new(node.read()?, &settings)),
                    routed(router, Kind::Node, Router::node),
                ))
            }
            Kind::Claim => watches.spawn(Arc::clone(&self.claims).feed(
                source,
                |_, _, _, claim| Ok(Some(slim_claim(claim.read_within(MAX_CLAIM_BYTES)?))),
                routed(router, Kind::Claim, Router::claim),
            )),
            Kind::SidecarSet => {
                let (sets, sidecars) = (Arc::clone(&self.sidecar_sets), Arc::clone(&self.sidecars));
                let read = {
                    let sidecars = Arc::clone(&sidecars);
                    move |_: Option<&_>, _, identity: &Identity, object: Object<'_>| {
                        let set = object.read_within(MAX_TEMPLATE_BYTES);
                        let set = set.inspect_err(|_| {
                            sidecars.put_unreadable(&identity.name, object.read().ok().as_ref());
                        });
                        Ok(Some(Whole::new(set?, true)))
                    }
                };
                let route = routed(router, Kind::SidecarSet, Router::sidecar_set);
                let forget = move |routed: &Routed<_>| {
                    if let Routed::Unreadable(key, _) = routed
                        && sets.unreadable(key).is_none()
                        && sets.get(key).is_none()
                    {
                        sidecars.forget_unreadable(&key.name);
                    }
                    route(routed);
                };
                watches.spawn(Arc::clone(&self.sidecar_sets).feed(source, read, forget))
            }
            Kind::Namespace => {
                let (namespaces, sidecars) =
                    (Arc::clone(&self.namespaces), Arc::clone(&self.sidecars));
                watches.spawn(async move {
                    sidecars.until_used().await;
                    let read = |_: Option<&_>, _, _: &Identity, object: Object<'_>| {
                        Ok(Some(CachedNamespace::from(object.read::<NamespaceHead>()?)))
                    };
                    let route = routed(router, Kind::Namespace, Router::namespace);
                    namespaces.feed(source, read, route).await;
                })
            }
            Kind::SetRevision => {
                let (revisions, sidecars) =
                    (Arc::clone(&self.set_revisions), Arc::clone(&self.sidecars));
                watches.spawn(async move {
                    sidecars.until_used().await;
                    let read = |_: Option<&_>, _, _: &Identity, object: Object<'_>| {
                        let revision = object.read_within(MAX_TEMPLATE_BYTES)?;
                        Ok(Some(CachedSetRevision::new(revision)))
                    };
                    let route = routed(router, Kind::SetRevision, Router::set_revision);
                    revisions.feed(source, read, route).await;
                })
            }
            Kind::Cluster => watches.spawn(Arc::clone(&self.clusters).feed(
                source,
                |_, _, _, object| Ok(Some(Whole::new(object.read_within(MAX_HOOK_BYTES)?, true))),
                routed(router, Kind::Cluster, Router::cluster),
            )),
        };
    }

    /// Whether every kind has been listed.
    pub(crate) fn is_ready(&self) -> bool {
        self.missing().is_empty()
    }

    /// Whether it is known which SidecarSets there are.
    pub(crate) fn knows_sidecar_sets(&self) -> bool {
        let kinds = self.watched().map(|(kind, _)| kind);
        let mut kinds = kinds.filter(|it| matches!(it, Kind::SidecarSet | Kind::SetRevision));
        kinds.all(|kind| self.progress(kind).borrow().listed > 0)
    }

    /// The kinds that have not been listed yet. Those that are watched only once there is a SidecarSet do not matter: the
    /// first one must not make a replica that works unready.
    pub(crate) fn missing(&self) -> Vec<Kind> {
        let unlisted = |kind: &Kind| self.progress(*kind).borrow().listed == 0;
        self.sources.keys().copied().filter(|kind| !is_for_sets(*kind)).filter(unlisted).collect()
    }

    /// The kinds that are currently watched. Namespaces, and the revisions of SidecarSets, are watched once there has
    /// been a SidecarSet.
    fn watched(&self) -> impl Iterator<Item = (Kind, &Source)> {
        let sources = self.sources.iter().map(|(kind, source)| (*kind, source));
        sources.filter(move |(kind, _)| !is_for_sets(*kind) || self.sidecars.is_used())
    }

    /// Waits until every kind has been listed.
    pub(crate) async fn until_filled(&self) {
        // `watched` checks lazily whether there are SidecarSets, and yields namespaces and the
        // revisions of sets after the kind SidecarSet. By then, the sets have been listed.
        for (kind, _) in self.watched() {
            // Cannot fail, because self holds the sender.
            let _ = self.progress(kind).wait_for(|progress| progress.listed > 0).await;
        }
    }

    /// The progress of a kind's watch.
    pub(crate) fn progress(&self, kind: Kind) -> Receiver<WatchProgress> {
        reflector_of!(self, kind, reflector => reflector.progress())
    }

    pub(crate) fn stats(&self) -> Vec<ReflectorStats> {
        let stats = |kind| {
            reflector_of!(self, kind, reflector => ReflectorStats {
                kind,
                objects: reflector.store().len(),
                unreadable: reflector.all_unreadable().len(),
                lists: reflector.progress().borrow().started,
                last_event: reflector.last_event(),
            })
        };
        self.watched().map(|(kind, _)| stats(kind)).collect()
    }

    /// When something of a list in progress last arrived; None if no list is in progress.
    pub(crate) fn last_list_progress(&self) -> Option<Instant> {
        let kinds = self.watched().filter(|(kind, _)| {
            let progress = self.progress(*kind);
            let progress = progress.borrow();
            progress.started > progress.listed
        });
        kinds.map(|(kind, _)| reflector_of!(self, kind, reflector => reflector.last_event())).max()
    }

    async fn reach(&self, kind: Kind, version: u64) {
        reflector_of!(self, kind, reflector => reflector.reach(version).await);
    }

    /// Whether a version was reached by a bookmark within `limit`. None is asked for if the cluster has so few objects of the
    /// kind that a list is faster.
    async fn reach_by_bookmark(&self, kind: Kind, version: u64, limit: Duration) -> bool {
        reflector_of!(self, kind, reflector => {
            let is_large = reflector.progress().borrow().size.max(reflector.store().len()) > FEW_OBJECTS;
            is_large && reflector.reach_by_bookmark(version, limit).await
        })
    }

    /// Waits for a list that starts after the call, and at least `interval` after the last one.
    async fn relist(&self, kind: Kind, interval: Duration) {
        reflector_of!(self, kind, reflector => reflector.relist(interval).await);
    }

    /// Whether the cache still holds this deleted object, not yet marked as Terminating.
    fn shows_living(&self, deleted: &Deleted) -> bool {
        reflector_of!(self, deleted.kind, reflector => {
            reflector
                .get(&deleted.key)
                .is_some_and(|found| found.uid() == deleted.uid && !found.terminating())
        })
    }
}

/// So many objects are listed faster than a bookmark arrives, which takes one to three seconds.
const FEW_OBJECTS: usize = 2_000;

/// Whether a kind is watched only once there is a SidecarSet.
fn is_for_sets(kind: Kind) -> bool {
    matches!(kind, Kind::Namespace | Kind::SetRevision)
}

/// Lists the pods of namespaces that SidecarSets begin to select: the cache has dropped those of other controllers.
async fn list_pods(pods: Arc<Reflector<CachedPod>>, sidecars: Arc<SidecarIndex>) {
    let mut opened = sidecars.opened();
    // Some may have opened already.
    opened.mark_changed();
    while opened.changed().await.is_ok() {
        pods.list_namespaces(sidecars.take_opened());
    }
}

/// Memory that a pod may take while it is parsed. An ordinary one takes 100 kB.
const MAX_POD_BYTES: usize = 32 << 20;
/// Memory that the metadata of a claim may take while they are parsed.
const MAX_CLAIM_BYTES: usize = 16 << 20;

/// Whether an object with this name and uid is in the cache.
fn has<T: Cached>(reflector: &Reflector<T>, namespace: &str, name: &str, uid: &str) -> bool {
    let found = reflector.store().get(namespace, name);
    found.is_some_and(|it| it.uid() == uid)
}

/// Routes changes, and objects that cannot be decoded.
fn routed<T>(
    router: Arc<Router>,
    kind: Kind,
    route: impl Fn(&Router, &Transition<T>),
) -> impl Fn(&Routed<T>) {
    move |routed| match routed {
        Routed::Changed(transition) => route(&router, transition),
        Routed::Unreadable(key, control) => router.unreadable(kind, key, control),
    }
}

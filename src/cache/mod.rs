//! What the cluster looks like: one watch per kind for the whole process, indexed by owner.
//!
//! Controllers read it without a lock held over an await, and without asking the API server.
//! What it promises: after a change is in the store, all objects it concerns are queued (deletes too);
//! [`Cache::caught_up`] makes a controller read its own writes; [`Cache::catch_up_with_server`]
//! makes a new leader see at least what the API server had when it took over.

mod comparison;
mod control;
mod expectations;
mod kinds;
mod pods;
mod reflector;
mod resources;
mod route;
mod slim;
mod store;
#[cfg(test)]
pub(crate) mod test_feed;
mod watch;
mod workload_index;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use control::Control;
pub use kinds::{CachedHookRun, Whole, slim_run};
pub use pods::CachedPod;
pub use slim::{Interner, Sight};
pub use store::{Cached, Store, Transition};
pub use watch::{Identity, Object};

pub(crate) use expectations::Expectations;
#[cfg(test)]
pub(crate) use kinds::NodeHead;
pub(crate) use kinds::{
    CachedGameDeployment, CachedGameStatefulSet, CachedHookTemplate, CachedRevision, NodeState,
    slim_claim,
};
pub(crate) use reflector::{Reflector, Routed, Seen};
pub(crate) use route::{BrokenSink, Router, Sink, WorkloadSink};
pub(crate) use watch::Source;

use self::comparison::Newest;
use crate::objects::{Deleted, Kind};
use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::plan::Claim;

#[derive(Default)]
pub(crate) struct Cache {
    pub game_deployments: Arc<Reflector<CachedGameDeployment>>,
    pub game_stateful_sets: Arc<Reflector<CachedGameStatefulSet>>,
    pub hook_runs: Arc<Reflector<CachedHookRun>>,
    pub hook_templates: Arc<Reflector<CachedHookTemplate>>,
    /// Pods that our workloads control, and those without a controller.
    pub pods: Arc<Reflector<CachedPod>>,
    /// Likewise ControllerRevisions.
    pub revisions: Arc<Reflector<CachedRevision>>,
    /// Nodes that have a deletion cost, or are lost.
    pub nodes: Arc<Reflector<NodeState>>,
    pub claims: Arc<Reflector<Claim>>,
    /// Writes that the cache may not have seen.
    pub expectations: Expectations,
    sources: BTreeMap<Kind, Source>,
    newest: BTreeMap<Kind, Newest>,
}

/// Figures of one reflector, for metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReflectorStats {
    pub kind: Kind,
    pub objects: usize,
    pub lists: u64,
    /// When the API server last said anything about the kind.
    pub heard: Instant,
}

/// What can be asked of a reflector whatever its kind.
macro_rules! reflector_of {
    ($cache:expr, $kind:expr, $reflector:ident => $ask:expr) => {
        match $kind {
            Kind::GameDeployment => {
                let $reflector = &$cache.game_deployments;
                $ask
            }
            Kind::GameStatefulSet => {
                let $reflector = &$cache.game_stateful_sets;
                $ask
            }
            Kind::HookRun => {
                let $reflector = &$cache.hook_runs;
                $ask
            }
            Kind::HookTemplate => {
                let $reflector = &$cache.hook_templates;
                $ask
            }
            Kind::Pod => {
                let $reflector = &$cache.pods;
                $ask
            }
            Kind::Revision => {
                let $reflector = &$cache.revisions;
                $ask
            }
            Kind::Node => {
                let $reflector = &$cache.nodes;
                $ask
            }
            Kind::Claim => {
                let $reflector = &$cache.claims;
                $ask
            }
        }
    };
}

impl Cache {
    /// Whether there is this workload, and not another one of its name.
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

    /// A cache of these objects: of one namespace, or (None) of all.
    pub(crate) fn new(client: &Client, namespace: Option<&str>, streaming: bool) -> Self {
        let sources = Kind::ALL.map(|kind| {
            let source = Source {
                client: client.clone(),
                path: kind.collection(namespace),
                metadata_only: kind == Kind::Claim,
                streaming,
            };
            (kind, source)
        });
        Self {
            newest: Kind::ALL.map(|kind| (kind, Newest::default())).into(),
            sources: sources.into(),
            ..Self::default()
        }
    }

    /// Starts the watches; they run until the set is dropped.
    pub(crate) fn start(&self, router: &Arc<Router>) -> JoinSet<()> {
        let mut watches = JoinSet::new();
        for (kind, source) in &self.sources {
            let (source, router) = (source.clone(), Arc::clone(router));
            self.start_one(*kind, source, router, &mut watches);
        }
        watches
    }

    fn start_one(
        &self,
        kind: Kind,
        source: Source,
        router: Arc<Router>,
        watches: &mut JoinSet<()>,
    ) {
        match kind {
            Kind::GameDeployment => watches.spawn(Arc::clone(&self.game_deployments).feed(
                source,
                |_, _, _, object| {
                    Ok(Some(Whole::new(
                        object.read_within(MAX_TEMPLATE_BYTES)?,
                        false,
                    )))
                },
                move |routed| match routed {
                    Routed::Changed(transition) => router.workload(transition),
                    Routed::Broken(key, reason) => {
                        router.broken("GameDeployment", key, reason);
                    }
                },
            )),
            Kind::GameStatefulSet => watches.spawn(Arc::clone(&self.game_stateful_sets).feed(
                source,
                |_, _, _, object| {
                    Ok(Some(Whole::new(
                        object.read_within(MAX_TEMPLATE_BYTES)?,
                        false,
                    )))
                },
                move |routed| match routed {
                    Routed::Changed(transition) => router.workload(transition),
                    Routed::Broken(key, reason) => {
                        router.broken("GameStatefulSet", key, reason);
                    }
                },
            )),
            Kind::HookRun => watches.spawn(Arc::clone(&self.hook_runs).feed(
                source,
                |_, _, _, object| Ok(Some(slim_run(object.read_within(MAX_HOOK_BYTES)?))),
                move |routed| match routed {
                    Routed::Changed(transition) => router.hook_run(transition),
                    Routed::Broken(key, reason) => router.broken("HookRun", key, reason),
                },
            )),
            Kind::HookTemplate => watches.spawn(Arc::clone(&self.hook_templates).feed(
                source,
                |_, _, _, object| Ok(Some(Whole::new(object.read_within(MAX_HOOK_BYTES)?, true))),
                move |routed| match routed {
                    Routed::Changed(transition) => router.hook_template(transition),
                    Routed::Broken(key, reason) => router.broken("HookTemplate", key, reason),
                },
            )),
            Kind::Pod => {
                let mut interner = Interner::default();
                watches.spawn(Arc::clone(&self.pods).feed(
                    source,
                    move |previous, sight, identity, pod| {
                        CachedPod::read(previous, sight, identity, pod, &mut interner)
                    },
                    changed(move |transition| router.pod(transition)),
                ))
            }
            Kind::Revision => watches.spawn(Arc::clone(&self.revisions).feed(
                source,
                |_, _, identity, object| match identity.control {
                    Control::Foreign => Ok(None),
                    _ => Ok(CachedRevision::new(object.read_within(MAX_TEMPLATE_BYTES)?)),
                },
                changed(move |transition| router.revision(transition)),
            )),
            Kind::Node => watches.spawn(Arc::clone(&self.nodes).feed(
                source,
                |_, _, _, node| Ok(NodeState::new(node.read()?)),
                changed(move |transition| router.node(transition)),
            )),
            Kind::Claim => watches.spawn(Arc::clone(&self.claims).feed(
                source,
                |_, _, _, claim| Ok(Some(slim_claim(claim.read()?))),
                changed(move |transition| router.claim(transition)),
            )),
        };
    }

    /// Whether every kind was listed once.
    pub(crate) fn is_ready(&self) -> bool {
        self.missing().is_empty()
    }

    /// The kinds that were never listed.
    pub(crate) fn missing(&self) -> Vec<Kind> {
        let unlisted = |kind: &Kind| self.seen(*kind).borrow().listed == 0;
        self.sources.keys().copied().filter(unlisted).collect()
    }

    /// Waits until every kind was listed once.
    pub(crate) async fn filled(&self) {
        for kind in self.sources.keys() {
            // The sender lives in self: waiting cannot fail.
            let _ = self.seen(*kind).wait_for(|seen| seen.listed > 0).await;
        }
    }

    /// How far a kind has been seen, to wait on.
    pub(crate) fn seen(&self, kind: Kind) -> Receiver<Seen> {
        reflector_of!(self, kind, reflector => reflector.seen())
    }

    /// What there is to say of each kind.
    pub(crate) fn stats(&self) -> Vec<ReflectorStats> {
        let stats = |kind| {
            reflector_of!(self, kind, reflector => ReflectorStats {
                kind,
                objects: reflector.store().len(),
                lists: reflector.seen().borrow().begun,
                heard: reflector.heard(),
            })
        };
        self.sources.keys().map(|kind| stats(*kind)).collect()
    }

    async fn reach(&self, kind: Kind, version: u64) {
        reflector_of!(self, kind, reflector => reflector.reach(version).await);
    }

    /// Waits for a list begun from now on; one is asked for when the last one began `pause` ago.
    async fn relist(&self, kind: Kind, pause: Duration) {
        reflector_of!(self, kind, reflector => reflector.relist(pause).await);
    }

    /// Whether an object of this uid is there and not Terminating.
    fn lives(&self, deleted: &Deleted) -> bool {
        reflector_of!(self, deleted.kind, reflector => {
            reflector
                .get(&deleted.key)
                .is_some_and(|found| found.uid() == deleted.uid && !found.terminating())
        })
    }
}

/// What a workload or revision may take, whose pod templates are kept as maps, in bytes. A thousand
/// variables of containers take 1 MB, and 2 MB more as managed fields.
const MAX_TEMPLATE_BYTES: usize = 16 << 20;
/// What a HookTemplate or HookRun may take while it is read. What is kept of it is little more than its
/// text.
const MAX_HOOK_BYTES: usize = 64 << 20;

/// Whether an object with this name and uid is in a store.
fn has<T: Cached>(reflector: &Reflector<T>, namespace: &str, name: &str, uid: &str) -> bool {
    let found = reflector.store().get(namespace, name);
    found.is_some_and(|it| it.uid() == uid)
}

/// Routes changes of kinds for which an unreadable object is only logged.
fn changed<T>(route: impl Fn(&Transition<T>)) -> impl Fn(&Routed<T>) {
    move |routed| {
        if let Routed::Changed(transition) = routed {
            route(transition);
        }
    }
}

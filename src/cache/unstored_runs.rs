//! HookRuns that exist only in this process.
//!
//! In a namespace that is being deleted, the API server creates no objects. The hooks of its guarded pods run
//! nevertheless, so that the namespace is deleted when the last match is over. Their HookRuns are kept here, and plans
//! and the controller of HookRuns read them together with the stored ones. They are lost when the process ends; the next
//! leader runs the hooks again.

use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::kinds::{CachedHookRun, slim_run};
use super::route::Router;
use super::store::{Cached, Store, Transition};
use crate::objects::ObjectKey;
use gamekeeper_core::api::{HookRun, HookRunStatus};

/// HookRuns that the API server does not store.
#[derive(Default)]
pub(crate) struct UnstoredRuns {
    runs: RwLock<Store<CachedHookRun>>,
    /// Queues what a change concerns; unset until the watches start.
    router: OnceLock<Arc<Router>>,
}

impl UnstoredRuns {
    /// Routes all changes from now on.
    pub(super) fn route_to(&self, router: &Arc<Router>) {
        // A second call would come from a second start of the watches, with the same router.
        let _ = self.router.set(Arc::clone(router));
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<CachedHookRun>> {
        self.read().get(&key.namespace, &key.name)
    }

    /// The runs that a workload controls.
    pub(crate) fn controlled_by(&self, namespace: &str, uid: &str) -> Vec<Arc<CachedHookRun>> {
        self.read().controlled_by(namespace, Some(uid))
    }

    /// Adds a run, with the metadata that the API server would have set.
    pub(crate) fn add(&self, mut run: HookRun) {
        let now = Timestamp::now();
        let name = run.metadata.name.as_deref().unwrap_or_default();
        // Unique, because a run with this name in another process was created at another time.
        run.metadata.uid = Some(format!("{name}-{}", now.as_nanosecond()));
        run.metadata.creation_timestamp = Some(Time(now));
        run.metadata.generation = Some(1);
        let transition = self.write().put(slim_run(as_stored(run)));
        self.route(&transition);
    }

    /// Sets the status of a run, unless another run has its name now.
    pub(crate) fn set_status(&self, key: &ObjectKey, uid: &str, status: HookRunStatus) {
        let mut runs = self.write();
        let Some(known) = runs.get(&key.namespace, &key.name) else {
            return;
        };
        if known.uid() != uid {
            return;
        }
        let mut run = HookRun::clone(&known.object);
        run.status = Some(status);
        let transition = runs.put(slim_run(as_stored(run)));
        drop(runs);
        self.route(&transition);
    }

    /// Removes a run, if it is here.
    pub(crate) fn remove(&self, key: &ObjectKey, uid: &str) {
        let mut runs = self.write();
        let known = runs.get(&key.namespace, &key.name);
        if known.is_none_or(|known| known.uid() != uid) {
            return;
        }
        let removed = runs.remove(&key.namespace, &key.name);
        drop(runs);
        self.route(&(removed, None));
    }

    /// Removes the runs of a workload that was deleted.
    pub(crate) fn remove_all_of(&self, namespace: &str, uid: &str) {
        for run in self.controlled_by(namespace, uid) {
            self.remove(&run.key(), run.uid());
        }
    }

    fn route(&self, transition: &Transition<CachedHookRun>) {
        if let Some(router) = self.router.get() {
            router.hook_run(transition);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Store<CachedHookRun>> {
        self.runs.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Store<CachedHookRun>> {
        self.runs.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run as the API server would return it: with times in whole seconds.
fn as_stored(run: HookRun) -> HookRun {
    let stored = serde_json::to_value(&run).and_then(serde_json::from_value);
    stored.unwrap_or(run)
}

//! HookRuns that exist only in this process.
//!
//! In a namespace that is being deleted, the API server creates no objects. The hooks of guarded pods must still run
//! there, so that the deletion can complete when the last match is over. Their HookRuns are kept here. Plans and the
//! controller of HookRuns read these runs together with the stored ones. These runs are lost when the process ends; the
//! next leader runs the hooks again.

use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::route::Router;
use crate::kinds::CachedHookRun;
use crate::kinds::cached::sized_run;
use crate::runtime::objects::ObjectKey;
use crate::runtime::store::{Cached, Store, Transition};
use gamekeeper_core::api::{HookRun, HookRunStatus};

/// The most memory that the runs of a namespace take, in bytes. A run is a copy of its template.
const MAX_MEMORY: usize = 16 << 20;

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

    /// Adds a run, with the metadata that the API server would have set. Returns whether it is kept: not if the runs of
    /// its namespace would take too much memory.
    pub(crate) fn add(&self, mut run: HookRun) -> bool {
        let now = Timestamp::now();
        let name = run.metadata.name.as_deref().unwrap_or_default();
        // Unique, because any other run with this name was created at another time, even in another process.
        run.metadata.uid = Some(format!("{name}-{}", now.as_nanosecond()));
        run.metadata.creation_timestamp = Some(Time(now));
        run.metadata.generation = Some(1);
        let run = sized_run(as_stored(run));
        let mut runs = self.write();
        let used = runs.memory(run.namespace());
        if used > 0 && used + run.memory() > MAX_MEMORY {
            return false;
        }
        let transition = runs.put(run);
        drop(runs);
        self.route(&transition);
        true
    }

    /// Sets the status of a run, unless the run was removed or its name now belongs to another run.
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
        let transition = runs.put(sized_run(as_stored(run)));
        drop(runs);
        self.route(&transition);
    }

    /// Removes a run, if it is kept here.
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::kinds::SidecarIndex;
    use crate::kinds::test_feed::run;
    use gamekeeper_core::api::HookPhase;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("games", name)
    }

    fn names(runs: &UnstoredRuns, workload: &str) -> Vec<String> {
        let runs = runs.controlled_by("games", workload);
        runs.iter().map(|run| run.name().to_owned()).collect()
    }

    fn ended() -> HookRunStatus {
        HookRunStatus { phase: HookPhase::Successful, ..HookRunStatus::default() }
    }

    #[test]
    fn a_run_gets_the_metadata_that_the_api_server_would_set() {
        let runs = UnstoredRuns::default();
        runs.add(run("run", "arena"));
        let first = runs.get(&key("run")).expect("the run");
        let meta = &first.object.metadata;
        assert!(meta.creation_timestamp.is_some());
        assert_eq!(meta.generation, Some(1));
        runs.remove(&key("run"), first.uid());
        runs.add(run("run", "arena"));
        let second = runs.get(&key("run")).expect("the run");
        assert!(first.uid().starts_with("run-"));
        assert_ne!(first.uid(), second.uid());
    }

    #[test]
    fn the_runs_of_a_namespace_take_a_limited_amount_of_memory() {
        let runs = UnstoredRuns::default();
        let large = |index: usize| {
            let mut run = run(&format!("run-{index}"), "arena");
            let args = serde_json::json!([{"name": "long", "value": "x".repeat(1 << 20)}]);
            run.spec.args = serde_json::from_value(args).expect("arguments");
            run
        };
        let kept = (0..50).filter(|index| runs.add(large(*index))).count();
        assert!((5..16).contains(&kept), "{kept}");
        let first = runs.get(&key("run-0")).expect("the run");
        runs.set_status(&key("run-0"), first.uid(), ended());
        assert!(!runs.add(large(50)));
        runs.remove(&key("run-0"), first.uid());
        assert!(runs.add(large(50)), "there is room again");
        let mut other = large(51);
        other.metadata.namespace = Some("other".to_owned());
        assert!(runs.add(other));
    }

    #[test]
    fn a_write_for_another_run_of_the_same_name_is_ignored() {
        let runs = UnstoredRuns::default();
        runs.add(run("run", "arena"));
        let phase = || runs.get(&key("run")).map(|it| it.object.phase());
        runs.set_status(&key("run"), "another uid", ended());
        assert_eq!(phase(), Some(HookPhase::Pending));
        let uid = runs.get(&key("run")).expect("the run").uid().to_owned();
        runs.set_status(&key("run"), &uid, ended());
        assert_eq!(phase(), Some(HookPhase::Successful));
        runs.remove(&key("run"), "another uid");
        assert_eq!(phase(), Some(HookPhase::Successful));
        runs.remove(&key("run"), &uid);
        assert_eq!(phase(), None);
        runs.set_status(&key("run"), &uid, ended());
        assert_eq!(phase(), None, "a late result does not restore the run");
    }

    #[test]
    fn the_runs_of_a_deleted_workload_are_removed_and_no_others() {
        let runs = UnstoredRuns::default();
        runs.add(run("a", "arena"));
        runs.add(run("b", "arena"));
        runs.add(run("c", "other"));
        assert_eq!(names(&runs, "arena"), ["a", "b"]);
        runs.remove_all_of("elsewhere", "arena");
        assert_eq!(names(&runs, "arena"), ["a", "b"]);
        runs.remove_all_of("games", "arena");
        assert_eq!(names(&runs, "arena"), [""; 0]);
        assert_eq!(names(&runs, "other"), ["c"]);
    }

    #[test]
    fn every_change_queues_the_run() {
        let queued = Arc::new(Mutex::new(0));
        let counter = Arc::clone(&queued);
        let to_runs = Box::new(move |_| *counter.lock().unwrap() += 1);
        let sidecars = Arc::new(SidecarIndex::default());
        let nowhere = || -> crate::kinds::Sink { Box::new(|_| {}) };
        let router = Router::new(Box::new(|_, _| {}), to_runs, nowhere(), sidecars, nowhere());
        let runs = UnstoredRuns::default();
        runs.route_to(&Arc::new(router));
        let changes = || std::mem::take(&mut *queued.lock().unwrap());
        runs.add(run("run", "arena"));
        assert_eq!(changes(), 1);
        let uid = runs.get(&key("run")).expect("the run").uid().to_owned();
        runs.set_status(&key("run"), "another uid", ended());
        assert_eq!(changes(), 0);
        runs.set_status(&key("run"), &uid, ended());
        assert!(changes() > 0);
        runs.remove_all_of("games", "arena");
        assert!(changes() > 0);
    }
}

//! The runs in progress. Each has a lock of its own, so that no run waits while another one is assessed. The map is
//! locked only to find, add or remove one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::live::Live;
use crate::runtime::objects::ObjectKey;

#[derive(Default)]
pub(super) struct LiveRuns(RwLock<HashMap<ObjectKey, Arc<Mutex<Live>>>>);

impl LiveRuns {
    /// Calls `visit` with a run, if it is in progress.
    pub(super) fn visit<T>(
        &self,
        key: &ObjectKey,
        visit: impl FnOnce(&mut Live) -> T,
    ) -> Option<T> {
        let runs = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let live = runs.get(key).map(Arc::clone);
        drop(runs);
        live.map(|live| visit(&mut lock(&live)))
    }

    /// Calls `visit` with a run, which is added if it is not in progress yet.
    pub(super) fn visit_or_add<T>(
        &self,
        key: &ObjectKey,
        new: impl FnOnce() -> Live,
        visit: impl FnOnce(&mut Live) -> T,
    ) -> T {
        let runs = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let known = runs.get(key).map(Arc::clone);
        drop(runs);
        let live = known.unwrap_or_else(|| {
            // The run of a tenant may be large, and the other runs must not wait for it.
            let new = Arc::new(Mutex::new(new()));
            let mut runs = self.0.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(runs.entry(key.clone()).or_insert(new))
        });
        visit(&mut lock(&live))
    }

    /// Forgets a run, and ends its calls.
    pub(super) fn remove(&self, key: &ObjectKey) {
        let removed = { self.0.write().unwrap_or_else(PoisonError::into_inner) }.remove(key);
        drop(removed);
    }

    /// Forgets all runs, and ends their calls.
    pub(super) fn clear(&self) {
        let mut runs = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let removed = std::mem::take(&mut *runs);
        drop(runs);
        drop(removed);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.read().expect("the runs").is_empty()
    }
}

fn lock(live: &Mutex<Live>) -> MutexGuard<'_, Live> {
    live.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::kinds::CachedHookRun;
    use gamekeeper_core::api::{HookRun, HookRunSpec};

    #[test]
    fn a_large_run_that_is_resumed_delays_no_other_run() {
        let runs = Arc::new(LiveRuns::default());
        let resume = || {
            let run = CachedHookRun::new(HookRun::new("run", HookRunSpec::default()), true);
            Live::resume(&run, Arc::default(), Timestamp::now())
        };
        let key = |name: &str| ObjectKey::new("games", name);
        runs.visit_or_add(&key("small"), resume, |_| ());
        let other = Arc::clone(&runs);
        let resume_slowly = || {
            let (visited, visits) = channel();
            std::thread::spawn(move || {
                let small = ObjectKey::new("games", "small");
                let _ = visited.send(other.visit(&small, |_| ()));
            });
            let visited = visits.recv_timeout(Duration::from_secs(10));
            assert_eq!(visited, Ok(Some(())), "the other run waits");
            resume()
        };
        runs.visit_or_add(&key("large"), resume_slowly, |_| ());
        assert_eq!(runs.visit(&key("large"), |_| ()), Some(()));
    }
}

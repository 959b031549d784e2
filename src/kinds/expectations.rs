//! Expectations: the operator's own writes that the cache has yet to observe.
//!
//! A plan made from a cache that lacks our own latest writes would create pods twice. So the resourceVersion of each
//! write is recorded (for a deletion, the uid, because the response may have no version), and the next plan for the
//! same object waits until the cache has observed that write. After a timeout, a new list from the API server shows
//! whether the write was made.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Cache;
use super::comparison::LIST_INTERVAL;
use crate::runtime::log_limiter::log_limited;
use crate::runtime::objects::{Deleted, Kind, Written};

/// How long the cache may take to observe a write before the object's kind is listed again.
const EXPECTATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Writes that the cache may not have observed yet, by the uid of the workload, SidecarSet or
/// Cluster that they were made for.
#[derive(Default)]
pub(crate) struct Expectations {
    owners: Mutex<HashMap<String, Expected>>,
}

#[derive(Clone, Debug)]
struct Expected {
    since: Instant,
    versions: BTreeMap<Kind, u64>,
    deletions: BTreeSet<Deleted>,
    unknown: BTreeSet<Kind>,
}

impl Expectations {
    pub(crate) fn record(&self, owner: &str, written: Written) {
        let mut owners = self.lock();
        let expected = owners.entry(owner.to_owned()).or_insert_with(|| Expected {
            since: Instant::now(),
            versions: BTreeMap::new(),
            deletions: BTreeSet::new(),
            unknown: BTreeSet::new(),
        });
        match written {
            Written::Version(kind, version) => {
                let newest = expected.versions.entry(kind).or_default();
                *newest = version.max(*newest);
            }
            Written::Deleted(deleted) => {
                expected.deletions.insert(deleted);
            }
            Written::Unknown(kind) => {
                expected.unknown.insert(kind);
            }
        }
    }

    pub(crate) fn forget(&self, owner: &str) {
        self.lock().remove(owner);
    }

    /// Whether a write is expected.
    #[cfg(test)]
    pub(crate) fn has(&self, owner: &str) -> bool {
        self.get(owner).is_some()
    }

    fn get(&self, owner: &str) -> Option<Expected> {
        self.lock().get(owner).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Expected>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    /// Waits until the cache shows every write that was recorded for this object.
    ///
    /// The caller makes sure that no write is recorded in the meantime (there is only one reconcile per object at a
    /// time).
    pub(crate) async fn until_caught_up(&self, owner: &str) {
        let Some(expected) = self.expectations.get(owner) else {
            return;
        };
        for kind in &expected.unknown {
            self.reach_newest(*kind).await;
        }
        let deadline =
            (expected.since + EXPECTATION_TIMEOUT).max(Instant::now() + Duration::from_secs(1));
        if timeout_at(deadline, self.until_observed(&expected)).await.is_err() {
            self.relist_overdue(owner, &expected).await;
        }
        self.expectations.forget(owner);
    }

    /// Waits until the cache shows these writes.
    async fn until_observed(&self, expected: &Expected) {
        for (kind, version) in &expected.versions {
            self.reach(*kind, *version).await;
        }
        for deleted in &expected.deletions {
            let mut progress = self.progress(deleted.kind);
            while self.shows_living(deleted) {
                if progress.changed().await.is_err() {
                    return;
                }
            }
        }
    }

    /// Lists the kinds with overdue writes again, after which the cache is up to date.
    async fn relist_overdue(&self, owner: &str, expected: &Expected) {
        let (versions, deletions) = (&expected.versions, expected.deletions.len());
        log_limited!(
            warn,
            owner,
            ?versions,
            deletions,
            "writes were not observed in time; relisting"
        );
        let versions = expected.versions.iter();
        let overdue =
            versions.filter(|(kind, version)| self.progress(**kind).borrow().version < **version);
        let living = expected.deletions.iter().filter(|it| self.shows_living(it));
        let kinds = overdue.map(|(kind, _)| *kind);
        let kinds: BTreeSet<Kind> = kinds.chain(living.map(|it| it.kind)).collect();
        for kind in kinds {
            self.relist(kind, LIST_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;

    use super::*;
    use crate::kinds::test_feed;
    use crate::runtime::objects::ObjectKey;

    fn pod_deleted(name: &str) -> Written {
        Written::Deleted(Deleted {
            kind: Kind::Pod,
            key: ObjectKey::new("games", name),
            uid: format!("uid-{name}"),
        })
    }

    #[tokio::test]
    async fn a_reconcile_without_recorded_writes_does_not_wait() {
        let cache = Cache::default();
        assert!(cache.until_caught_up("owner").now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_waits_for_the_version_of_its_own_write() {
        let cache = Arc::new(Cache::default());
        test_feed::pods(&cache, 10, &["a"]);
        cache.expectations.record("owner", Written::Version(Kind::Pod, 12));
        assert!(cache.until_caught_up("owner").now_or_never().is_none());
        assert!(cache.until_caught_up("other").now_or_never().is_some());
        test_feed::pods(&cache, 12, &["a", "b"]);
        assert!(cache.until_caught_up("owner").now_or_never().is_some());
        assert!(cache.expectations.get("owner").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_waits_until_the_cache_observes_a_deletion() {
        let cache = Arc::new(Cache::default());
        test_feed::pods(&cache, 10, &["a", "b"]);
        cache.expectations.record("owner", pod_deleted("a"));
        assert!(cache.until_caught_up("owner").now_or_never().is_none());
        test_feed::pods(&cache, 11, &["b"]);
        assert!(cache.until_caught_up("owner").now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_never_observed_is_checked_by_a_new_list() {
        let cache = Arc::new(Cache::default());
        test_feed::pods(&cache, 10, &["a"]);
        cache.expectations.record("owner", pod_deleted("a"));
        let waiting = tokio::spawn({
            let cache = Arc::clone(&cache);
            async move { cache.until_caught_up("owner").await }
        });
        tokio::time::sleep(EXPECTATION_TIMEOUT + Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        // The new list still has the pod: it was not deleted, and the wait ends.
        test_feed::pods(&cache, 20, &["a"]);
        waiting.await.unwrap();
        assert!(cache.expectations.get("owner").is_none());
    }
}

//! The open connections of a server: which one is closed if there are too many, and how all are closed at the end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tracing::debug;

/// The maximum number of connections of a server. Those that are being closed do not count.
pub(super) const MAX_CONNECTIONS: usize = 256;
/// The maximum number of connections that are being closed.
const MAX_CLOSING: usize = 256;

/// The connections of a server. Clones share them.
#[derive(Clone)]
pub(crate) struct Connections {
    open: Arc<Mutex<Open>>,
    /// Whether all connections are to be closed, and no more accepted.
    closing: watch::Sender<bool>,
    /// How many there are.
    count: watch::Sender<usize>,
}

#[derive(Default)]
struct Open {
    next: u64,
    by_age: BTreeMap<u64, (Arc<Activity>, AbortHandle)>,
}

/// When something last happened on a connection.
pub(super) struct Activity {
    last: Mutex<Instant>,
    /// Notified when the connection is to be closed.
    close: Notify,
    /// Whether it is being closed.
    is_closing: watch::Sender<bool>,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            open: Arc::default(),
            closing: watch::Sender::new(false),
            count: watch::Sender::new(0),
        }
    }
}

impl Connections {
    /// Closes all connections as soon as their requests are answered, and waits for that. Clients of HTTP/2 get a GOAWAY,
    /// so they send further requests to another replica instead of losing them.
    pub(crate) async fn close(&self, limit: Duration) {
        self.closing.send_replace(true);
        let mut count = self.count.subscribe();
        // Cannot fail, because self holds the sender.
        let closed = count.wait_for(|count| *count == 0);
        if timeout(limit, closed).await.is_err() {
            debug!("some connections are still open");
        }
    }

    /// Returns when all connections are to be closed.
    pub(super) async fn until_closing(&self) {
        // Cannot fail, because self holds the sender.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Runs a connection as a task of its own, and closes another one if there are too many.
    pub(super) fn run<F>(&self, serve: impl FnOnce(Arc<Activity>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let activity = Arc::new(Activity {
            last: Mutex::new(Instant::now()),
            close: Notify::new(),
            is_closing: watch::Sender::new(false),
        });
        self.count.send_modify(|count| *count += 1);
        let ended = Ended(self.count.clone());
        let (served, until_closing) = (serve(Arc::clone(&activity)), self.clone());
        let closer = Arc::clone(&activity);
        let task = tokio::spawn(async move {
            let _ended = ended;
            let mut served = std::pin::pin!(served);
            tokio::select! {
                () = &mut served => return,
                () = until_closing.until_closing() => closer.close.notify_one(),
            }
            served.await;
        });
        self.lock().add(activity, task.abort_handle());
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a connection as ended when this is dropped.
struct Ended(watch::Sender<usize>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Activity {
    /// Records that a request has begun or was answered.
    pub(super) fn record(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn last(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the connection is to be closed.
    pub(super) async fn until_closing(&self) {
        self.close.notified().await;
        self.is_closing.send_replace(true);
    }

    fn is_closing(&self) -> bool {
        *self.is_closing.borrow()
    }
}

impl Open {
    /// Adds a connection. If there are too many, closes the one on which nothing has happened for longest: that of a
    /// caller who holds connections for their own sake, or one that its caller does not miss. An API server's requests
    /// are answered first, and its next one finds another connection.
    fn add(&mut self, activity: Arc<Activity>, task: AbortHandle) {
        self.by_age.insert(self.next, (activity, task));
        self.next += 1;
        if self.by_age.len() <= MAX_CONNECTIONS {
            return;
        }
        self.by_age.retain(|_, (_, task)| !task.is_finished());
        let is_closing =
            |(_, (activity, _)): &(&u64, &(Arc<Activity>, AbortHandle))| activity.is_closing();
        let closing: Vec<u64> = self.by_age.iter().filter(is_closing).map(|it| *it.0).collect();
        if self.by_age.len() - closing.len() <= MAX_CONNECTIONS {
            return;
        }
        let open = self.by_age.iter().filter(|it| !is_closing(it));
        let idle = open.min_by_key(|(_, (activity, _))| activity.last());
        if let Some((_, (activity, _))) = idle {
            debug!("too many connections; closing the one that has been idle for longest");
            activity.is_closing.send_replace(true);
            activity.close.notify_one();
        }
        if closing.len() >= MAX_CLOSING
            && let Some((_, task)) = closing.first().and_then(|it| self.by_age.remove(it))
        {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// A server with this many connections, each of which ends when it is told to.
    fn full(count: usize) -> (Connections, Vec<Arc<Activity>>) {
        let connections = Connections::default();
        let mut activities = Vec::new();
        for _ in 0..count {
            connections.run(|activity| {
                activities.push(Arc::clone(&activity));
                async move { activity.until_closing().await }
            });
        }
        (connections, activities)
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_closes_the_one_that_has_been_idle_for_longest() {
        let (connections, all) = full(MAX_CONNECTIONS);
        tokio::time::advance(Duration::from_secs(1)).await;
        // As an API server among many pods that hold one connection each.
        for active in [0, 7] {
            all[active].record();
        }
        connections.run(|_| pending());
        tokio::task::yield_now().await;
        let closing: Vec<usize> = (0..all.len()).filter(|it| all[*it].is_closing()).collect();
        assert_eq!(closing, [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_do_not_end_when_they_are_closed_are_limited() {
        let connections = Connections::default();
        for _ in 0..4 * MAX_CONNECTIONS {
            connections.run(|_| pending());
        }
        let limit = MAX_CONNECTIONS + MAX_CLOSING + 1;
        let mut count = connections.count.subscribe();
        let aborted = count.wait_for(|count| *count <= limit);
        let aborted = timeout(Duration::from_secs(5), aborted).await;
        assert!(aborted.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn all_connections_are_closed_at_the_end() {
        let (connections, all) = full(3);
        connections.close(Duration::from_secs(5)).await;
        assert_eq!(*connections.count.borrow(), 0);
        assert!(all.iter().all(|it| it.is_closing()));
    }
}

//! Threads on which plans are made.
//!
//! A plan for ten thousand pods keeps a processor busy for tens of milliseconds. If a few such plans were made at the
//! same time on the threads that serve sockets and timers, they would delay everything else, such as the renewal of the
//! lease. Each processor makes one plan at a time; the other plans wait.

use std::future::pending;
use std::io;
use std::panic::resume_unwind;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};

use crate::runtime::fair::{Capacity, NamespaceLimiter};

/// The limits on plans that take much memory. Each of them may take 50 MB for as long as it is made, because a pod
/// template takes eighty times its length once it is parsed.
const LARGE_PLANS: Capacity = Capacity { shared: 2, per_namespace: 1, reserved: 0 };

/// The threads that make plans. They end when this value is dropped.
pub(crate) struct Planners {
    large: NamespaceLimiter,
    /// How many plans were made on the threads of their callers.
    #[cfg(test)]
    inline: std::sync::atomic::AtomicUsize,
    /// None only while `Planners` is being dropped.
    threads: Option<Runtime>,
}

impl Planners {
    /// Starts one thread for each processor.
    pub(crate) fn start() -> io::Result<Self> {
        let threads = Builder::new_multi_thread()
            .thread_name("plans")
            .worker_threads(available_parallelism().map_or(1, usize::from))
            .build()?;
        Ok(Self {
            large: NamespaceLimiter::new(LARGE_PLANS),
            #[cfg(test)]
            inline: Default::default(),
            threads: Some(threads),
        })
    }

    /// Makes plans on the caller's thread, for tests that stop the clock: it would advance during a plan on another one.
    #[cfg(test)]
    pub(crate) fn inline() -> Self {
        let large = NamespaceLimiter::new(LARGE_PLANS);
        Self { large, inline: Default::default(), threads: None }
    }

    /// How many plans were made since [`Self::inline`].
    #[cfg(test)]
    pub(crate) fn made(&self) -> usize {
        self.inline.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Runs a plan that takes much memory: at most one of each namespace at a time.
    pub(crate) async fn run_large<T: Send + 'static>(
        &self,
        namespace: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let _permit = self.large.take(namespace).await;
        self.run(work).await
    }

    /// Runs a plan. A panic in it is propagated to the caller, and ends no other plan.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let Some(threads) = &self.threads else {
            #[cfg(test)]
            {
                self.inline.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                return work();
            }
            #[cfg(not(test))]
            return pending().await;
        };
        match threads.spawn(async move { work() }).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The threads were shut down because the process ends.
                Err(_) => pending().await,
            },
        }
    }
}

impl Drop for Planners {
    /// Does not wait for the threads: an async context must not block.
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Barrier};
    use std::thread;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_long_plan_does_not_delay_other_work() {
        let planners = Planners::start().expect("threads");
        let barrier = Arc::new(Barrier::new(2));
        let plan = {
            let barrier = Arc::clone(&barrier);
            planners.run(move || barrier.wait())
        };
        // Ends only if this thread continues while the plan is in progress. A second plan might wait for the first one,
        // because a thread that has just started may take both.
        tokio::join!(plan, async {
            tokio::task::yield_now().await;
            barrier.wait()
        });
        let name = planners.run(|| thread::current().name().map(str::to_owned));
        assert_eq!(name.await.as_deref(), Some("plans"));
    }

    #[tokio::test]
    async fn large_plans_of_a_namespace_are_made_one_after_another() {
        let planners = Planners::start().expect("threads");
        let running = Arc::new(AtomicUsize::new(0));
        let plans = (0..20).map(|_| {
            let running = Arc::clone(&running);
            planners.run_large("games", move || {
                let others = running.fetch_add(1, Ordering::SeqCst);
                thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                others
            })
        });
        let others = futures::future::join_all(plans).await;
        assert_eq!(others.iter().max(), Some(&0));
    }

    #[tokio::test]
    async fn a_panic_in_one_plan_ends_no_other() {
        let planners = Planners::start().expect("threads");
        for round in 0..10 {
            let panicking = planners.run(|| -> () { panic!("on purpose") });
            assert!(AssertUnwindSafe(panicking).catch_unwind().await.is_err());
            assert_eq!(planners.run(move || round).await, round);
        }
    }
}

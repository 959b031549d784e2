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

/// The threads that make plans. They end when this value is dropped.
pub(crate) struct Planners {
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
            threads: Some(threads),
        })
    }

    /// Runs a plan. A panic in it is propagated to the caller, and ends no other plan.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let Some(threads) = &self.threads else {
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
    use std::sync::{Arc, Barrier};
    use std::thread;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn long_plans_do_not_delay_other_work() {
        let planners = Planners::start().expect("threads");
        let thread_count = available_parallelism().map_or(1, usize::from);
        let barrier = Arc::new(Barrier::new(thread_count + 1));
        let plans = (0..thread_count).map(|_| {
            let barrier = Arc::clone(&barrier);
            planners.run(move || barrier.wait())
        });
        // Ends only if this thread continues while all plans are in progress.
        let other_work = async { barrier.wait() };
        tokio::join!(futures::future::join_all(plans), async {
            tokio::task::yield_now().await;
            other_work.await
        });
        let name = planners.run(|| thread::current().name().map(str::to_owned));
        assert_eq!(name.await.as_deref(), Some("plans"));
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

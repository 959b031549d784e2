//! Threads that parse and evaluate what users wrote.
//!
//! They have large stacks, because the parser of expressions recurses with large frames. A panic ends one measurement
//! and nothing else. Even if an evaluation takes several milliseconds, it does not delay timers and sockets, because
//! other threads serve these. The namespaces are served in rotation, each by one thread at a time, so that a namespace
//! with a lot of work delays no other. On Linux, the threads also run at a lower priority than all others, so that
//! expensive expressions do not take processors from watches and writes.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::runtime::fair::RoundRobin;
use crate::runtime::threads::yield_to_others;
use gamekeeper_core::expr::{Panicked, STACK_BYTES};

/// The number of threads: more than one, so that an expensive expression does not delay those of other namespaces.
const THREADS: usize = 2;

type Job = Box<dyn FnOnce() + Send>;

/// A handle to the threads, which end when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct EvaluationPool(Arc<Handle>);

struct Handle(Arc<Jobs>);

#[derive(Default)]
struct Jobs {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: RoundRobin<Job>,
    /// The namespaces of the jobs in progress.
    running: HashSet<String>,
    /// Whether all handles were dropped, so no more jobs can come.
    is_closed: bool,
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing can panic while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job and its namespace; None when no more jobs can come. [`Jobs::done`] must follow.
    fn next(&self) -> Option<(Job, String)> {
        let mut state = self.lock();
        loop {
            if let Some(next) = state.start() {
                return Some(next);
            }
            if state.is_closed {
                return None;
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, namespace: &str) {
        self.lock().running.remove(namespace);
        self.changed.notify_one();
    }
}

impl State {
    /// The next job of a namespace that has no job in progress.
    fn start(&mut self) -> Option<(Job, String)> {
        let Self { waiting, running, .. } = self;
        waiting.pop(|namespace| {
            let namespace = namespace.to_owned();
            running.insert(namespace.clone()).then_some(namespace)
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl EvaluationPool {
    pub(crate) fn start() -> std::io::Result<Self> {
        let jobs = Arc::new(Jobs::default());
        // If a thread cannot be started, `pool` is dropped, which ends the other threads.
        let pool = EvaluationPool(Arc::new(Handle(Arc::clone(&jobs))));
        for number in 0..THREADS {
            let jobs = Arc::clone(&jobs);
            std::thread::Builder::new()
                .name(format!("expressions-{number}"))
                .stack_size(STACK_BYTES)
                .spawn(move || serve(&jobs))?;
        }
        Ok(pool)
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        namespace: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        self.submit(namespace, work).await.map_err(|_| Panicked)
    }

    /// Submits a job. If it panics, the sender is dropped, which closes the receiver.
    fn submit<T: Send + 'static>(
        &self,
        namespace: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, result) = oneshot::channel();
        let job: Job = Box::new(move || {
            // Nothing is evaluated for a caller that has stopped waiting.
            if !sender.is_closed() {
                let _ = sender.send(work());
            }
        });
        let Handle(jobs) = &*self.0;
        jobs.lock().waiting.push(namespace, job);
        jobs.changed.notify_one();
        result
    }
}

fn serve(jobs: &Jobs) {
    yield_to_others();
    while let Some((job, namespace)) = jobs.next() {
        let _ = catch_unwind(AssertUnwindSafe(job));
        jobs.done(&namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_one_job_and_no_other() {
        let pool = EvaluationPool::start().expect("threads");
        for round in 0..2 * THREADS {
            let panicking = pool.run("games", || -> () { panic!("on purpose") }).await;
            assert_eq!(panicking, Err(Panicked));
            assert_eq!(pool.run("games", move || round).await, Ok(round));
        }
    }

    #[tokio::test]
    async fn a_namespace_with_many_jobs_delays_no_other() {
        let pool = EvaluationPool::start().expect("threads");
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let endless = pool.submit("greedy", move || ended.recv().is_ok());
        let queued: Vec<_> = (0..100).map(|job| pool.submit("greedy", move || job)).collect();
        for round in 0..10 {
            assert_eq!(pool.run("other", move || round).await, Ok(round));
        }
        end.send(()).expect("a thread");
        assert_eq!(endless.await, Ok(true));
        for (number, job) in queued.into_iter().enumerate() {
            assert_eq!(job.await, Ok(number));
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn only_the_threads_of_the_pool_yield_to_others() {
        use crate::runtime::threads::NICE;
        let nice = || rustix::process::getpriority_process(None).expect("a priority");
        let nice_before = nice();
        let pool = EvaluationPool::start().expect("threads");
        let lowest = 19;
        assert_eq!(pool.run("game", nice).await, Ok(lowest.min(nice_before + NICE)));
        assert_eq!(nice(), nice_before);
    }
}

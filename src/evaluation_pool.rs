//! Threads on which what users wrote is read and evaluated.
//!
//! The parser of expressions recurses with large frames, so its stack must be large too; a panic in
//! it, or in anything that works on an answer, ends that one measurement and nothing else. It also
//! keeps work of some milliseconds away from the threads that serve timers and sockets. Namespaces
//! are served in rotation: one with much to evaluate delays no other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::fair::RoundRobin;
use gamekeeper_core::expr::{Panicked, STACK_BYTES};

/// Threads: two, so that one expensive expression does not hold up all others.
const THREADS: usize = 2;

type Job = Box<dyn FnOnce() + Send>;

/// A handle on the threads; they end when the last handle is gone.
#[derive(Clone)]
pub(crate) struct EvaluationPool(Arc<Handle>);

/// The one that all clones of a handle share.
struct Handle(Arc<Jobs>);

/// What the threads have to do.
#[derive(Default)]
struct Jobs {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: RoundRobin<Job>,
    /// Whether all handles are gone, so that no more work can come.
    is_over: bool,
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic is done while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job; None when there is none and never will be.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some((job, ())) = state.waiting.pop(|_| Some(())) {
                return Some(job);
            }
            if state.is_over {
                return None;
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

impl EvaluationPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub(crate) fn start() -> std::io::Result<Self> {
        let jobs = Arc::new(Jobs::default());
        // Also where a thread cannot be started, the others end with it.
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

    /// Runs some work of a namespace on one of the threads.
    ///
    /// # Errors
    /// When it panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        namespace: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        self.submit(namespace, work).await.map_err(|_| Panicked)
    }

    /// The answer's sender is dropped by a panic, which its receiver sees.
    fn submit<T: Send + 'static>(
        &self,
        namespace: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move || {
            // When the caller has gone, nothing need be evaluated.
            if !answer.is_closed() {
                let _ = answer.send(work());
            }
        });
        let Handle(jobs) = &*self.0;
        jobs.lock().waiting.push(namespace, job);
        jobs.changed.notify_one();
        answered
    }
}

fn serve(jobs: &Jobs) {
    while let Some(job) = jobs.next() {
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_one_piece_of_work_and_no_other() {
        let pool = EvaluationPool::start().expect("threads");
        for round in 0..2 * THREADS {
            let panicking = pool.run("games", || -> () { panic!("on purpose") }).await;
            assert_eq!(panicking, Err(Panicked));
            assert_eq!(pool.run("games", move || round).await, Ok(round));
        }
    }

    #[tokio::test]
    async fn a_namespace_with_much_to_evaluate_keeps_no_other_one_waiting() {
        let pool = EvaluationPool::start().expect("threads");
        let (begin, begun) = std::sync::mpsc::channel::<()>();
        let begun = Arc::new(Mutex::new(begun));
        // The threads are busy while all else is asked for.
        let busy: Vec<_> = (0..THREADS)
            .map(|_| {
                let begun = Arc::clone(&begun);
                pool.submit("greedy", move || {
                    begun.lock().map(|it| it.recv().is_ok()).is_ok()
                })
            })
            .collect();
        let done = Arc::new(Mutex::new(Vec::new()));
        let ask = |namespace: &'static str| {
            let done = Arc::clone(&done);
            pool.submit(namespace, move || {
                done.lock().expect("a list").push(namespace)
            })
        };
        let many: Vec<_> = (0..100).map(|_| ask("greedy")).collect();
        let one = ask("other");
        for _ in 0..THREADS {
            begin.send(()).expect("a thread");
        }
        for answer in busy {
            answer.await.expect("done");
        }
        one.await.expect("done");
        for answer in many {
            answer.await.expect("done");
        }
        let done = done.lock().expect("a list");
        let place = done.iter().position(|it| *it == "other").expect("done");
        assert!(place <= 2 * THREADS, "after {place} others");
    }
}

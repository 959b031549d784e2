//! Threads on which what users wrote is read and evaluated.
//!
//! The parser of expressions recurses with large frames, so its stack must be large too; a panic in
//! it, or in anything that works on an answer, ends that one measurement and nothing else. It also
//! keeps work of some milliseconds away from the threads that serve timers and sockets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};

use tokio::sync::oneshot;

/// Stack of each thread; the memory is only taken when it is used.
const STACK: usize = 16 << 20;
/// Threads: two, so that one expensive expression does not hold up all others.
const THREADS: usize = 2;

/// The work was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the evaluation failed inside: this is a mistake in gamekeeper, please report it")]
pub struct Panicked;

type Job = Box<dyn FnOnce() + Send>;

/// A handle on the threads; they end when the last handle is gone.
#[derive(Clone)]
pub struct Guard {
    jobs: mpsc::Sender<Job>,
}

impl Guard {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start() -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..THREADS {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new()
                .name(format!("expressions-{number}"))
                .stack_size(STACK)
                .spawn(move || serve(&queue))?;
        }
        Ok(Guard { jobs })
    }

    /// Runs some work on one of the threads.
    ///
    /// # Errors
    /// When it panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        self.submit(work).await.map_err(|_| Panicked)
    }

    /// As [`run`](Self::run), for callers outside the async runtime.
    ///
    /// # Errors
    /// When it panicked.
    pub fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        self.submit(work).blocking_recv().map_err(|_| Panicked)
    }

    /// The answer's sender is dropped by a panic, which its receiver sees.
    fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, answered) = oneshot::channel();
        // Nobody serves the queue only when the threads are gone; the answer is dropped then too.
        let _ = self.jobs.send(Box::new(move || {
            let _ = answer.send(work());
        }));
        answered
    }
}

fn serve(queue: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        // A panic cannot happen while the lock is held, so a poisoned one is as good.
        let job = queue
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .recv();
        let Ok(job) = job else { return };
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_one_piece_of_work_and_no_other() {
        let guard = Guard::start().expect("threads");
        for round in 0..2 * THREADS {
            let panicking = guard.run_blocking(|| -> () { panic!("on purpose") });
            assert_eq!(panicking, Err(Panicked));
            assert_eq!(guard.run_blocking(move || round), Ok(round));
        }
    }

    #[tokio::test]
    async fn work_has_a_deep_stack() {
        fn deep(frames: usize) -> usize {
            let frame = std::hint::black_box([frames as u8; 4096]);
            if frames == 0 {
                0
            } else {
                deep(frames - 1) + usize::from(frame[0] != 0)
            }
        }
        let guard = Guard::start().expect("threads");
        assert!(guard.run(|| deep(1_500)).await.is_ok());
    }
}

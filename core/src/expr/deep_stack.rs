//! A thread with a stack that is large enough for the parser of conditions.

use std::thread;

/// The stack size of threads that compile conditions, in bytes. The parser is recursive, and its stack frames are
/// large. The operating system allocates a page of the stack only when it is first used.
pub const STACK_BYTES: usize = 16 << 20;

/// The work panicked, or its thread could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("internal error (bug in gamekeeper), please report it")]
pub struct Panicked;

/// Runs work on a thread with a deep stack, and waits for its result.
///
/// # Errors
/// If the work panicked, or the thread could not be started.
pub fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Panicked> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK_BYTES);
        let running = thread.spawn_scoped(scope, work).map_err(|_| Panicked)?;
        running.join().map_err(|_| Panicked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deep(frames: usize) -> usize {
        let frame = std::hint::black_box([frames as u8; 4096]);
        match frames {
            0 => 0,
            _ => deep(frames - 1) + usize::from(frame[0] != 0),
        }
    }

    #[test]
    fn the_stack_holds_large_frames() {
        assert!(on_deep_stack(|| deep(1_500)).is_ok());
    }

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(on_deep_stack(|| -> () { panic!("on purpose") }), Err(Panicked));
    }
}

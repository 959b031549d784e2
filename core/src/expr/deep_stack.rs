//! A thread with the stack that reading conditions takes.

use std::thread;

/// Stack of a thread that compiles conditions, in bytes: the parser recurses with large frames. The
/// operating system provides the memory only as it is used.
pub const STACK_BYTES: usize = 16 << 20;

/// The work panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("internal error (bug in gamekeeper), please report it")]
pub struct Panicked;

/// Runs work on a thread with a deep stack, and waits for its result.
///
/// # Errors
/// When the work panicked, or the operating system provides no thread.
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
        assert_eq!(
            on_deep_stack(|| -> () { panic!("on purpose") }),
            Err(Panicked)
        );
    }
}

//! Runtimes of their own for work that others cause, so that it cannot delay what the operator must do in time, such as
//! renewing its lease.

#[cfg(target_os = "linux")]
use rustix::process::{getpriority_process, setpriority_process};
use tokio::runtime::{Builder, Handle, Runtime};

/// The nice value of threads that yield, relative to that of the process's other threads.
#[cfg(target_os = "linux")]
pub(crate) const NICE: i32 = 10;

/// The number of threads of a runtime.
const THREADS: usize = 2;

/// A runtime whose tasks end when this is dropped.
pub(crate) struct OwnRuntime {
    handle: Handle,
    /// None once this is dropped.
    runtime: Option<Runtime>,
}

impl OwnRuntime {
    /// Starts a runtime. If it yields, its threads run at a lower priority than others, where the system supports that.
    pub(crate) fn start(name: &str, yields: bool) -> std::io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(THREADS).thread_name(name).enable_all();
        if yields {
            builder.on_thread_start(yield_to_others);
        }
        let runtime = builder.build()?;
        Ok(OwnRuntime { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Where to start tasks.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Lookups of host names cannot be canceled, and may take a minute each.
            runtime.shutdown_background();
        }
    }
}

/// Lowers the priority of the current thread. On systems other than Linux this would affect the whole process.
pub(crate) fn yield_to_others() {
    // A sandbox may forbid this. The threads also work with the default priority.
    #[cfg(target_os = "linux")]
    let _ = getpriority_process(None).and_then(|nice| setpriority_process(None, nice + NICE));
}

//! `gamekeeper node-hook`: copies files to the node that it runs on, and runs a script there.
//!
//! The Jobs of lifecycle hooks run this command in the operator's image, which has no shell. The command opens the
//! files in the container, enters the mount namespace of the node's first process, writes the files there, and runs
//! the script. No shell interprets the arguments. The command exits with the script's exit code. If the script fails,
//! the end of its standard error becomes the container's termination message.

mod copy;
mod script;

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use gamekeeper_core::causes::with_causes;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use self::copy::Copy;

/// The exit code if the files could not be copied or the script could not be run. Scripts rarely exit with this code.
const NOT_RUN: u8 = 125;
/// Locked on the node while files are written and a script runs, so that two scripts never run at the same time.
const LOCK: &str = "/run/gamekeeper-node-hook.lock";
/// The kubelet's limit for a termination message.
const MAX_MESSAGE: usize = 4096;

/// Flags of `gamekeeper node-hook`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Copy a file, or the files of a directory. Links must stay within the directory that the first two components
    /// of SRC name.
    #[arg(long, num_args = 2, value_names = ["SRC", "DST"], action = ArgAction::Append)]
    copy: Vec<PathBuf>,
    /// The process whose mount namespace is that of the node.
    #[arg(long, value_name = "PID", default_value_t = 1)]
    node_process: u32,
    /// Where to write the termination message.
    #[arg(long, value_name = "FILE", default_value = "/dev/termination-log")]
    termination_log: PathBuf,
    /// The script and its arguments; without it, files are only copied.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Why the files were not copied or the script was not run.
#[derive(Debug, thiserror::Error)]
enum NotRun {
    #[error("{message}")]
    Io { message: String, source: std::io::Error },
    #[error("{0}")]
    Source(String),
}

impl NotRun {
    fn io(message: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let message = message.into();
        |source| Self::Io { message, source }
    }
}

/// Copies the files and runs the script; returns the exit code. The process must be single-threaded: the kernel
/// requires that for a change of the mount namespace.
pub fn run(options: &Options) -> u8 {
    // The log is in the container, so it is opened before entering the node's namespace.
    let log = OpenOptions::new().write(true).open(&options.termination_log);
    let (code, message) = match attempt(options) {
        Ok(None) => (0, String::new()),
        Ok(Some(ended)) => (ended.code, ended.to_string()),
        Err(not_run) => {
            let message = with_causes(&not_run);
            eprintln!("gamekeeper: {message}");
            (NOT_RUN, message)
        }
    };
    if code != 0
        && let Ok(mut log) = log
    {
        let end = message.floor_char_boundary(MAX_MESSAGE);
        // Without the message, the exit code is still reported.
        let _ = log.write_all(&message.as_bytes()[..end]);
    }
    code
}

/// How the script ended; None if there is no script.
fn attempt(options: &Options) -> Result<Option<script::Ended>, NotRun> {
    let mut copies = Vec::new();
    for pair in options.copy.chunks(2) {
        if let [src, dst] = pair {
            copies.extend(copy::open(src, dst)?);
        }
    }
    enter_node(options.node_process)?;
    let _lock = lock()?;
    copies.into_iter().try_for_each(Copy::write)?;
    match options.command.split_first() {
        Some((program, arguments)) => script::run(program, arguments).map(Some),
        None => Ok(None),
    }
}

/// Enters the mount namespace of a process. The root and working directory become those of the namespace.
fn enter_node(process: u32) -> Result<(), NotRun> {
    let path = format!("/proc/{process}/ns/mnt");
    let failed =
        "cannot enter the node's mount namespace (it requires a privileged container and hostPID)";
    let namespace = File::open(path).map_err(NotRun::io(failed))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(|error| NotRun::io(failed)(error.into()))
}

/// Waits until no other script of a hook runs on the node. The kernel releases the lock when this process ends; scripts
/// do not inherit it.
fn lock() -> Result<File, NotRun> {
    let failed = format!("cannot lock {LOCK}");
    if let Some(folder) = Path::new(LOCK).parent() {
        fs::create_dir_all(folder).map_err(NotRun::io(&failed))?;
    }
    let file = File::create(LOCK).map_err(NotRun::io(&failed))?;
    file.lock().map_err(NotRun::io(&failed))?;
    Ok(file)
}

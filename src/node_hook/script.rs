//! Runs the script without a shell, and keeps the end of its standard error.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::NotRun;

/// How much of the standard error is kept.
const TAIL: usize = 1024;
/// How long to wait for the rest of the standard error: a background process of the script may keep it open.
const STDERR_TIMEOUT: Duration = Duration::from_secs(1);
/// Where programs are found, as in root's login shell.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The variables that the Job sets for the script.
const VARIABLES: [&str; 5] = ["CLUSTER", "NODE", "HOOK", "VERSION", "ATTEMPT"];

/// How a script ended. Its display omits the exit code, which the kubelet reports.
pub(super) struct Ended {
    pub(super) code: u8,
    stderr: String,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stderr.as_str() {
            "" => Ok(()),
            stderr => write!(f, "stderr: {stderr}"),
        }
    }
}

/// Runs the script and waits for it to exit.
pub(super) fn run(program: &OsStr, arguments: &[OsString]) -> Result<Ended, NotRun> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/").stdin(Stdio::null());
    command.stderr(Stdio::piped()).env_clear();
    command.env("PATH", PATH).env("HOME", "/root");
    for name in VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let mut child = command.spawn().map_err(|error| cannot_run(program, error))?;
    let stderr = child.stderr.take().map(forward);
    let status = child.wait();
    let status = status.map_err(NotRun::io("cannot wait for the script"))?;
    Ok(Ended { code: code(status), stderr: stderr.map(collect).unwrap_or_default() })
}

fn cannot_run(program: &OsStr, error: io::Error) -> NotRun {
    let program = program.display();
    let hint = match error.kind() {
        ErrorKind::NotFound => {
            " (it, or the interpreter in its first line, does not exist on the node)"
        }
        ErrorKind::PermissionDenied => " (it is not a file, or its file system is mounted noexec)",
        // Without a first line such as #!/bin/sh, only a shell could run it.
        _ if error.raw_os_error() == Some(NO_EXEC) => " (begin it with a line such as #!/bin/sh)",
        _ => "",
    };
    NotRun::io(format!("cannot run {program}{hint}"))(error)
}

/// ENOEXEC
const NO_EXEC: i32 = 8;

/// The exit code; for a script that was killed, 128 plus the number of the signal, as in a shell.
fn code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map(|signal| signal.saturating_add(128));
    let code = status.code().or_else(signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Copies the script's standard error to that of this process and to the receiver.
fn forward(mut from: ChildStderr) -> Receiver<Vec<u8>> {
    let (sender, receiver): (Sender<Vec<u8>>, _) = channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        loop {
            let length = match from.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            // The script continues even if the container's log is closed.
            let _ = io::stderr().write_all(&buffer[..length]);
            if sender.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Receives the standard error of a script that has exited. Returns its last [`TAIL`] bytes, with the lines joined by
/// `; `.
fn collect(from: Receiver<Vec<u8>>) -> String {
    let deadline = Instant::now() + STDERR_TIMEOUT;
    let mut tail = Vec::new();
    while let Ok(chunk) = from.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        tail.extend(chunk);
        let surplus = tail.len().saturating_sub(TAIL);
        tail.drain(..surplus);
    }
    let text = String::from_utf8_lossy(&tail);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|it| !it.is_empty()).collect();
    lines.join("; ")
}

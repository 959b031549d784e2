//! The process that ran in this container before. If it held the lease when it was killed, the next one need not wait until
//! the lease expires.
//!
//! A process locks a file for as long as it runs, and writes its identity there. A process that gets the lock knows that the
//! process that the file names has ended. Its last requests may still be on their way, so they get the time that they have before any
//! takeover.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use tokio::time::Instant;

/// The longest identity that is read, in bytes: the name of a host and a number.
const MAX_IDENTITY: u64 = 512;

/// The process that the file named, which has ended.
pub(crate) struct Predecessor {
    pub(super) identity: String,
    /// When it was known to have ended.
    pub(super) ended: Instant,
    /// Locked until this process ends.
    _lock: File,
}

impl Predecessor {
    /// Locks the file, and replaces the identity in it by that of this process. The file is created if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be read or written, or another process has locked it.
    pub(crate) fn replace(path: &Path, identity: &str) -> io::Result<Self> {
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::other("another process has locked it"),
        })?;
        let ended = Instant::now();
        let mut predecessor = String::new();
        (&file).take(MAX_IDENTITY).read_to_string(&mut predecessor)?;
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(identity.as_bytes())?;
        Ok(Self { identity: predecessor, ended, _lock: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_is_replaced_only_when_it_has_ended() {
        let path = std::env::temp_dir().join(format!("instance-{}", std::process::id()));
        let first = Predecessor::replace(&path, "a-longer-name").expect("locked");
        assert_eq!(first.identity, "");
        assert!(Predecessor::replace(&path, "b").is_err());
        drop(first);
        let second = Predecessor::replace(&path, "b").expect("locked");
        assert_eq!(second.identity, "a-longer-name");
        drop(second);
        let third = Predecessor::replace(&path, "c").expect("locked");
        assert_eq!(third.identity, "b");
        std::fs::remove_file(&path).expect("removed");
        assert!(Predecessor::replace(&path.join("missing"), "c").is_err());
    }
}

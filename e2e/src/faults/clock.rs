//! Makes the wall clock of a single process jump, with libfaketime. The monotonic clock is not
//! affected, just as when a machine's time is set.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Where Debian and other distributions install the library.
const LIBRARY_DIRS: [&str; 2] = ["/usr/lib", "/usr/lib64"];
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// A wall clock with an offset from the real time.
#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    offset_file: PathBuf,
}

impl Clock {
    /// A clock that shows the real time at first. Its offset is kept in a file in this folder.
    pub fn new(folder: &Path) -> Result<Self> {
        let clock = Clock { library: library()?, offset_file: folder.join("clock") };
        clock.jump(0)?;
        Ok(clock)
    }

    /// The environment of a process that uses this clock.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        [
            ("LD_PRELOAD", text(&self.library)),
            ("FAKETIME_TIMESTAMP_FILE", text(&self.offset_file)),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            // The process notices a jump after this many seconds.
            ("FAKETIME_CACHE_DURATION", "1".to_owned()),
        ]
    }

    /// Sets the offset from the real time.
    pub fn jump(&self, seconds: i64) -> Result<()> {
        // Renamed into place, because the process may read the file at any time.
        let new = self.offset_file.with_extension("new");
        std::fs::write(&new, format!("{seconds:+}\n"))?;
        Ok(std::fs::rename(new, &self.offset_file)?)
    }
}

fn library() -> Result<PathBuf> {
    for dir in LIBRARY_DIRS.map(Path::new) {
        let entries = std::fs::read_dir(dir).into_iter().flatten();
        let entries = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut dirs = entries.chain([dir.to_owned()]);
        if let Some(found) =
            dirs.find_map(|dir| Some(dir.join(LIBRARY)).filter(|file| file.exists()))
        {
            return Ok(found);
        }
    }
    bail!("libfaketime is missing: install Debian's package libfaketime")
}

//! A wall clock that jumps, for one process: libfaketime between it and the kernel. The monotonic
//! clock stays as it is, as on a machine whose time is set.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Where Debian and others put the library.
const PLACES: [&str; 2] = ["/usr/lib", "/usr/lib64"];
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// The clock.
#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    offset: PathBuf,
}

impl Clock {
    /// A clock that is right, whose offset stands in a file of this folder.
    pub fn new(folder: &Path) -> Result<Self> {
        let clock = Clock {
            library: library()?,
            offset: folder.join("clock"),
        };
        clock.jump(0)?;
        Ok(clock)
    }

    /// What a process needs in its environment to go by this clock.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        [
            ("LD_PRELOAD", text(&self.library)),
            ("FAKETIME_TIMESTAMP_FILE", text(&self.offset)),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            // How many seconds it may take until a jump is noticed.
            ("FAKETIME_CACHE_DURATION", "1".to_owned()),
        ]
    }

    /// From now on it is so many seconds wrong.
    pub fn jump(&self, seconds: i64) -> Result<()> {
        // Whole, or not at all: the process may read at any moment.
        let new = self.offset.with_extension("new");
        std::fs::write(&new, format!("{seconds:+}\n"))?;
        Ok(std::fs::rename(new, &self.offset)?)
    }
}

fn library() -> Result<PathBuf> {
    for place in PLACES.map(Path::new) {
        let below = std::fs::read_dir(place).into_iter().flatten();
        let below = below.filter_map(|entry| Some(entry.ok()?.path()));
        let mut places = below.chain([place.to_owned()]);
        if let Some(found) = places.find_map(|it| Some(it.join(LIBRARY)).filter(|it| it.exists())) {
            return Ok(found);
        }
    }
    bail!("libfaketime is missing: install Debian's package libfaketime")
}

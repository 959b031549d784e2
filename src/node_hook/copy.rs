//! Copies files: opens them in the container, then writes them on the node.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::NotRun;

/// The mode of a file on the node.
const MODE: u32 = 0o755;

/// What to check if a file is missing.
const READ_FROM: &str = "spec.features.files and spec.features.sources specify which ConfigMap or volume in namespace gamekeeper-hooks each file is read from";

/// A source file that is open for reading, and its destination.
pub(super) struct Copy {
    from: File,
    src: PathBuf,
    dst: PathBuf,
}

/// Opens a file, or all files of a directory.
pub(super) fn open(src: &Path, dst: &Path) -> Result<Vec<Copy>, NotRun> {
    let root: PathBuf = src.components().take(3).collect();
    let root = resolved(&root)?;
    let found = resolved_within(&root, src)?;
    if !metadata(&found)?.is_dir() {
        return Ok(vec![open_regular(&root, src, dst.to_owned())?]);
    }
    let cannot_read = || NotRun::io(format!("cannot read {}", src.display()));
    let mut copies = Vec::new();
    for entry in fs::read_dir(&found).map_err(cannot_read())? {
        let name = entry.map_err(cannot_read())?.file_name();
        // A kubelet keeps the versions of a ConfigMap in directories whose names begin with two dots. The keys of a
        // ConfigMap cannot begin with two dots.
        if name.as_encoded_bytes().starts_with(b"..") {
            continue;
        }
        copies.push(open_regular(&root, &src.join(&name), dst.join(&name))?);
    }
    if copies.is_empty() {
        // A missing ConfigMap is mounted as an empty directory.
        return Err(NotRun::Source(format!("there is no file in {} ({READ_FROM})", src.display())));
    }
    copies.sort_by(|a, b| a.dst.cmp(&b.dst));
    Ok(copies)
}

/// Opens a file, which must be a regular file after links are followed.
fn open_regular(root: &Path, src: &Path, dst: PathBuf) -> Result<Copy, NotRun> {
    let found = resolved_within(root, src)?;
    let kind = metadata(&found)?;
    if kind.is_dir() {
        return Err(NotRun::Source(format!(
            "{} is a directory in a directory, and only the files of a directory are copied: add an entry for it to \
             spec.features.files, or move it",
            src.display()
        )));
    }
    if !kind.is_file() {
        return Err(NotRun::Source(format!("{} is not a regular file", src.display())));
    }
    let from = File::open(&found).map_err(NotRun::io(format!("cannot open {}", src.display())))?;
    Ok(Copy { from, src: src.to_owned(), dst })
}

/// Follows links. The resulting path must lie within `root`.
fn resolved_within(root: &Path, src: &Path) -> Result<PathBuf, NotRun> {
    let found = resolved(src)?;
    match found.starts_with(root) {
        true => Ok(found),
        false => Err(NotRun::Source(format!(
            "{} links to {}, outside of its source",
            src.display(),
            found.display()
        ))),
    }
}

fn resolved(path: &Path) -> Result<PathBuf, NotRun> {
    let missing = || format!("cannot find {} ({READ_FROM})", path.display());
    fs::canonicalize(path).map_err(NotRun::io(missing()))
}

fn metadata(path: &Path) -> Result<fs::Metadata, NotRun> {
    fs::metadata(path).map_err(NotRun::io(format!("cannot read {}", path.display())))
}

impl Copy {
    /// Writes the file under a temporary name, and then renames it, so that a partial file is never run.
    pub(super) fn write(mut self) -> Result<(), NotRun> {
        let (src, dst) = (self.src.display(), self.dst.display());
        let failed = format!("cannot copy {src} to {dst}");
        self.replace().map_err(NotRun::io(failed))
    }

    fn replace(&mut self) -> io::Result<()> {
        let folder = self.dst.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        let mut name = std::ffi::OsString::from(".gamekeeper-");
        name.push(self.dst.file_name().unwrap_or_default());
        let temporary = folder.join(name);
        // An attempt that was killed may have left this file behind.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut to = options.write(true).create_new(true).mode(MODE).open(&temporary)?;
        io::copy(&mut self.from, &mut to)?;
        // The mode must not depend on the umask.
        to.set_permissions(Permissions::from_mode(MODE))?;
        to.sync_all()?;
        // A file that is open for writing cannot be executed.
        drop(to);
        fs::rename(&temporary, &self.dst)
    }
}

//! Reads the growing audit log once for all tests of a run.
//!
//! The log is large, and most of it belongs to the namespaces of other tests. So lines are only grouped by
//! namespace when they are read, and parsed when their namespace is checked.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use super::event::{Event, ObjectRef};

/// An audit log to which the API server appends.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    grouped: Mutex<Grouped>,
}

/// The part of the log that has been read so far, grouped by namespace.
#[derive(Debug, Default)]
struct Grouped {
    offset: u64,
    unfinished: String,
    by_namespace: HashMap<String, Vec<String>>,
}

impl AuditLog {
    /// The log in this file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        AuditLog { path: path.into(), grouped: Mutex::default() }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All completed writes in a namespace so far; the empty name stands for cluster-scoped objects.
    pub fn writes(&self, namespace: &str) -> Result<Vec<Event>> {
        let mut requests = self.requests(namespace)?;
        requests.retain(Event::is_write);
        Ok(requests)
    }

    /// The evidence about a namespace: all completed writes so far, and dry runs of deletions.
    pub fn evidence(&self, namespace: &str) -> Result<Vec<Event>> {
        let mut requests = self.requests(namespace)?;
        requests.retain(|event| event.is_write() || event.is_dry_deletion());
        Ok(requests)
    }

    /// All writes in a namespace so far, including dry runs and requests in progress.
    pub fn requests(&self, namespace: &str) -> Result<Vec<Event>> {
        let lines = {
            let mut grouped = self.grouped.lock().unwrap_or_else(PoisonError::into_inner);
            grouped.catch_up(&self.path)?;
            grouped.by_namespace.get(namespace).cloned().unwrap_or_default()
        };
        let events = lines.iter().map(|line| Event::parse(line.as_bytes()));
        events.collect()
    }

    /// Drops the lines of a namespace that is no longer needed.
    pub fn forget(&self, namespace: &str) {
        let mut grouped = self.grouped.lock().unwrap_or_else(PoisonError::into_inner);
        grouped.by_namespace.remove(namespace);
    }
}

impl Grouped {
    fn catch_up(&mut self, path: &Path) -> Result<()> {
        let mut file =
            File::open(path).with_context(|| format!("open the audit log {}", path.display()))?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut new = Vec::new();
        self.offset += file.read_to_end(&mut new)? as u64;
        // The last line may be incomplete. The rest of it is read next time.
        self.unfinished.push_str(&String::from_utf8_lossy(&new));
        let end = self.unfinished.rfind('\n').map_or(0, |at| at + 1);
        let rest = self.unfinished.split_off(end);
        let lines = std::mem::replace(&mut self.unfinished, rest);
        for line in lines.lines().filter(|line| may_be_write(line)) {
            let namespace = namespace_of(line).unwrap_or_default();
            self.by_namespace.entry(namespace).or_default().push(line.to_owned());
        }
        Ok(())
    }
}

/// Whether a line may be about a write. A user's text cannot contain what is searched for, because quotes in a JSON
/// string are escaped.
fn may_be_write(line: &str) -> bool {
    ["get", "list", "watch"].iter().all(|verb| !line.contains(&format!("\"verb\":\"{verb}\"")))
}

fn namespace_of(line: &str) -> Option<String> {
    const START: &str = "\"objectRef\":";
    let from = line.find(START)? + START.len();
    let mut objects = serde_json::Deserializer::from_str(&line[from..]).into_iter::<ObjectRef>();
    Some(objects.next()?.ok()?.namespace)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn line(verb: &str, namespace: &str) -> String {
        format!(
            r#"{{"stage":"ResponseComplete","requestURI":"/x","verb":"{verb}","user":{{"username":"u"}},"objectRef":{{"resource":"pods","namespace":"{namespace}","name":"p"}},"responseStatus":{{"code":200}},"requestReceivedTimestamp":"2026-01-01T00:00:00.000000Z","stageTimestamp":"2026-01-01T00:00:00.100000Z"}}"#
        )
    }

    #[test]
    fn writes_are_returned_by_namespace_as_the_log_grows() {
        let path = std::env::temp_dir().join(format!("audit-{}.log", std::process::id()));
        let mut file = File::create(&path).expect("create");
        let log = AuditLog::new(&path);
        let second = line("patch", "a");
        let (head, tail) = second.split_at(40);
        write!(file, "{}\n{}\n{head}", line("create", "a"), line("get", "a")).expect("write");
        assert_eq!(log.writes("a").expect("read").len(), 1);
        write!(file, "{tail}\n{}\n", line("create", "b")).expect("write");
        let verbs = |namespace| -> Vec<String> {
            let writes = log.writes(namespace).expect("read");
            writes.into_iter().map(|event| event.verb).collect()
        };
        assert_eq!(verbs("a"), ["create", "patch"]);
        assert_eq!(verbs("b"), ["create"]);
        log.forget("a");
        assert!(verbs("a").is_empty());
        std::fs::remove_file(&path).expect("remove");
    }
}

//! Which writes are the same: whether a plan writes again what an earlier one wrote.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;

/// What a write changes, and the content that it gives it, as hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The object, and which part of it.
    pub subject: u64,
    /// The new content of that part.
    pub content: u64,
}

impl Fingerprint {
    /// A write that gives a subject this content.
    pub fn of(subject: &impl Hash, content: &impl Hash) -> Self {
        let hash = |write: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            write(&mut hasher);
            hasher.finish()
        };
        Self {
            subject: hash(&|hasher| subject.hash(hasher)),
            content: hash(&|hasher| content.hash(hasher)),
        }
    }
}

/// The fingerprint of a write with content that is compared by its debug output: most of it has no hash.
pub(super) fn shown(subject: &impl Hash, content: &dyn Debug) -> Option<Fingerprint> {
    Some(Fingerprint::of(subject, &format!("{content:?}")))
}

/// The parts of an annotation, of JSON or not, that are not times: the same write has another time when it is repeated.
pub(super) fn without_times(text: &str) -> Vec<&str> {
    text.split('"').filter(|part| part.parse::<Timestamp>().is_err()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Change;
    use crate::observed::PodRef;

    #[test]
    fn records_that_differ_only_in_their_times_have_the_same_content() {
        let record = |revision: &str, time: &str| {
            let pod = PodRef {
                namespace: "games".into(),
                name: "game-0".into(),
                uid: "u".into(),
                version: None,
                allowed_until: None,
            };
            let record = format!(r#"{{"revision":"{revision}","patchedAt":"{time}"}}"#);
            let annotations = vec![("record", Some(record))];
            let change = Change::SetMetadata { pod, labels: Vec::new(), annotations };
            change.fingerprint().expect("a fingerprint").content
        };
        let first = record("game-1", "2026-01-01T00:00:00Z");
        assert_eq!(record("game-1", "2026-01-01T00:00:05.25Z"), first);
        assert_ne!(record("game-2", "2026-01-01T00:00:00Z"), first);
    }
}

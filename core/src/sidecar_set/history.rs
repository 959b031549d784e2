//! The ControllerRevisions of a SidecarSet: which one has to be written, and which ones are no longer kept.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::revision::SetRevision;
use super::set::{collisions, injected, revision_name};
use crate::api::SidecarSet;
use crate::write::{NewRevision, RevisionData, Write};

/// The number of old revisions to keep if the set does not specify it.
const HISTORY_LIMIT: usize = 10;

/// What has to be done about the ControllerRevisions of a set.
#[derive(Debug, PartialEq)]
pub(super) struct History {
    /// The name of the newest revision.
    pub newest: String,
    /// How often a revision's name was taken by another object. If this is more than the status shows, the status
    /// is written first.
    pub collisions: i32,
    /// The write that the newest revision needs.
    pub write: Option<Write>,
}

/// Decides how the newest revision of a set is written. `own` are the set's revisions; `orphans` have lost their set;
/// `taken` are the names of all other ControllerRevisions.
pub(super) fn history(
    set: &SidecarSet,
    own: &[Arc<SetRevision>],
    orphans: &[Arc<SetRevision>],
    taken: &BTreeSet<String>,
) -> History {
    let content = injected(&set.spec);
    let highest = own.iter().map(|it| it.number).max().unwrap_or(0);
    let number = highest + 1;
    let mut collisions = collisions(set);
    if let Some(same) = SetRevision::with_content(&content, own) {
        let renumber = || Write::renumber_revision(same.name.clone(), same.uid.clone(), number);
        return History {
            newest: same.name.clone(),
            collisions,
            write: (same.number < highest).then(renumber),
        };
    }
    let name = set.metadata.name.as_deref().unwrap_or_default();
    loop {
        let newest = revision_name(name, &content, collisions);
        let mut with_name = orphans.iter().filter(|it| it.name == newest);
        let orphan = with_name.next();
        let is_taken = own.iter().any(|it| it.name == newest) || taken.contains(&newest);
        let write = match orphan {
            Some(orphan) if orphan.content == content => {
                Write::adopt_revision(newest.clone(), orphan.uid.clone(), Some(number))
            }
            None if !is_taken => {
                let (name, data) = (newest.clone(), RevisionData::Sidecars(content));
                Write::create_revision(NewRevision { name, number, data, cause: None })
            }
            _ => {
                collisions += 1;
                continue;
            }
        };
        return History { newest, collisions, write: Some(write) };
    }
}

/// The revisions that are no longer kept: the oldest ones beyond the history limit. Those in `named`, to which a pod
/// or the set refers, are always kept and do not count toward the limit.
pub(super) fn expired<'r>(
    set: &SidecarSet,
    own: &'r [Arc<SetRevision>],
    named: &HashSet<String>,
) -> Vec<&'r SetRevision> {
    let limit = set.spec.revision_history_limit;
    let limit = limit.map_or(HISTORY_LIMIT, |limit| usize::try_from(limit).unwrap_or(0));
    let unused = own.iter().filter(|it| !named.contains(&it.name));
    let mut unused: Vec<&SetRevision> = unused.map(AsRef::as_ref).collect();
    unused.sort_by_key(|it| std::cmp::Reverse(it.number));
    unused.split_off(limit.min(unused.len()))
}

/// The names of the revisions to which a set itself refers.
pub(super) fn named_by_set(set: &SidecarSet, newest: &str) -> impl Iterator<Item = String> {
    let status = set.status.as_ref();
    let named_by_status = status.map(|it| [&it.latest_revision, &it.stable_revision]);
    let named_by_status = named_by_status.into_iter().flatten().cloned();
    let pinned = set.spec.injection_strategy.pinned().map(str::to_owned);
    let names: Vec<String> = named_by_status.chain(pinned).chain([newest.to_owned()]).collect();
    names.into_iter()
}

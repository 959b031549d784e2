//! Revisions: which one belongs to the current template, and which ones are kept.
//!
//! A revision is a ControllerRevision named `WORKLOAD-HASH`. Templates are compared by meaning: neither writing
//! `cpu: "0.5"` instead of `500m`, nor adding a default that was omitted before, creates a new revision.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use crate::api::{JsonText, names};
use crate::observed::RevisionName;
use crate::revision::canonical;
use crate::workload::spec::Workload;
use crate::workload::world::{Revision, World};
use crate::write::{NewRevision, RevisionData, Write};

/// How many orphaned revisions of other templates one plan adopts.
const MAX_ADOPTIONS: usize = 20;

/// The revisions of a workload.
pub struct Revisions<'a> {
    by_name: BTreeMap<RevisionName<'a>, &'a Revision>,
    /// The revision of the current template.
    pub update: &'a Revision,
}

impl<'a> Revisions<'a> {
    /// The revision with this name.
    pub fn get(&self, name: RevisionName) -> Option<&'a Revision> {
        self.by_name.get(&name).copied()
    }
}

/// The revisions of a workload, and what has to be done first.
pub(super) struct FoundRevisions<'a> {
    /// None if the update revision has to be created or adopted first; plan again once that is observed.
    pub revisions: Option<Revisions<'a>>,
    /// Creates, adopts or renumbers the update revision, and adopts others.
    pub writes: Vec<Write>,
    /// How often a revision's name was taken by another object.
    pub collisions: i32,
}

/// Finds the revision of the current template.
pub(super) fn find<'a>(workload: &Workload, world: &'a World) -> FoundRevisions<'a> {
    let mut collisions = workload.progress.collision_count;
    let revisions = &world.revisions;
    let wanted = canonical(&workload.template);
    let highest = revisions.iter().map(|it| it.number).max().unwrap_or(0);
    // The newest revision is compared first: it is nearly always the one, and only one is parsed at a time.
    let mut newest_first: Vec<_> = revisions.iter().collect();
    newest_first.sort_by_key(|it| Reverse(it.number));
    let is_same = |it: &&Arc<Revision>| canonical(&it.template.parse()) == wanted;
    let matching = newest_first.into_iter().find(is_same);
    let number = highest + 1;
    let orphans = revisions.iter().filter(|it| !it.controlled);
    let adopt = |it: &Arc<Revision>| Write::adopt_old_revision(it.name.clone(), it.uid.clone());
    let adoptions = || orphans.take(MAX_ADOPTIONS).map(adopt);
    let (revisions, writes) = match matching {
        Some(update) if update.controlled => {
            let (name, uid) = (update.name.clone(), update.uid.clone());
            let renumber = Write::renumber_revision(name, uid, number);
            let write = (update.number < highest).then_some(renumber);
            let writes = write.into_iter().chain(adoptions()).collect();
            (Some(Revisions { by_name: by_name(revisions), update }), writes)
        }
        // The template cannot be recorded for now: the workload keeps the revision that it has.
        None if workload.held.is_some() => {
            let update = workload.progress.update();
            let update =
                revisions.iter().map(AsRef::as_ref).find(|it: &&Revision| it.name() == update);
            (update.map(|update| Revisions { by_name: by_name(revisions), update }), Vec::new())
        }
        Some(orphan) => {
            let (name, uid) = (orphan.name.clone(), orphan.uid.clone());
            (None, vec![Write::adopt_revision(name, uid, None)])
        }
        None => {
            let mut name = revision_name(workload, &wanted, collisions);
            let is_taken = |name: &String| {
                revisions.iter().any(|it| it.name == *name) || world.memory.taken.contains(name)
            };
            while is_taken(&name) {
                collisions += 1;
                name = revision_name(workload, &wanted, collisions);
            }
            let new = NewRevision {
                name,
                number,
                data: RevisionData::Template(JsonText::from(&workload.template)),
                cause: workload.annotations.get(names::CHANGE_CAUSE).cloned(),
            };
            (None, vec![Write::create_revision(new)])
        }
    };
    FoundRevisions { revisions, writes, collisions }
}

fn by_name(revisions: &[Arc<Revision>]) -> BTreeMap<RevisionName<'_>, &Revision> {
    revisions.iter().map(|it| (it.name(), it.as_ref())).collect()
}

fn revision_name(workload: &Workload, canonical: &Value, collision_count: i32) -> String {
    let mut text = canonical.to_string();
    if collision_count > 0 {
        text.push_str(&collision_count.to_string());
    }
    format!("{}-{}", workload.name, names::safe_hash(text.as_bytes()))
}

/// Deletes the oldest revisions beyond the history limit. Those in `named`, which a pod or the status
/// refers to, are never deleted and do not count toward the limit.
pub(super) fn prune(
    workload: &Workload,
    revisions: &[Arc<Revision>],
    named: &HashSet<RevisionName>,
) -> Vec<Write> {
    let mut unused: Vec<_> = revisions
        .iter()
        .filter(|revision| revision.controlled && !named.contains(&revision.name()))
        .collect();
    unused.sort_by_key(|revision| Reverse(revision.number));
    unused
        .into_iter()
        .skip(workload.history_limit)
        .map(|revision| Write::delete_revision(revision.name.clone(), revision.uid.clone()))
        .collect()
}

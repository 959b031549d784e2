//! What the operator may do to a node and to the Cluster besides running scripts: cordon and uncordon, remove the
//! taint of a node that is installed, and remove the finalizer of the Cluster.

use super::object::{Cluster, Record, is_cordoned, is_tainted};
use super::step::{Phase, Step};
use super::world::World;
use crate::names;
use crate::object::uid;
use crate::replay::history::Write;
use crate::rules::{Found, wrong_under_all};

/// The operator cordons a node only to drain it for its upgrade, and uncordons only nodes that it has cordoned
/// itself.
pub(crate) fn cordons(
    world: &World,
    write: &Write,
    is_operator: &impl Fn(&str) -> bool,
) -> Option<Found> {
    let (Some(before), Some(after)) = (&write.before, &write.after) else {
        return None;
    };
    if write.plural != "nodes" {
        return None;
    }
    match (is_cordoned(before), is_cordoned(after)) {
        (true, false) => {
            let cordoned_by = world.cordoned_by.get(uid(after));
            let is_own = cordoned_by.is_some_and(|cordoned_by| is_operator(cordoned_by));
            (!is_own).then(|| {
                ("cordon", format!("uncordons a node that was cordoned by {cordoned_by:?}"))
            })
        }
        (false, true) => {
            let cluster = Record::on(after).map(|it| it.cluster_uid).unwrap_or_default();
            let versions = world.cluster(&cluster, write);
            let is_draining = |it: &Cluster| it.is_upgrading() && it.drains();
            let is_wrong = !versions.iter().any(is_draining);
            is_wrong.then(|| {
                ("cordon", "a node is cordoned without an upgrade that drains it".to_owned())
            })
        }
        _ => None,
    }
}

/// A node keeps the taint until its install is complete.
pub(crate) fn taint(write: &Write) -> Option<Found> {
    let (Some(before), Some(after)) = (&write.before, &write.after) else {
        return None;
    };
    let is_removed = write.plural == "nodes"
        && is_tainted(before, names::NOT_INSTALLED)
        && !is_tainted(after, names::NOT_INSTALLED);
    let is_installed = Record::on(before).is_some_and(|it| it.is_installed);
    (is_removed && !is_installed)
        .then(|| ("taint", "the taint is removed before the install is complete".to_owned()))
}

/// A Cluster's finalizer is removed last: after its delete hooks have passed and the records on its nodes are removed.
pub(crate) fn finalizer(world: &World, write: &Write) -> Option<Found> {
    let before = write.before.as_ref().filter(|_| write.plural == "clusters")?;
    let has_finalizer = |object: &serde_json::Value| {
        let finalizers = object.pointer("/metadata/finalizers");
        let finalizers = finalizers.and_then(serde_json::Value::as_array);
        finalizers.into_iter().flatten().any(|it| it == names::LIFECYCLE_FINALIZER)
    };
    if !has_finalizer(before) || write.after.as_ref().is_some_and(|it| has_finalizer(it)) {
        return None;
    }
    let cluster = uid(before);
    let mut nodes = world.nodes.values().filter_map(|it| it.newest());
    if nodes.any(|it| Record::on(it).is_some_and(|it| it.cluster_uid == cluster)) {
        return Some(("finalizer", "a node still has a record of the Cluster".to_owned()));
    }
    let why = wrong_under_all(&world.cluster(cluster, write), |cluster| {
        let mut steps = Step::of_phase(Phase::Delete).filter(|it| cluster.includes(it));
        let unfinished = steps.find(|it| !cluster.has_passed(it))?;
        Some(format!("the finalizer is removed before {} has passed", unfinished.name))
    })?;
    Some(("finalizer", why))
}

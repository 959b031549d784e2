//! The invariants, one file each. A rule gets a write by the operator and the world before it, and returns a
//! violation if there is one.

mod autoscalers;
mod batches;
mod budget;
mod completion;
mod deletion;
mod gate;
mod guard;
mod guard_checks;
mod holds;
mod hooks;
mod indexes;
mod on_delete;
mod order;
mod ordinals;
mod partition;
mod pause;
mod runs;
mod settled;
mod sidecars;
mod start;
mod steps;

pub(crate) use autoscalers::autoscalers;
pub(crate) use batches::Batches;
pub(crate) use budget::budget;
pub(crate) use completion::completion;
pub(crate) use deletion::deletion;
pub(crate) use gate::gate;
pub(crate) use guard::{guard, guard_without_hook};
pub(crate) use guard_checks::needless_requests;
pub(crate) use holds::Holds;
pub(crate) use hooks::hooks;
pub(crate) use indexes::indexes;
pub(crate) use on_delete::on_delete;
pub(crate) use order::order;
pub(crate) use ordinals::ordinals;
pub(crate) use partition::partition;
pub(crate) use pause::pause;
pub(crate) use runs::runs;
pub(crate) use settled::Settled;
pub(crate) use sidecars::sidecars;
pub(crate) use steps::Pauses;

use crate::object::uid;
use crate::replay::history::Write;
use crate::replay::workload::Version;
use crate::replay::world::World;

/// A violation: the name of the rule and a sentence.
pub(crate) type Found = (&'static str, String);

/// Whether a user's pause was in effect for so long that the operator must have observed it.
fn is_held_by_a_user(world: &World, workload: &Version, write: &Write) -> bool {
    let known = world.workloads.get(uid(&workload.object));
    known.is_some_and(|known| {
        let mut seen = known.seen_at(write.received).iter();
        seen.all(|version| version.is_paused() && !version.has_pause_annotation())
    })
}

/// None if a write is allowed under one of the versions; otherwise why it is wrong under the newest.
pub(crate) fn wrong_under_all<V>(
    versions: &[V],
    wrong: impl Fn(&V) -> Option<String>,
) -> Option<String> {
    let mut newest = None;
    for version in versions.iter().rev() {
        let why = wrong(version)?;
        newest.get_or_insert(why);
    }
    newest
}

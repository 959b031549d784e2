//! The invariants, one file each. A rule gets the world as it was before a write of the operator,
//! and the write, and says what is wrong with it.

mod budget;
mod calm;
mod done;
mod gate;
mod holds;
mod hooks;
mod ordinals;
mod partition;
mod pause;
mod runs;
mod start;
mod steps;

pub(crate) use budget::budget;
pub(crate) use calm::Calm;
pub(crate) use done::done;
pub(crate) use gate::gate;
pub(crate) use holds::Holds;
pub(crate) use hooks::hooks;
pub(crate) use ordinals::ordinals;
pub(crate) use partition::partition;
pub(crate) use pause::pause;
pub(crate) use runs::runs;
pub(crate) use steps::Pauses;

use crate::object::uid;
use crate::replay::history::Write;
use crate::replay::workload::Version;
use crate::replay::world::World;

/// What a rule says: its name, and a sentence.
pub(crate) type Found = (&'static str, String);

/// Whether a user's pause stood long enough that the operator had to know.
fn is_held_by_a_user(world: &World, workload: &Version, write: &Write) -> bool {
    let known = world.workloads.get(uid(&workload.object));
    known.is_some_and(|known| {
        let mut seen = known.seen_at(write.received).iter();
        seen.all(|version| version.is_paused() && !version.has_pause_annotation())
    })
}

/// Passes if the write was right under one of the versions; else says why it was wrong under the
/// newest.
fn right_under_one(
    versions: &[Version],
    wrong: impl Fn(&Version) -> Option<String>,
) -> Option<String> {
    let mut newest = None;
    for version in versions.iter().rev() {
        let why = wrong(version)?;
        newest.get_or_insert(why);
    }
    newest
}

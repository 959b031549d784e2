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

pub use budget::budget;
pub use calm::Calm;
pub use done::done;
pub use gate::gate;
pub use holds::Holds;
pub use hooks::hooks;
pub use ordinals::ordinals;
pub use partition::partition;
pub use pause::pause;
pub use runs::runs;
pub use steps::Pauses;

use super::history::Write;
use super::object::uid;
use super::workload::Version;
use super::world::World;

/// What a rule says: its name, and a sentence.
pub type Found = (&'static str, String);

/// Whether a user's pause stood long enough that the operator had to know.
fn is_held_by_a_user(world: &World, workload: &Version, write: &Write) -> bool {
    let known = world.workloads.get(uid(&workload.object));
    known.is_some_and(|known| {
        let mut seen = known.seen_at(write.received).iter();
        seen.all(|version| version.is_paused() && !version.has_pause_note())
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

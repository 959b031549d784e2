//! The invariants, one file each. A rule gets the world as it was before a write of the operator,
//! and the write, and says what is wrong with it.

mod budget;
mod calm;
mod done;
mod gate;
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
pub use hooks::hooks;
pub use ordinals::ordinals;
pub use partition::partition;
pub use pause::pause;
pub use runs::runs;
pub use steps::Pauses;

use super::workload::Version;

/// What a rule says: its name, and a sentence.
pub type Found = (&'static str, String);

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

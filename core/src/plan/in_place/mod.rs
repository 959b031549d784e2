//! Updates that change a running pod: what can be changed, how, and when a change is complete.

mod change;
mod completion;
pub mod hot_patch;
mod other_pods;
mod state;
mod turns;
mod unfinished;

pub use change::{Change, MarkChange, NotInPlace, between};
pub use completion::{Completion, completion, same_image};
pub use other_pods::{changing_other, has_sidecars, record_of_other};
pub use state::{InPlaceState, Patching, changing, is_in_progress, patch_of, state};
pub use turns::next_turn;
pub use unfinished::{completed, is_at, is_unfinished};

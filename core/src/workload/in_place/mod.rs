//! Updates that change a running pod: what can be changed, how, and when a change is complete.

mod change;
mod completion;
pub mod hot_patch;
mod other_pods;
mod qos;
mod restore;
mod state;
mod turns;
mod unfinished;

pub use change::{InPlaceChange, MarkChange, NotInPlace, change_between};
pub use completion::{Completion, assumed_later, completion, same_image};
pub use other_pods::{has_sidecars, progress_in_other_pod, record_of_other_pod};
pub use qos::why_class_would_change;
pub use restore::patch_back;
pub use state::{Patching, changing, is_in_progress, is_patched, patch_of};
pub use turns::{is_restarted, next_turn};
pub use unfinished::{is_at, is_unfinished, with_missing_parts};

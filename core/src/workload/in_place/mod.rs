//! Updates that change a running pod: what can be changed, how, and when a change is complete.

mod change;
mod completion;
pub(super) mod hot_patch;
mod other_pods;
mod qos;
mod restore;
mod state;
mod turns;
mod unfinished;

pub(super) use change::{InPlaceChange, MarkChange, NotInPlace, change_between};
pub(super) use completion::{Completion, assumed_later, completion, same_image};
pub use other_pods::{has_sidecars, progress_in_other_pod, record_of_other_pod};
pub(super) use qos::why_class_would_change;
pub(super) use restore::patch_back;
pub use state::changing;
pub(super) use state::{Patching, is_in_progress, is_patched, patch_of};
pub(super) use turns::{is_restarted, next_turn};
pub(super) use unfinished::{is_at, is_unfinished, with_missing_parts};

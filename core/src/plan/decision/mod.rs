//! What a plan contains: actions, events, and what blocks a workload. These are values that can be printed and
//! compared; `apply` carries them out.

mod action;
mod blocked;
mod decided;
mod deletion;
mod draft;
mod in_place_patch;
mod object;
mod plan;
mod pod_ref;

pub use action::Action;
pub use blocked::{Blocked, Concern, Obstacles};
pub use decided::{Decided, Decision};
pub use deletion::{Deletion, DeletionReason, Ground};
pub use draft::Draft;
pub use in_place_patch::{ImageChange, InPlacePatch};
pub use object::{Budget, ClaimOwnership, NewClaim, NewPod, NewRevision, WorkloadPatch};
pub use plan::{Event, Phase, Plan};
pub use pod_ref::PodRef;

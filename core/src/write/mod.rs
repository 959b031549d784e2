//! What a planner returns: writes with their preconditions, events, and when to plan again. These are values that can be
//! printed and compared; `apply` carries them out.

mod action;
mod deletion;
mod in_place_patch;
mod object;
mod plan;
mod pod_ref;

pub use action::Action;
pub use deletion::{Deletion, DeletionReason, Ground};
pub use in_place_patch::{ImageChange, InPlacePatch};
pub use object::{Budget, ClaimOwnership, NewClaim, NewPod, NewRevision, WorkloadPatch};
pub use plan::{Event, Phase, Plan};
pub use pod_ref::PodRef;

//! What a plan contains: actions, events, and what blocks a workload.

mod action;
mod blocked;
mod decided;
mod draft;

pub use action::{
    Action, Budget, ClaimOwnership, Deletion, DeletionReason, Event, Ground, ImageChange,
    InPlacePatch, NewClaim, NewPod, NewRevision, Phase, Plan, PodRef, WorkloadPatch,
};
pub use blocked::{Blocked, Concern, Obstacles};
pub use decided::{Decided, Decision};
pub use draft::Draft;

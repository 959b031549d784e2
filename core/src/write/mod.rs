//! What planners return: writes, and when to plan again; and what the answers to writes mean. These are values that can be printed and compared; the loop in
//! `reconcile` carries them out.
//!
//! A [`Write`] carries its class: when it is carried out, what must be proven first, and what a refusal blocks. Its
//! constructors set the class, and those of deletions and in-place updates take the guard's permit. To add a kind of
//! write, add a variant to [`Change`], its constructor, and its [`Request`].

mod change;
mod class;
mod fingerprint;
mod identity;
mod object;
mod plan;
mod refusal;
mod refused;
mod request;
mod results;
mod sequel;
mod trial;

pub use change::{Change, Deletion, DeletionReason, ImageChange, InPlacePatch, Owned};
pub use class::{Attempt, Phase, Proof, Write};
pub use fingerprint::Fingerprint;
pub use identity::Identity;
pub use object::{
    Budget, ClaimOwnership, NewClaim, NewImage, NewPod, NewRevision, NodePatch, RevisionData,
    SidecarPatch, WorkloadPatch, without_side_effects,
};
pub use plan::{Event, Plan};
pub use refusal::Refusal;
pub use refused::Refused;
pub use request::{Content, Object, Owner, Request, Verb};
pub use results::{Outcome, PodsEvent, Remember, Results, Stop};
pub use sequel::Answer;
pub use trial::{Rehearsal, Trial};

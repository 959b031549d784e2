//! Slim forms of the objects that a plan is made from.

mod claim;
mod pod;

pub use claim::{Claim, ClaimOwner};
pub use pod::{
    Container, ContainerChange, ContainerStatus, FirstStatus, Gate, InPlaceRecord, Pod, PodPhase,
    Resize,
};

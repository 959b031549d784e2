//! Slim forms of the objects that a plan is made from.

mod budget;
mod claim;
mod ids;
mod kind;
mod kubelet;
mod labels;
pub mod limits;
mod pod;
mod pod_ref;
mod qos;
pub mod quantity;
mod sidecar_mark;
pub mod time;
mod trouble;

pub use budget::OtherBudget;
pub use claim::{Claim, ClaimOwner};
pub use ids::{PodUid, RevisionName};
pub use kind::{Kind, ObjectKey};
pub use kubelet::OldKubelet;
pub use labels::Labels;
pub use pod::{
    Container, ContainerChange, ContainerStatus, Disruption, FirstStatus, Gate, InPlaceRecord,
    LostNode, MoveRequest, Pod, PodPhase, Resize, SIDECARS, Taint, Turn, joined_revisions,
};
pub use pod_ref::PodRef;
pub use qos::{Qos, QosClass, is_guaranteed};
pub use sidecar_mark::{SidecarMark, SidecarMarks, mark_key, sidecar_marks};
pub use trouble::{Trouble, TroubleKind};

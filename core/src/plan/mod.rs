//! All decisions about workloads and SidecarSets, as pure functions from the observed state to actions.
//!
//! There is no client, no async code and no clock (`now` is part of the observed state), so what a reconcile
//! will do can be printed, compared, and explored by a model checker.
//!
//! Start at [`game_deployment::plan`] and [`game_stateful_set::plan`], which read from top to bottom.
//! [`guard::may_touch`](hooks::guard::may_touch) alone decides when a pod may be deleted or changed.
//!
//! The modules, each of which uses only those above it:
//!
//! | module | what it decides or contains |
//! |---|---|
//! | [`observed`] | slim forms of pods and claims |
//! | [`limits`] | numbers and percentages of pods |
//! | [`sidecars`] | what SidecarSets inject into pods, which pods they allow to be updated, and their status |
//! | [`decision`] | what a plan contains: actions, events, what blocks a workload |
//! | [`workload`] | a workload with defaults and percentages resolved |
//! | [`world`] | everything observed about a workload at one moment |
//! | [`hooks`] | which HookRun allows which action; when a pod may be deleted or changed |
//! | [`protection`] | what guards pods against other clients: label, budget, finalizer |
//! | [`revision`] | ControllerRevisions |
//! | [`in_place`] | what can be changed in a running pod, in which order, and when a change is complete |
//! | [`rollout`] | canary steps, pauses, promotion |
//! | [`pods`] | a workload's own pods, availability, new pods and their indexes |
//! | [`scale`] | how many pods, which ones to delete, ordinals and claims |
//! | [`update`] | which pods are updated now: budget, order, method |
//! | [`status`] | the status, conditions and events |
//! | [`deletion`] | the plan for a workload that is being deleted |
//! | [`outline`] | how the plans for both kinds begin and end |

mod decision;
mod deletion;
pub mod game_deployment;
pub mod game_stateful_set;
mod hooks;
mod in_place;
mod limits;
mod observed;
mod outline;
mod planned;
mod pods;
mod protection;
pub mod quantity;
mod revision;
mod rollout;
mod scale;
pub mod sidecars;
mod status;
#[cfg(test)]
mod tests;
pub(crate) mod time;
mod update;
mod workload;
mod world;

pub use decision::{
    Action, Budget, ClaimOwnership, Deletion, DeletionReason, Event, Ground, ImageChange,
    InPlacePatch, NewClaim, NewPod, NewRevision, Phase, Plan, PodRef, WorkloadPatch,
};
pub use hooks::run_maker::{CannotMake, OPERATOR_ARGUMENTS};
pub use hooks::{makes_same_plan, token_hook};
pub use in_place::{changing, has_sidecars, progress_in_other_pod, record_of_other_pod};
pub use observed::{
    Claim, ClaimOwner, Container, ContainerChange, ContainerStatus, Disruption, FirstStatus, Gate,
    InPlaceRecord, Labels, LostNode, MoveRequest, OldKubelet, Pod, PodPhase, PodUid, Resize,
    RevisionName, SidecarMark, SidecarMarks, Taint, Turn, mark_key, sidecar_marks,
};
pub use planned::Planned;
pub use protection::{Ending, GuardedPlayers, delays_removal};
pub use revision::{Revisions, canonical, recorded_template};
pub use rollout::{Promotion, Rollout};
pub use status::unreadable::{unreadable_conditions, unreadable_message};
pub use time::{duration, parse_duration};
pub use update::why_sidecars_are_held;
pub use workload::{InvalidWorkload, Workload, managed_fields_to_keep};
pub use world::{Attempt, Backoff, Failures, GuardState, OtherBudget, Revision, Verdict, World};

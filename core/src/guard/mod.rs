//! Decides when a pod may be deleted or changed. No other code decides that.
//!
//! Only [`may_touch`] and, for a gate that is closed, [`closed_gate`] return a [`Permit`]: its fields are private.
//! Deletions and the start of in-place updates require one (see [`Write`](crate::write::Write)). The later writes of an
//! update require a [`Begun`], which only [`in_place_state`] returns. These writes require neither:
//! - a hot patch, because it restarts nothing;
//! - a new closing time for a gate that is already closed;
//! - a forced deletion, because the pod is already Terminating;
//! - a patch of sidecars: in a pod of a workload, it contains no image, only a token that the workload acts on; pods of
//!   other controllers have no hooks, so `sidecar_set::allot` decides by the set's limit.
//!
//! Another module cannot make a permit:
//!
//! ```compile_fail,E0451
//! # use gamekeeper_core::{guard::{Ground, Permit}, observed::Pod};
//! fn forge(pod: &Pod) -> Permit<'_> {
//!     Permit { pod, ground: Ground::NoHook, until: None }
//! }
//! ```
//!
//! It has to ask for one:
//!
//! ```
//! # use gamekeeper_core::{guard::{Case, Permit, may_touch}, observed::Pod};
//! fn ask<'a>(pod: &'a Pod, case: &impl Case) -> Option<Permit<'a>> {
//!     may_touch(pod, case)
//! }
//! ```

mod begun;
mod permit;
#[cfg(test)]
mod tests;

pub use begun::{Begun, InPlaceState, in_place_state};
pub use permit::{Ground, Permit};

use jiff::Timestamp;

use crate::observed::{Pod, PodPhase};

/// What the guard has to know about an action on a pod.
pub trait Case {
    /// Whether the action is possible now, apart from its hook.
    fn is_possible(&self) -> bool;
    /// Whether the action deletes the pod.
    fn deletes(&self) -> bool;
    /// Whether a hook guards the action.
    fn needs_hook(&self) -> bool;
    /// Whether a user released the pod from its guard.
    fn is_released(&self) -> bool;
    /// Whether the pod is guarded, and its node is lost: neither its hook nor its players can reach it.
    fn is_on_lost_node(&self) -> bool;
    /// Whether the hook allows the action.
    fn hook(&self) -> HookAnswer;
    /// When the success of the hook becomes invalid.
    fn valid_until(&self) -> Option<Timestamp>;
}

/// Whether a pod's hook allows an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookAnswer {
    /// No hook guards the action, or the hook was successful.
    Allowed,
    /// The hook is running, ended without success, is about to start, or cannot be created.
    Held,
    /// The action has been held for longer than spec.protection allows.
    PastDeadline,
}

/// Invariant 1. A pod may be deleted, or changed in place, when that is possible now, the pod is not yet
/// Terminating, and
/// - no hook guards the action, or
/// - no players can be on it, or
/// - its hook was successful, for exactly this pod, target, change and hook, a short time ago, or
/// - it is guarded (spec.protection), and a user released it, or
/// - it is guarded, the action deletes it, and its node is lost or its deadline has passed.
///
/// The last two items are invariant 11 (see `protection`).
pub fn may_touch<'a>(pod: &'a Pod, case: &impl Case) -> Option<Permit<'a>> {
    let ground = ground(pod, case)?;
    let until = match ground {
        Ground::Hook => case.valid_until(),
        _ => None,
    };
    case.is_possible().then(|| Permit::new(pod, ground, until))
}

/// What happens to a gate that is already closed.
pub enum ClosedGate<'a> {
    /// It opens again: nothing allows the change anymore.
    Opens,
    /// It stays closed: the change is allowed, but not possible now.
    Stays,
    /// The change may be made.
    Change(Permit<'a>),
}

/// What happens to a pod whose gate is already closed, by the rules of [`may_touch`].
pub fn closed_gate<'a>(pod: &'a Pod, case: &impl Case) -> ClosedGate<'a> {
    match ground(pod, case) {
        None => ClosedGate::Opens,
        Some(_) if !case.is_possible() => ClosedGate::Stays,
        // The success had to be valid when the gate was closed.
        Some(ground) => ClosedGate::Change(Permit::new(pod, ground, None)),
    }
}

/// What allows an action once it is possible; None if nothing does.
fn ground(pod: &Pod, case: &impl Case) -> Option<Ground> {
    if pod.terminating {
        return None;
    }
    if !case.needs_hook() {
        return Some(Ground::NoHook);
    }
    if !may_have_players(pod) {
        return Some(Ground::NothingRuns);
    }
    if case.deletes() && case.is_on_lost_node() {
        return Some(Ground::NodeLost);
    }
    if case.is_released() {
        return Some(Ground::Released);
    }
    match case.hook() {
        HookAnswer::Allowed => Some(Ground::Hook),
        HookAnswer::PastDeadline => Some(Ground::Deadline),
        HookAnswer::Held => None,
    }
}

/// Whether players may be on a pod: whether any of its containers (including native sidecars) runs. The pod's
/// phase does not tell: a pod is Pending if its game runs but a sidecar still waits for its image, and Running
/// even if its game is in a crash loop. The phase counts only for containers without a status.
pub fn may_have_players(pod: &Pod) -> bool {
    let is_up = matches!(pod.phase, PodPhase::Running | PodPhase::Unknown);
    let mut containers = pod.containers.iter();
    containers.any(|container| match &container.status {
        Some(status) => status.running,
        None => is_up,
    })
}

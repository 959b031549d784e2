//! SidecarSets: which pods get which containers, which pods are updated when the containers change, and the status
//! of a set.
//!
//! One function, [`inject()`], serves the planner, for pods of our workloads, and the webhook, for pods of other
//! controllers. So game servers get their sidecars without a webhook.

mod allot;
mod containers;
mod defaults;
mod held;
mod history;
mod inject;
mod matched;
mod memory;
mod namespace;
mod plan;
mod reach;
mod revision;
mod set;
mod status;
#[cfg(test)]
mod tests;
mod volumes;
mod webhook;

pub use allot::{Allotment, MarkWrite, allot};
pub use containers::without_options;
pub use defaults::with_defaults;
pub use held::{Held, HeldBy};
pub use inject::inject;
pub use matched::{Changing, MatchedPod, RefusedWrite, TokenHook};
pub use memory::{Memory, RevisionWritten, Tally};
pub use namespace::{Namespace, NamespacePolicy};
pub use plan::{SetWorld, plan};
pub use reach::{SetHead, UnreadableSet, unreadable_for};
pub use revision::SetRevision;
pub use set::{SidecarImage, Sidecars, has_same_containers, is_current, selected};
pub use volumes::is_same_volume;
pub use webhook::{OtherPods, WebhookState};

//! SidecarSets: which pods get which containers, and the status of a set.
//!
//! One function, [`inject()`], serves the planner, for pods of our workloads, and the webhook, for pods of other
//! controllers. So game servers get their sidecars without a webhook.

mod containers;
mod defaults;
mod inject;
mod set;
mod status;
#[cfg(test)]
mod tests;

pub use containers::without_options;
pub use defaults::with_defaults;
pub use inject::inject;
pub use set::{Namespace, Sidecars, is_current, selected};
pub use status::{MatchedPod, sidecar_set_status};

//! The campaign of guarded matches: what ends them, compared with other ways to protect pods.
//!
//! In a [`History`], users roll out and scale, the operator is killed, and other clients act as they do in any cluster
//! ([`Actor`]): they drain nodes, evict and delete pods, and delete the workload or its namespace. From its start, each
//! pod runs a match of a few seconds, and until the match is over, the pod's hook refuses. Once all matches are over,
//! all drains and deletions must complete on their own.
//!
//! [`play()`] plays a history in each [`Variant`]: with guarded pods, with the hook alone, and as a native Deployment
//! with a PodDisruptionBudget or the annotation for autoscalers. Which matches were ended, and by which client, is
//! read from the audit log ([`Record`]). A [`Table`] adds records up.

mod actors;
mod ended;
mod figures;
mod finish;
mod history;
mod matches;
mod play;
mod stage;
mod variant;

pub use actors::Actor;
pub use figures::{Record, Table};
pub use history::{History, Kind, Stimulus};
pub use play::{Played, play, play_until};
pub use stage::Stage;
pub use variant::Variant;

//! The judge: says from outside whether the invariants of gamekeeper held.
//!
//! It trusts nothing that the operator says of itself, and shares no code with it. What both must
//! know, such as the names of labels, is written here a second time, so that a mistake in one of the
//! two shows.
//!
//! # What is judged
//!
//! The list "What always holds" of ARCHITECTURE.md, by its numbers:
//!
//! | invariant | judged by |
//! |---|---|
//! | 1: no running pod is deleted or changed before its hook was successful | `rules/hooks.rs` |
//! | 2: maxUnavailable and maxSurge | `rules/budget.rs` |
//! | 3: no more pods are updated than the partition allows | `rules/partition.rs`, and `rules/holds.rs` where no number in the spec says it |
//! | 4: canary steps are left in order, and for a reason | `rules/steps.rs` |
//! | 5: while paused, no update starts | `rules/pause.rs` |
//! | 6: one live HookRun per pod and point | `rules/runs.rs` |
//! | 7: ordinals, their order, and their claims | `rules/ordinals.rs` |
//! | 8: nothing is written about a settled workload | `rules/calm.rs` |
//! | 9: only the leader writes | [`writes_without_lease`], for tests with several operators |
//! | 10: all of it after crashes, on stale caches and on errors | every rule: tests kill, freeze and cut off the operator, and the judge does not ask whether they did |
//!
//! Two rules more are about a pod that is updated in place: it gets no traffic while it is changed
//! (`rules/gate.rs`), nor before it runs what it should (`rules/done.rs`).
//!
//! # The evidence
//!
//! - The audit log of the API server ([`AuditLog`]): each write with its user, its times, what was sent
//!   and what was answered. The policy that asks for it is `e2e/cluster/audit-policy.yaml`.
//! - A [`Witness`], where the operator is killed or cut off: a watch that notes each version of each
//!   object. The log does not say whether a write took effect whose answer was lost; it did if the
//!   witness saw a version that no answer gave.
//!
//! # How it goes
//!
//! 1. `evidence` reads the log and finds the lost writes that took effect.
//! 2. `replay::history` puts the writes in the order of their resourceVersions, each with the object
//!    before and after it. `replay::world` plays them: what there was in the namespace at any moment.
//! 3. `rules` look at each write of the operator in the world that it met. [`violations`] runs them all, and
//!    returns each [`Violation`].
//!
//! One tolerance runs through all of it: a writer cannot know what changed while its request was on the
//! way. So a write is judged by every version of the workload that was the newest at some moment of the
//! second before the request came in (`replay::world::LAG`), and is wrong only if it is wrong under each
//! of them.
//!
//! # Where to start
//!
//! [`violations`] in `verdict.rs` is the whole trial on one page; `rules/pause.rs` is a short rule. Each rule
//! has its tests beside it: logs that `story.rs` makes by hand, with the fault and without it.

#![warn(unreachable_pub)]

mod counts;
mod evidence;
mod leadership;
pub mod names;
pub mod object;
mod replay;
mod rules;
#[cfg(test)]
mod story;
mod verdict;

pub use counts::{Counts, WriteKind};
pub use evidence::{AuditLog, Event, Witness};
pub use leadership::{takeovers, writes_without_lease};
pub use verdict::{Violation, violations};

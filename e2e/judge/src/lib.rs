//! The judge: checks from outside whether gamekeeper's invariants held.
//!
//! It does not rely on anything that the operator reports, and shares no code with it. What both need,
//! such as the names of labels, is defined here a second time, so that a mistake on one side is noticed.
//!
//! # What is checked
//!
//! The list "What always holds" in ARCHITECTURE.md, by its numbers:
//!
//! | invariant | checked by |
//! |---|---|
//! | 1: no running pod is deleted or changed before its hook is successful | `rules/hooks.rs` |
//! | 2: maxUnavailable and maxSurge | `rules/budget.rs` |
//! | 3: no more pods are updated than the partition allows | `rules/partition.rs`, and `rules/holds.rs` for limits that are not in the spec |
//! | 4: canary steps end in order, and for a reason | `rules/steps.rs` |
//! | 5: while paused, no update starts | `rules/pause.rs` |
//! | 6: one live HookRun per pod and point | `rules/runs.rs` |
//! | 7: ordinals (including reserved ones), their order and their claims; indexes of pods | `rules/ordinals.rs`, `rules/indexes.rs` |
//! | 8: nothing is written for a settled workload | `rules/settled.rs`; budgets of guarded pods are written and checked only for a reason: `rules/guard_checks.rs` |
//! | 9: only the leader writes | [`writes_without_lease`], for tests with several operators |
//! | 10: all of this also holds after crashes, with stale caches and on errors | every rule, because the rules make no exception for crashes and faults |
//! | 11: no client ends a guarded pod before its hook allows it | `rules/guard.rs`, which checks all users |
//! | 12: scripts of a Cluster run in order, once, and one at a time on a node | `lifecycle`, for tests with a Cluster |
//! | 13: containers of a SidecarSet change only with its token | `rules/sidecars.rs` |
//!
//! Seven more rules check what is not in that list. A pod that is updated in place gets no traffic while it is
//! changed (`rules/gate.rs`), or before it runs the new image (`rules/completion.rs`), and its containers are
//! changed in the order that the workload specifies (`rules/order.rs`). With OnDelete, the operator starts no update
//! (`rules/on_delete.rs`). With createBatch, it creates the first pods in batches (`rules/batches.rs`). The
//! annotations for autoscalers have the template's values; a guarded pod gets those that the template does not set
//! (`rules/autoscalers.rs`). Nothing starts for a workload that was deleted (`rules/deletion.rs`).
//!
//! # The evidence
//!
//! - The audit log of the API server ([`AuditLog`]): each write with its user, times, request and response.
//!   The audit policy is `e2e/cluster/audit-policy.yaml`.
//! - A [`Witness`], if the operator is killed or disconnected: a watch that records each version of each
//!   object. If the response to a write was lost, the log does not say whether it took effect. It did if
//!   the witness observed a version that is in no response.
//!
//! # How it works
//!
//! 1. `evidence` reads the log and finds the lost writes that took effect.
//! 2. `replay::history` sorts the writes by resourceVersion and adds the object before and after each.
//!    `replay::world` replays them, so that the state of the namespace at each write is known.
//! 3. `rules` check each write by the operator against that state. [`violations`] runs all rules and
//!    returns each [`Violation`].
//!
//! [`pod_lives`] replays the same writes, and returns which client ended which pod.
//!
//! There is one tolerance in all rules: a client cannot know what changes while its request is in flight.
//! So a write is checked against every version of the workload that was the newest at some time in the
//! second before the request was received (`replay::world::LAG`), and is a violation only if it is wrong
//! for each of them. Only two rules allow more, and say why: `rules/deletion.rs`, and `rules/settled.rs` for events.
//!
//! # Where to start
//!
//! [`violations`] in `verdict.rs` shows the whole process on one page; `rules/pause.rs` is a short rule.
//! Each rule has tests next to it: logs written by hand with `scenario.rs`, with and without a violation.

#![warn(unreachable_pub)]

mod counts;
mod evidence;
mod leadership;
mod lifecycle;
mod lives;
pub mod names;
pub mod object;
mod replay;
mod rules;
#[cfg(test)]
mod scenario;
mod verdict;

pub use counts::{Counts, WriteKind};
pub use evidence::{AuditLog, Event, Witness};
pub use leadership::{takeovers, writes_without_lease};
pub use lifecycle::lifecycle_violations;
pub use lives::{End, Life, pod_lives};
pub use replay::{is_partial, rebuild};
pub use verdict::{Violation, violations};

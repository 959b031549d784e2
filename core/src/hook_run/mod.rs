//! HookRuns: the validation of a template before a run is created from it, and the next state of a run.
//!
//! This code is pure, like the whole core: a run's next state follows from its spec, its status, the calls
//! that have ended or are in progress, and the time. The calls themselves are made by `provider`.

mod arguments;
mod assess;
mod budget;
mod by_name;
mod exec;
mod expiry;
mod judge;
mod kubernetes;
mod metric;
mod provider;
mod record;
mod schedule;
mod strings;
mod template;
#[cfg(test)]
mod tests;

pub use arguments::*;
pub use assess::*;
pub use by_name::Rules;
pub use exec::{ExecNamespaces, MAX_COMMAND, SECRET_IN_COMMAND, STEP_HAS_NO_POD, allowed_by};
pub use expiry::expires_at;
pub use judge::*;
pub use kubernetes::{ALWAYS_THE_POD, selects_object};
pub use provider::{ResultKind, visit_strings};
pub use record::{job_in_progress, next_number};
pub use schedule::SHORTEST_INTERVAL;
pub use strings::*;
pub use template::*;

//! The evidence: the audit log, and a witness for writes whose outcome the log does not show.

mod event;
mod log;
mod unanswered;
mod witness;

pub use event::Event;
pub(crate) use event::ObjectRef;
pub use log::AuditLog;
pub use witness::Witness;

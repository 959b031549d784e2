//! What is judged from: the audit log, and what a witness saw of the writes that it leaves open.

mod event;
mod log;
mod unanswered;
mod witness;

pub use event::Event;
pub(crate) use event::ObjectRef;
pub use log::AuditLog;
pub use witness::Witness;

//! Programs that run on this machine.

pub mod command;
pub(crate) mod program;
pub(crate) mod usage;

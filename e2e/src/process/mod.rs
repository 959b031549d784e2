//! Programs that are run as processes of this machine.

pub mod command;
pub(crate) mod program;
pub(crate) mod usage;
